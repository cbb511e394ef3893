"""What a database holds, as text that is the same wherever and however often the same was done."""

import re
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Integer, Table, select

from persist import Store
from persist.chat.models import deltas, parts, turns
from persist.conversations.models import members, progressions
from persist.db.schema.base import table_of
from persist.db.schema.column_types import Meta
from persist.db.statements.prepared import Statement
from persist.maintenance.transactions import TABLES
from persist.programs.models import runs
from persist.store.transaction import Transaction

_CHANCE = re.compile(r"\b([a-z]{3}_[0-9a-f]{14})[0-9A-Za-z]{12}\b")
"""The end of an id that was minted; the beginning is the instant, which is the test's."""
_LEFT_OUT = {
    table_of(Meta): None,
    deltas: None,
    members: None,
    parts: {"data_json"},
    progressions: {"collection", "folded"},
    runs: {"state_mode"},
    turns: {"owner"},
}
"""How something is kept, not what is kept: read through the API instead. None: the whole table."""
_KEPT = [table for table in TABLES if _LEFT_OUT.get(table, ...) is not None and not table.name.startswith("event_")]
_ROWS = {table: Statement(select(table).order_by(*table.primary_key)) for table in _KEPT}

State = tuple[str, ...]


def state(store: Store) -> State:
    """Every row of every domain, a line each, sorted; what is published in another way than it is kept, as it is read."""
    with store.read() as tx:
        return tuple(sorted(_CHANCE.sub(r"\1", line) for line in (*_rows(tx), *_read(tx))))


def differing(found: State, expected: State) -> str:
    """The lines that only one of them has, cut short."""
    lines = [f"- {line[:300]}" for line in expected if line not in found] + [
        f"+ {line[:300]}" for line in found if line not in expected
    ]
    return "\n".join(lines[:12])


def _rows(tx: Transaction) -> Iterator[str]:
    work = tx._work
    numbers: dict[tuple[str, Any], int] = {}
    """Integer keys by their rank: a transaction that was killed leaves a gap on Postgres."""
    for table in _KEPT:
        left_out = _LEFT_OUT.get(table) or ()
        key = _numbered(table)
        for rank, row in enumerate(work.rows(_ROWS[table]), start=1):
            fields: dict[str, Any] = {}
            for column, value in zip(table.columns, row, strict=True):
                if column.name in left_out:
                    continue
                if column.name == key:
                    numbers[table.name, value] = rank
                    fields[column.name] = rank
                    continue
                parent = next((link.column.table.name for link in column.foreign_keys), table.name)
                fields[column.name] = numbers.get((parent, value), value) if column.foreign_keys else _plain(value)
            yield f"{table.name} {fields!r}"


def _numbered(table: Table) -> str | None:
    keys = list(table.primary_key)
    return keys[0].name if len(keys) == 1 and isinstance(keys[0].type, Integer) else None


def _plain(value: Any) -> Any:
    """Objects with sorted keys: one of the databases keeps no order."""
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _read(tx: Transaction) -> Iterator[str]:
    for item in tx.chat.sessions.list(include_archived=True, limit=100).items:
        for message in tx.chat.messages.list(item.id, include_hidden=True):
            yield f"{item.id} {_plain(dict(message))!r}"
    work = tx._work
    for (id,) in work.rows(_PROGRESSIONS):
        yield f"progression {id} {tx.conversations.progressions.get(id)!r}"


_PROGRESSIONS = Statement(select(progressions.c.id).order_by(progressions.c.id))
