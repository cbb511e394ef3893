"""Events of a caller's own, in a log that was on for a while, and consumers of them."""

from typing import Any

from persist import Store
from persist.testing import FrozenClock


def fill_events(store: Store, clock: FrozenClock) -> None:
    """First of all: whatever else were there would be in snapshots."""
    store.switch_events(True)
    for verdict in ("asked", "granted \ud83d\x00"):
        with store.begin(actor="maria") as tx:
            tx.events.append("audit", "access.noted", {"verdict": verdict})
        clock.advance(seconds=1)
    with store.begin() as tx:
        handed_out = tx.events.consumers.next("outbox")
        tx.events.consumers.ack("outbox", handed_out.position, token=handed_out.token)
        tx.events.consumers.create("metrics", at="now", types=["run.completed", "access.noted"])
    store.switch_events(False)


def events_seen(tx: Any) -> dict[str, Any]:
    """The stream, and who reads it."""
    return {
        "events": {str(event.position): event.model_dump(mode="json") for event in tx.events.read("audit")},
        "event_consumers": {consumer.name: consumer.model_dump(mode="json") for consumer in tx.events.consumers.list()},
    }
