"""The log of events: what happened, in order, for whoever follows, audits or rebuilds."""

from typing import TYPE_CHECKING

from persist.later import offers

if TYPE_CHECKING:
    from persist.events.schemas import Event
    from persist.maintenance.rebuilding import rebuild

__all__ = ["Event", "rebuild"]

# rebuild needs stores, and a store is made of this package
__getattr__ = offers(__name__, {"Event": "persist.events.schemas", "rebuild": "persist.maintenance.rebuilding"})
