"""Something of every table of conversations, made through the public API, and what a reader sees of it."""

from datetime import timedelta
from typing import Any

from persist import Store
from persist.store.transaction import Transaction
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
