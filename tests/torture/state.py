"""What a database holds, as comparable text; and writes under keys that can be tried again."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Integer, Table, select

from persist import Store
from persist.chat.models import deltas, parts, turns
from persist.conversations.models import members, progressions
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.prepared import Statement
from persist.errors import NotFound, PersistError, Unavailable
from persist.framework_state.checkpoints.schemas import Blob, Write
from persist.maintenance.transactions import TABLES
from persist.programs.models import runs
from persist.store.transaction import Transaction
from tests.torture.scenario import Tally

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


# ----------------------------------------------------------------
# Writes of every domain under a key, each in one transaction of two statements or more, and how to see what became of them.


@dataclass(frozen=True, slots=True)
class Deed:
    """`do` under a key of its own; `seen` counts what it wrote, piece by piece: all 0 or all 1."""

    name: str
    do: Callable[[Store, str], object]
    seen: Callable[[Transaction, str], Sequence[int]]


def attempt(deed: Deed, store: Store, key: str, tally: Tally) -> PersistError | None:
    """Do it -> how it failed."""
    try:
        deed.do(store, key)
    except PersistError as error:
        tally.errors[f"Unavailable ({error.outcome})" if isinstance(error, Unavailable) else type(error).__name__] += 1
        return error
    tally.acknowledged += 1
    return None


def judge(deed: Deed, store: Store, key: str, error: PersistError | None, tally: Tally) -> None:
    """Whether what became of it is what its caller was told."""
    with store.read() as tx:
        seen = set(deed.seen(tx, key))
    if len(seen) > 1:
        tally.problems.append(f"{deed.name} {key}: half of it is there")
    elif error is None:
        tally.lost += seen != {1}
    elif not isinstance(error, Unavailable):
        tally.problems.append(f"{deed.name} {key}: {error!r}")
    elif error.outcome == "rolled back" and seen != {0}:
        tally.problems.append(f"{deed.name} {key}: told that it was rolled back, and it is there")


def _begun(write: Callable[[Transaction, str], object]) -> Callable[[Store, str], object]:
    def do(store: Store, key: str) -> None:
        with store.begin() as tx:
            write(tx, key)

    return do


def _transacted(write: Callable[[Transaction, str], object]) -> Callable[[Store, str], object]:
    return lambda store, key: store.transact(lambda tx: write(tx, key))


def _workflow(tx: Transaction, key: str) -> None:
    tx.workflows.runs.create("torture", trigger_id=key, current_phase="one", id=key, status="queued")
    lease = tx.workflows.runs.claim(key, lease=timedelta(minutes=1), workflow_name="torture")
    assert lease is not None
    tx.workflows.runs.append_phase(lease.run_id, "two", {"key": key}, lease=lease)
    tx.workflows.runs.finish(lease.run_id, "succeeded", lease=lease)


def _workflow_seen(tx: Transaction, key: str) -> Sequence[int]:
    try:
        run = tx.workflows.runs.get(key)
    except NotFound:
        return (0, 0)
    return (1, int(run.status == "succeeded" and len(run.phase_history) > 0))


def _messaging(tx: Transaction, key: str) -> None:
    session = tx.messaging.sessions.get_or_create(platform="irc", channel_id=key, user_id="u")
    tx.messaging.messages.add(session.id, role="user", content=key)


def _messaging_seen(tx: Transaction, key: str) -> Sequence[int]:
    found = tx.messaging.sessions.find_active(platform="irc", channel_id=key, thread_id=None)
    return (0, 0) if found is None else (1, len(tx.messaging.messages.history(found.id)))


def _conversation(tx: Transaction, key: str) -> None:
    tx.conversations.sessions.create(id=key, name=key, status="running")
    tx.conversations.exchange.send(sender="torture", recipient=key, content=key)


def _conversation_seen(tx: Transaction, key: str) -> Sequence[int]:
    known = [session for session in tx.conversations.sessions.list(limit=1000).items if session.id == key]
    return (len(known), len(tx.conversations.exchange.inbox(key).items))


def _chat(tx: Transaction, key: str) -> None:
    session = tx.chat.sessions.create(agent=key, model={"provider_id": "p", "model_id": "m"})
    tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": key}])


def _chat_seen(tx: Transaction, key: str) -> Sequence[int]:
    found = tx.chat.sessions.list(agent=key).items
    return (len(found), sum(len(tx.chat.messages.list(session.id)) for session in found))


def _checkpoint(tx: Transaction, key: str) -> None:
    tx.checkpoints.states.put(key, "1", head=Blob("h", b"x"), versions={"c": "1"}, values={"c": ("1", Blob("v", b"y"))})
    tx.checkpoints.states.put_writes(key, "1", [Write(0, "c", Blob("v", b"z"))], task_id="t")


def _checkpoint_seen(tx: Transaction, key: str) -> Sequence[int]:
    found = tx.checkpoints.states.find(key)
    return (0, 0) if found is None else (len(found.values), len(found.writes))


def _telemetry(tx: Transaction, key: str) -> None:
    tx.telemetry.status.record("busy", instance_id=key)
    tx.telemetry.tags.record("repo", "value", instance_id=key)


def _telemetry_seen(tx: Transaction, key: str) -> Sequence[int]:
    return (len(tx.telemetry.status.history(instance_id=key)), len(tx.telemetry.tags.list(instance_id=key)))


def _program(tx: Transaction, key: str) -> None:
    tx.programs.runs.create(id=key, program_source="do it")
    tx.programs.bindings.bind(key, "name", key)


def _program_seen(tx: Transaction, key: str) -> Sequence[int]:
    try:
        tx.programs.runs.get(key)
    except NotFound:
        return (0, 0)
    return (1, len(tx.programs.bindings.list(key)))


DEEDS = [
    Deed("workflow", _transacted(_workflow), _workflow_seen),
    Deed("messaging", _begun(_messaging), _messaging_seen),
    Deed("conversation", _transacted(_conversation), _conversation_seen),
    Deed("chat", _begun(_chat), _chat_seen),
    Deed("checkpoint", _transacted(_checkpoint), _checkpoint_seen),
    Deed("program", _transacted(_program), _program_seen),
    Deed("telemetry", _transacted(_telemetry), _telemetry_seen),
]
