"""Short ways to say what the tests of usage say all the time, each verb in a transaction of its own."""

from datetime import UTC, datetime
from typing import Any

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
BOX: dict[str, Any] = {"instance_id": "box"}


def record(store: Any, cost: int | None = None, **told: Any) -> bool:
    """A call of `large` by the instance `box` at noon, or what the options make of it."""
    given = {"model": "large", "at": NOON, "cost_usd_micros": cost, **told}
    if not {"session_id", "run_id"} & given.keys():
        given |= BOX
    recorded: bool = store.usage.calls.record(**given)
    return recorded


def budget(store: Any, key: str, *args: Any, **given: Any) -> Any:
    return store.usage.budgets.set(key, *args, **given)


def used(store: Any, key: str) -> list[tuple[int, int, int]]:
    """(cost, tokens, passed per cents) of each budget of a key, as they stand now."""
    found = store.usage.budgets.standings(key)
    return [(standing.cost_usd_micros, standing.tokens, standing.passed) for standing in found]


def sums(store: Any, verb: str, *args: Any, **given: Any) -> list[Any]:
    found: list[Any] = getattr(store.usage, verb)(*args, **given).items
    return found
