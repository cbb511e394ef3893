"""Eight processes at once on one database, in every domain; now and then one is killed and another takes its place."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any

from sqlalchemy import select

from persist import AsyncStore, Store
from persist.chat.models import messages
from persist.conversations.models import branches, exchange_items, members
from persist.db.statements.prepared import Statement
from persist.errors import Conflict, PersistError, StoreBusy, Unavailable
from persist.framework_state.checkpoints.models import memories, states
from persist.framework_state.checkpoints.schemas import Blob
from persist.maintenance import doctor, maintain
from persist.messaging.models import messages as spoken
from persist.programs.models import bindings, executions
from persist.store.transaction import Transaction
from persist.telemetry.models import status_log, tasks
from persist.workflows.models import runs
from tests.torture.killed_processes import Victim, ready
from tests.torture.scenario import Ground, Scenario, Tally, intact

_PROCESSES = 8
_SECONDS = 4.0
_LEAST = 10
"""Deeds of one process, however slow the machine is."""
_AT = datetime(2026, 1, 2, tzinfo=UTC)
_I, _W, _RUN = "box", "work", "20260102-000000-abcdef"
_LEASE = timedelta(seconds=30)

Deed = Callable[[Store, str, str], "list[tuple[str, str]]"]
"""Does something in the store, which is that of the URL, under a name that no other deed has -> (kind, key) of what is stored."""


def _given(kind: str, verb: Callable[[Transaction, str], str | None]) -> Deed:
    """One transaction, and what it was given; None when there was nothing for it."""

    def deed(store: Store, name: str, url: str) -> list[tuple[str, str]]:
        key = store.transact(lambda tx: verb(tx, name))
        return [] if key is None else [(kind, key)]

    return deed


def _named(kind: str, verb: Callable[[Transaction, str], object]) -> Deed:
    """One transaction that stores something under the deed's own name."""

    def deed(store: Store, name: str, url: str) -> list[tuple[str, str]]:
        store.transact(lambda tx: verb(tx, name))
        return [(kind, name)]

    return deed


def _record(store: Store, name: str, url: str) -> list[tuple[str, str]]:
    session = store.transact(lambda tx: tx.chat.sessions.create(id=f"s{name}", agent="build", model={})).id
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": name}, {"type": "text-start", "id": "t"}])
        for _ in range(10):
            recorder.feed({"type": "text-delta", "id": "t", "delta": name})
    return [("answer", name)]


def _stream(store: Store, name: str, url: str) -> list[tuple[str, str]]:
    """Two answers of one event loop, whose chunks share commits."""
    sessions = [f"s{name}-a", f"s{name}-b"]
    store.transact(lambda tx: [tx.chat.sessions.create(id=session, agent="build", model={}) for session in sessions])

    async def one(shared: AsyncStore, session: str) -> None:
        async with shared.record(session) as recorder:
            await recorder.feed_many([{"type": "start", "messageId": session[1:]}, {"type": "text-start", "id": "t"}])
            for _ in range(10):
                await recorder.feed({"type": "text-delta", "id": "t", "delta": session[1:]})

    async def both() -> None:
        async with AsyncStore.open(url) as shared:
            await asyncio.gather(*(one(shared, session) for session in sessions))

    asyncio.run(both())
    return [("answer", session[1:]) for session in sessions]


def _work(store: Store, name: str, url: str) -> list[tuple[str, str]]:
    lease = store.transact(lambda tx: tx.workflows.runs.claim(name, lease=_LEASE))
    if lease is None:
        return []
    store.transact(lambda tx: tx.workflows.runs.append_phase(lease.run_id, name, lease=lease))
    store.transact(lambda tx: tx.workflows.runs.finish(lease.run_id, "succeeded", lease=lease))
    return [("finished run", lease.run_id)]


def _task(tx: Transaction, name: str) -> str | None:
    task = tx.telemetry.tasks.claim(name, max_parallel=10**6, workspace_id=_W)
    return task.id if task is not None and tx.telemetry.tasks.complete(task.id, workspace_id=_W) else None


def _claim(tx: Transaction, name: str) -> str | None:
    claimed = tx.chat.messages.claim_queued("shared")
    if claimed is None:
        return None
    # its answer begins with it, or a process that finds this one dead is given it again
    tx.chat.messages.append("shared", role="assistant", parts=[{"type": "text", "text": "answered"}])
    return claimed.id


def _messaging(tx: Transaction, name: str) -> None:
    session = tx.messaging.sessions.get_or_create(platform="p", channel_id="c", user_id="u").id
    tx.messaging.messages.add(session, role="user", content=name)
    tx.messaging.sessions.touch(session)


def _upkeep(store: Store, name: str, url: str) -> list[tuple[str, str]]:
    report = maintain(store)
    if report.failed:
        raise AssertionError(f"{report}")
    if errors := [finding for finding in doctor(store) if finding.severity == "error"]:
        raise AssertionError(f"{errors}")
    return []


def _text(name: str) -> list[Any]:
    return [{"type": "text", "text": name}]


def _put(tx: Transaction, name: str) -> None:
    tx.checkpoints.states.put(
        "thread", name, head=Blob("h", b""), versions={"a": name}, values={"a": (name, [Blob("t", b"x" * 100)])}
    )


def _said(name: str) -> dict[str, Any]:
    return {"id": name, "created_at": 1.0, "role": "user", "content": name}


def _found(name: str) -> dict[str, Any]:
    return {"id": name, "source_id": "s", "kind": "k", "title": name}


DEEDS: dict[str, Deed] = {
    "message": _named("message", lambda tx, name: tx.chat.messages.append("shared", role="user", parts=_text(name), id=name)),
    "queue": _named("queued", lambda tx, name: tx.chat.messages.enqueue("shared", parts=_text(name), id=name)),
    "claim": _given("claimed", _claim),
    "record": _record,
    "stream": _stream,
    "run": _named(
        "run", lambda tx, name: tx.workflows.runs.create("w", trigger_id=name, current_phase="a", status="queued", id=name)
    ),
    "work": _work,
    "conversation": _named("conversation message", lambda tx, name: tx.conversations.messages.record("branch", _said(name))),
    "branch": _given("branch", lambda tx, name: tx.conversations.branches.fork("branch").id),
    "sent": _given("sent", lambda tx, name: tx.conversations.exchange.send(sender=name, recipient="one", content=name).id),
    "messaging": _named("messaging", _messaging),
    "usage": _named("usage", lambda tx, name: tx.telemetry.usage.sample(at=_AT, token_input=1, instance_id=_I)),
    "status": _named("status", lambda tx, name: tx.telemetry.status.record(name, instance_id=_I)),
    "poll": _named("task", lambda tx, name: tx.telemetry.tasks.poll([_found(name)], workspace_id=_W)),
    "task": _given("done task", _task),
    "checkpoint": _named("checkpoint", _put),
    "memory": _named("memory", lambda tx, name: tx.checkpoints.memories.put(("a",), name, {"v": 1})),
    "binding": _given(
        "binding", lambda tx, name: tx.programs.bindings.bind(_RUN, tx.programs.bindings.next_anonymous(_RUN), name).name
    ),
    "statement": _given(
        "statement", lambda tx, name: str(tx.programs.executions.begin(_RUN, statement_index=1, statement_text=name).id)
    ),
    "upkeep": _upkeep,
}
_ONCE = {"claimed", "finished run", "done task", "binding", "statement"}
"""What nobody may be given twice."""


def prepare(url: str, *, events: bool) -> None:
    """What everybody shares."""
    with Store.open(url, events=events) as store, store.begin() as tx:
        tx.chat.sessions.create(id="shared", agent="build", model={})
        tx.conversations.sessions.create(id="talk")
        tx.conversations.branches.create("talk", id="branch")
        tx.programs.runs.create(id=_RUN)


def live(acknowledge: Connection, url: str, name: str, ends: float, seed: int) -> None:
    """Do one thing after the other on two stores of one process, until then at least."""
    chance = random.Random(seed)
    number = 0
    with Store.open(url) as one, Store.open(url) as other:
        while number < _LEAST or time.monotonic() < ends:
            kind = chance.choice(list(DEEDS)) if chance.random() < 0.98 else "upkeep"
            if kind == "upkeep" and chance.random() < 0.9:
                continue  # takes long
            number += 1
            try:
                for stored in DEEDS[kind](chance.choice([one, other]), f"{name}-{number}", url):
                    acknowledge.send(stored)
            except PersistError as error:
                acknowledge.send((None, kind, type(error).__name__, f"{error} {error.__cause__}"[:300]))
            except Exception as error:
                acknowledge.send((None, kind, type(error).__name__, f"{error!r}"[:600]))


def crowd(ground: Ground, tally: Tally) -> None:
    """No acknowledged write is lost, nothing is given twice, nobody hangs, and what fails fails with a promised error."""
    ready()
    for number in ground.rounds():
        url = ground.new_url()
        prepare(url, events=ground.random.random() < 0.3)
        ends = time.monotonic() + min(_SECONDS, max(ground.ends - time.monotonic(), 1.0))
        started = (Victim(live, url, f"p{number}-{n}", ends, ground.random.randrange(10**6)) for n in range(10**6))
        victims = [next(started) for _ in range(_PROCESSES)]
        told: list[Any] = []
        while time.monotonic() < ends - 0.5:
            for victim in victims:
                victim.listen(0.05)
            unlucky = ground.random.randrange(_PROCESSES)
            told += victims[unlucky].kill()
            victims[unlucky] = next(started)
        for victim in victims:
            told += victim.end(60)
        _judge(url, told, tally)
        intact(url, tally)
        tally.rounds += 1


def _judge(url: str, told: list[Any], tally: Tally) -> None:
    stored = [one for one in told if one[0] is not None]
    tally.acknowledged += len(stored)
    for _, kind, error, text in (one for one in told if one[0] is None):
        tally.errors[error] += 1
        if error not in {found.__name__ for found in (StoreBusy, Conflict, Unavailable)} or "deadlock" in text:
            tally.problems.append(f"{kind}: {error}: {text}")
    counts = Counter(one for one in stored if one[0] in _ONCE)
    tally.problems += [f"{url}: {kind} {key} was given {count} times" for (kind, key), count in counts.items() if count > 1]
    with Store.open(url) as store, store.read() as tx:
        there = _there(tx)
        lost = [(kind, key) for kind, key in stored if kind != "usage" and key not in there[kind]]
        tally.lost += len(lost)
        tally.problems += [f"{url}: {kind} {key} is not there" for kind, key in lost[:10]]
        sampled = sum(kind == "usage" for kind, _ in stored)
        found = tx.telemetry.usage.totals(instance_id=_I).token_input or 0
        if not sampled <= found <= sampled + len(told):
            tally.problems.append(f"{url}: {sampled} samples were acknowledged, and {found} are there")


def _there(tx: Transaction) -> dict[str, set[str]]:
    """The keys that are stored, by kind; answers only where they are whole."""
    there = {kind: {str(key) for (key,) in tx._work.rows(prepared)} for kind, prepared in _KEYS.items()}
    shown = {message["id"] for message in tx.chat.messages.list("shared")}
    queued = {message.id for message in tx.chat.messages.queued("shared")}
    there |= {"message": shown, "claimed": shown, "queued": shown | queued}
    answers = [tx.chat.messages.get(name) for name in there["answer"]]
    there["answer"] = {one["id"] for one in answers if one["parts"][0]["text"] == one["id"] * 10}
    there["done task"] = {task.id for task in tx.telemetry.tasks.list(state="completed", workspace_id=_W)}
    return there


_KEYS = {
    "answer": Statement(select(messages.c.id).where(messages.c.role == "assistant")),
    "run": Statement(select(runs.c.id)),
    "finished run": Statement(select(runs.c.id).where(runs.c.status == "succeeded")),
    "conversation message": Statement(select(members.c.message_id)),
    "branch": Statement(select(branches.c.id)),
    "sent": Statement(select(exchange_items.c.message_id)),
    "messaging": Statement(select(spoken.c.content)),
    "status": Statement(select(status_log.c.new_status)),
    "task": Statement(select(tasks.c.id)),
    "checkpoint": Statement(select(states.c.id)),
    "memory": Statement(select(memories.c.key)),
    "binding": Statement(select(bindings.c.name)),
    "statement": Statement(select(executions.c.id)),
}

SCENARIOS = [Scenario("eight processes, one killed now and then", ("sqlite", "postgres"), crowd, weight=2.0)]
