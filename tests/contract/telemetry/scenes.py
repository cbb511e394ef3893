"""Short ways to say what the tests of telemetry say all the time, each verb in a transaction of its own."""

from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def t(seconds: float) -> datetime:
    """The instant so many seconds after 1970."""
    return EPOCH + timedelta(seconds=seconds)


def do(store: Any, aggregate: str, verb: str, *values: Any, **named: Any) -> Any:
    """`store.telemetry.<aggregate>.<verb>(…)`."""
    return getattr(getattr(store.telemetry, aggregate), verb)(*values, **named)


def log(store: Any, me: dict[str, str], *entries: tuple[float, str]) -> list[Any]:
    """Record statuses at their seconds; what each gave."""
    return [do(store, "status", "record", status, at=t(second), **me) for second, status in entries]


def task(id: str, **more: Any) -> dict[str, Any]:
    """A discovered task."""
    return {"id": id, "source_id": "github", "kind": "issue", "title": f"Do {id}", **more}
