"""Events of a caller's own, in a log that was on for a while."""

from typing import Any

from persist import Store
from persist.testing import FrozenClock


def fill_events(store: Store, clock: FrozenClock) -> None:
    """First of all: whatever else were there would be in snapshots."""
    store.switch_events(True)
    for verdict in ("asked", "granted \ud83d\x00"):
        with store.begin() as tx:
            tx.events.append("audit", "access.noted", {"verdict": verdict})
        clock.advance(seconds=1)
    store.switch_events(False)


def events_seen(tx: Any) -> dict[str, Any]:
    """The stream."""
    return {"events": {str(event.position): event.model_dump(mode="json") for event in tx.events.read("audit")}}
