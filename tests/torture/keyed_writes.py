"""Writes of every domain under a key, each in one transaction of two statements or more, and how to see what became of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from persist import Store
from persist.errors import NotFound, PersistError, Unavailable
from persist.framework_state.checkpoints.schemas import Blob, Write
from persist.store.transaction import Transaction
from tests.torture.scenario import Tally


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
