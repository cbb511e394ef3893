"""What the tests of the log share: short ways to read it, and the rules that hold for all of it."""

from collections import defaultdict
from typing import Any

from persist.events.schemas import Event


def events(store: Any, stream: str = "*", **options: Any) -> list[Event]:
    """The events of a stream."""
    found: list[Event] = store.events.read(stream, **options)
    return found


def kinds(store: Any, stream: str = "*", **options: Any) -> list[str]:
    """Their types."""
    return [event.type for event in events(store, stream, **options)]


def rows_of(found: list[Event], table: str) -> list[dict[str, Any]]:
    """What the events say of one table's rows, in order."""
    changes = [change for event in found if "changes" in event.data for change in event.data["changes"]]
    return [{**change.get("key", {}), **change.get("row", {})} for change in changes if change["table"] == table]


def trim(store: Any, *args: Any, **options: Any) -> int:
    with store.begin() as tx:
        count: int = tx.events.trim(*args, **options)
    return count


def assert_gapless(found: list[Event], *, first: int = 1) -> None:
    """Every position once and in order, from `first` on, and in every stream every number once, in the same order.

    Positions may have gaps: those of what was rolled back.
    """
    positions = [event.position for event in found]
    assert positions == sorted(set(positions))
    assert not found or positions[0] >= first
    streams: dict[str, list[int]] = defaultdict(list)
    for event in found:
        streams[event.stream_id].append(event.seq)
    for numbers in streams.values():
        assert numbers == list(range(1, len(numbers) + 1))
