"""Something of every table of conversations, usage, blobs and the log, made through the public API, and what a reader sees."""

from base64 import b64encode
from datetime import timedelta
from hashlib import sha256
from typing import Any

from persist import Store
from persist.store.transaction import Transaction, work_of
from persist.testing import FrozenClock

HARD = "Naïve\x00 text \ud83d stays what it was."
_SYSTEM = "lionagi.protocols.messages.system.System"
_OWN = "example.messages.Remark"


def fill_conversations(store: Store, clock: FrozenClock) -> None:
    """Two sessions, one of them over; branches, a fork of a fork, messages of known and new classes, exchange, embeddings."""
    with store.begin() as tx:
        sessions, branches, messages = tx.conversations.sessions, tx.conversations.branches, tx.conversations.messages
        sessions.create(
            id="conv-1",
            name=HARD,
            user="maria",
            node_metadata={"note": HARD, "numbers": [0.5, 1e300, -(2**63), 2**64 - 1]},
            status="running",
            started_at=clock(),
            agent_name="planner",
            playbook_name="review",
            invocation_kind="flow",
            show_topic="tests",
            show_play_name="first",
            artifacts_path="runs/1",
        )
        branches.create("conv-1", id="main", name="main", user="maria", node_metadata={"model": "large"})
        for number in range(70):
            role, path = ("system", _SYSTEM) if number == 0 else ("user", _OWN)
            messages.record(
                "main",
                {
                    "id": f"m{number}",
                    "created_at": 1_700_000_000.123456 + number,
                    "role": role,
                    "content": {"text": HARD, "number": number} if number % 2 else number,
                    "node_metadata": {"lion_class": path},
                    "embedding": [0.25, -1.5, float(number)],
                },
            )
        clock.advance(seconds=2)
        fork = branches.fork("main", at=12, name="aside")
        messages.record(fork.id, {"id": "aside", "created_at": 1_700_000_100, "role": "assistant", "content": [], "channel": "c"})
        again = branches.fork(fork.id)
        branches.update_metadata(again.id, {"model": None, "effort": "high"})
        branches.finalize(fork.id, "completed")
        clock.advance(delta=timedelta(microseconds=1500))
        sessions.create(id="conv-2", source_kind="imported_fs", status="failed", created_at=clock(), progression_id=None)
        tx.conversations.progressions.create("loose", ids=["m1", "gone", "m1"])
        asked = tx.conversations.exchange.send(sender="main", recipient=again.id, content=HARD, channel="work")
        branches.set_system_message(again.id, asked.id)
        tx.conversations.exchange.send(sender="main", recipient=None, content={"to": "all"}, session_id="conv-2")
        tx.conversations.exchange.mark_read(again.id, asked.id)
        sessions.set_status("conv-1", "completed", reason=HARD, actor="maria")


def conversations_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    conversations = tx.conversations
    found = conversations.sessions.list(limit=100).items
    branches = [branch for session in found for branch in conversations.branches.list(session.id)]
    return {
        "conversations": {session.id: session.model_dump(mode="json") for session in found},
        "branches": {branch.id: branch.model_dump(mode="json") for branch in branches},
        "histories": {
            branch.id: {"messages": [one.model_dump(mode="json") for one in conversations.branches.history(branch.id)]}
            for branch in branches
        },
        "pools": {session.id: {"ids": conversations.progressions.get(session.progression_id)} for session in found},
        "transitions": {
            session.id: {"all": [one.model_dump(mode="json") for one in conversations.sessions.transitions(session.id)]}
            for session in found
        },
        "inboxes": {
            branch.id: {"unread": [one.id for one in conversations.exchange.inbox(branch.id).items]} for branch in branches
        },
    }


# Usage of everything, for a database with something of everything in it.


_HARD = "quotes ' and \" and \ud83d and \x00"


def fill_usage(store: Store, clock: FrozenClock) -> None:
    """Calls of an instance and a run, their sums in two hours, and budgets that are free, warned of and used up."""
    with store.begin() as tx:
        budgets, calls = tx.usage.budgets, tx.usage.calls
        budgets.set("owner:maria", "month", 5_000_000, 1_000_000, timezone="Europe/Berlin")
        budgets.set("agent:build", "total", max_tokens=1_000)
        budgets.set("workflow:import", "hour", 900)
        told: dict[str, Any] = {
            "provider": "example",
            "operation": "chat",
            "trace_id": "0af7",
            "span_id": "b7ad",
            "task_id": "t1",
        }
        tokens: dict[str, Any] = {"token_input": 900, "token_output": 50, "token_cache_write": 10, "token_reasoning": 20}
        calls.record(model="large", instance_id="box-1", owner="maria", agent="build", workspace="project", **told, **tokens)
        calls.record(model="small", run_id="gone", workflow="import", cost_usd_micros=1_500, duration_ms=12, key="once")
        calls.record(model="small", run_id="gone", at=clock() - timedelta(hours=2), error=_HARD)


def usage_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and key."""
    usage = tx.usage
    found = [*usage.calls.list(instance_id="box-1").items, *usage.calls.list(run_id="gone").items]
    return {
        "usage_calls": {f"{call.scope} {call.seq}": call.model_dump(mode="json") for call in found},
        "usage_hours": {
            f"{one.starts_at} {one.group}": one.model_dump(mode="json") for one in usage.by_hour(group="model").items
        },
        "usage_models": {str(one.group): one.model_dump(mode="json") for one in usage.by_model().items},
        "budgets": {f"{one.key} {one.period}": one.model_dump(mode="json") for one in usage.budgets.list()},
    }


# Something of every table of blobs, made through the public API, and what a reader sees of it.


SMALL, LARGE = b"\x00\xff small", bytes(17_000)
FILE = bytes(range(256))


def fill_blobs(store: Store) -> None:
    """A blob whose body is in its row, and one that has pieces; nothing names them."""
    store.blobs.put(SMALL, "text/plain")
    store.blobs.put([LARGE[:16_000], LARGE[16_000:]], "application/pdf")


def with_a_file(tx: Transaction, session_id: str) -> None:
    """A message with a file that is a blob, for once although it is small: kept databases are not to grow."""
    runtime = work_of(tx).runtime
    usual, runtime.settings = runtime.settings, runtime.settings.model_copy(update={"inline_file_bytes": 200})
    url = f"data:image/png;base64,{b64encode(FILE).decode()}"
    part = {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": url}
    tx.chat.messages.append(session_id, role="user", parts=[{"type": "text", "text": "Look:"}, part])
    runtime.settings = usual


def blobs_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    found = tx.blobs.list().items
    return {
        "blobs": {one.sha256: one.model_dump(mode="json") for one in found},
        "bodies": {one.sha256: {"sha256": sha256(tx.blobs.read(one.sha256)).hexdigest()} for one in found},
    }


# Events of a caller's own, in a log that was on for a while, and consumers of them.


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
