"""The event log: every change of the database in order, to follow it, to audit it or to rebuild a database from it."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.events.schemas import Event
    from persist.maintenance.rebuilding import rebuild

__all__ = ["Event", "rebuild"]

# imported on first use: rebuild imports Store, which imports this package
__getattr__ = lazy_names(__name__, {"Event": "persist.events.schemas", "rebuild": "persist.maintenance.rebuilding"})
