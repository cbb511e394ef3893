"""The event log: every change of the database in order, to follow it, to audit it or to rebuild a database from it."""

from persist.lazy_imports import lazy_names

# imported on first use: rebuild imports Store, which imports this package
with lazy_names(globals()):
    from persist.events.schemas import Event
    from persist.maintenance.rebuilding import rebuild

__all__ = ["Event", "rebuild"]
