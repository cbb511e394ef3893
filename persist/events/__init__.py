"""The event log: every change of the database in order, to follow it, to audit it or to rebuild a database from it."""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

# imported on first use: rebuild imports Store, which imports this package
if TYPE_CHECKING:
    from persist.events.schemas import Event as Event
    from persist.maintenance import rebuild as rebuild
lazy_names(globals())
