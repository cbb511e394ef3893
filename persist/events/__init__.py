"""The log of events: what happened, in order, for whoever follows, audits or rebuilds."""

from typing import TYPE_CHECKING, Any

from persist.events.schemas import Event

if TYPE_CHECKING:
    from persist.maintenance.rebuilding import rebuild

__all__ = ["Event", "rebuild"]


def __getattr__(name: str) -> Any:
    # it needs stores, and a store is made of this package: it has to be imported first
    if name == "rebuild":
        from persist.maintenance import rebuilding

        return rebuilding.rebuild
    raise AttributeError(f"module 'persist.events' has no attribute {name!r}")
