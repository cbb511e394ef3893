"""One store on SQLite and one on Postgres that live through the same things, and what is compared of them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from datetime import datetime
from io import BytesIO
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Table, delete, select

from persist import Store
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.ids import IdMinter
from persist.db.values.json import decode
from persist.errors import InvalidValue
from persist.events.models import event_consumers, event_heads, event_log
from persist.events.schemas import ALL
from persist.testing import FrozenClock


class Undo(Exception):  # noqa: N818  # an end, and no error
    """Leaves a transaction so that nothing of it stays."""


def alike(store: Any) -> None:
    """From now on this store of either face mints the ids that every other one mints that lives through the same things."""
    runtime = getattr(store, "_target", store)
    runtime = getattr(runtime, "runtime", None) or runtime._runtime
    runtime.ids = IdMinter(runtime.clock, entropy=bytes)


@contextmanager
def twins(*urls: str) -> Iterator[tuple[FrozenClock, list[Store]]]:
    """A store on each database, all under one clock and with the same ids."""
    clock = FrozenClock()
    stores = [Store.open(url, clock=clock) for url in urls]
    try:
        for store in stores:
            alike(store)
        yield clock, stores
    finally:
        for store in stores:
            store.close()


_WITH_POSITIONS = {"Event", "EventBatch", "Consumer", event_log.name, event_heads.name, event_consumers.name}
_POSITIONS = {"position", "lease_position", "behind", "settled"}


def plain(value: Any) -> Any:
    """Comparable by ==: types told apart all the way down, whatever order the keys are in; no number that a database counts."""
    if isinstance(value, BaseModel):
        kind, fields = type(value).__name__, [*value.__dict__.items()]
        return kind, {name: plain(item) for name, item in fields if not (_counted(name, item) or _is_position(kind, name))}
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, plain(asdict(value))
    if isinstance(value, Mapping):
        return {
            repr(plain(key)): _changes(item) if key == "changes" else plain(item)
            for key, item in value.items()
            if not _counted(key, item)
        }
    if isinstance(value, list | tuple):
        return type(value).__name__, [plain(item) for item in value]
    if isinstance(value, bytes) and value.startswith(b"["):  # JSON, spliced from stored pieces
        with suppress(InvalidValue):
            return "json", plain(decode(value))
    if isinstance(value, BytesIO):
        return "stream", value.getvalue()
    if isinstance(value, datetime):
        return "datetime", value.isoformat()
    if hasattr(value, "items") and hasattr(value, "cursor"):
        return "Page", plain(value.items), value.cursor
    return type(value).__name__, repr(value)


def _changes(value: Any) -> Any:
    """Of an event. In which order one statement returns the rows that it deleted is the database's own."""
    found = plain(value)
    return (found[0], sorted(found[1], key=repr)) if isinstance(value, list) else found


def _counted(name: object, value: object) -> bool:
    """Numbers of rows go on after a rollback on one of them; and what a run is kept in differs, as it should."""
    return (name == "id" and type(value) is int) or name == "state_mode"


def rows(work: UnitOfWork, tables: list[Table]) -> dict[str, list[Any]]:
    """What a transaction sees in the tables, decoded, in an order of its own."""
    found = {}
    for table in tables:
        listed = [{str(name): value for name, value in row.items()} for row in work.select(select(table)).mappings()]
        found[table.name] = sorted(
            (
                {
                    name: plain(value)
                    for name, value in row.items()
                    if not (_counted(name, value) or _is_position(table.name, name))
                }
                for row in listed
                if row.get("stream_id") != ALL
            ),
            key=repr,
        )
    return found


def _is_position(of: str, name: str) -> bool:
    """Whether it is a position of the log, whose numbers go on after a rollback on one of the databases."""
    return of in _WITH_POSITIONS and name in _POSITIONS


def clear(store: Store, tables: Sequence[Table]) -> None:
    """Delete every row of the tables, but for rows that are always there."""
    with store.begin() as tx:
        for table in reversed(tables):
            if not table.info.get("seed"):
                tx._work.change(delete(table))
