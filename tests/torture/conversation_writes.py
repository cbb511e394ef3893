"""Conversations, chats and messaging: what one verb writes into many tables is there or not there."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from persist.store.transaction import Transaction
from tests.torture.kill_rounds import Script, Step


def conversation() -> Sequence[Step]:
    """Live writes, forks, orders that are replaced, what owners send each other, and removal."""
    return [
        lambda tx: tx.conversations.sessions.create(id="talk", agent_name="planner", status="running"),
        lambda tx: tx.conversations.branches.create("talk", id="main", name="main"),
        lambda tx: tx.conversations.messages.record("main", _message("m0", "system")),
        *[partial(_record, id=f"m{n}") for n in range(1, 5)],
        lambda tx: tx.conversations.branches.fork("main", at=3, name="other"),
        lambda tx: tx.conversations.messages.record(_branch(tx, "other"), _message("o1", "assistant")),
        lambda tx: tx.conversations.messages.put_many(
            [_message(f"p{n}", "user") for n in range(70)], progression_ids=[_order(tx, "main")], session_id="talk"
        ),
        lambda tx: tx.conversations.progressions.append(_order(tx, "main"), "o1"),
        lambda tx: tx.conversations.progressions.replace(_order(tx, "main"), ["m0", "m2", "o1", "p3", "p4"]),
        lambda tx: tx.conversations.exchange.send(sender="main", recipient="outside", content={"n": 1}, session_id="talk"),
        lambda tx: tx.conversations.exchange.send(sender="main", recipient=None, content="stop", channel="plans"),
        lambda tx: tx.conversations.exchange.mark_read("outside", tx.conversations.exchange.inbox("outside").items[0].id),
        lambda tx: tx.conversations.branches.set_system_message(_branch(tx, "other"), "m0"),
        lambda tx: tx.conversations.branches.update_metadata("main", {"a": {"b": 1}}),
        lambda tx: tx.conversations.branches.finalize("main", "completed"),
        lambda tx: tx.conversations.messages.put(_message("m1", "user", text="overwritten")),
        lambda tx: tx.conversations.branches.delete("main"),
        lambda tx: tx.conversations.messages.put(_message("alone", "user")),
        lambda tx: tx.conversations.messages.delete("alone"),
        lambda tx: tx.conversations.sessions.set_status("talk", "failed", reason="enough"),
        lambda tx: tx.conversations.sessions.update("talk", metadata_patch={"k": [1, 2]}),
        lambda tx: tx.conversations.sessions.delete("talk"),
    ]


def chat() -> Sequence[Step]:
    """A transcript by hand: messages, the queue, usage, compaction, forks, rewinds, deletion."""
    return [
        lambda tx: tx.chat.sessions.create(id="chat", agent="build", model={"model_id": "m"}, metadata={"title": "Docs"}),
        *[partial(_append, id=f"q{n}", role="user" if n % 2 == 0 else "assistant") for n in range(6)],
        lambda tx: tx.chat.messages.record_step_usage("q1", 0, input_tokens=100, output_tokens=10, cost_usd=0.5),
        lambda tx: tx.chat.messages.enqueue("chat", parts=[{"type": "text", "text": "later"}], id="queued"),
        lambda tx: tx.chat.messages.claim_queued("chat"),
        lambda tx: tx.chat.messages.compact("chat", summary="Short.", tail_start_id="q4", auto=True, summary_tokens=4),
        lambda tx: tx.chat.sessions.fork("chat", "q3"),
        lambda tx: tx.chat.sessions.rewind("chat", "q2"),
        lambda tx: tx.chat.sessions.unrewind("chat", "q2"),
        lambda tx: tx.chat.sessions.add_permission("chat", {"permission": "bash", "pattern": "git *", "action": "allow"}),
        lambda tx: _append(
            tx, "call", "assistant", {"type": "tool-bash", "toolCallId": "c", "state": "input-available", "input": {}}
        ),
        lambda tx: tx.chat.messages.repair_interrupted("chat"),
        lambda tx: tx.chat.messages.update_metadata("q0", {"seen": True}),
        lambda tx: tx.chat.sessions.archive("chat"),
        lambda tx: tx.chat.sessions.delete("chat"),
    ]


def people() -> Sequence[Step]:
    """Sessions of people, used again, followed by new ones, and cleaned up."""
    steps: list[Step] = []
    for number in range(5):
        steps += [
            partial(_said, user=f"u{number % 2}", content=f"question {number}"),
            partial(_said, user=f"u{number % 2}", content=f"answer {number}"),
        ]
    return [
        *steps,
        lambda tx: tx.messaging.sessions.set_agent_session(_person(tx, "u0"), "chat"),
        lambda tx: tx.messaging.sessions.deactivate(_person(tx, "u0")),
        lambda tx: _said(tx, "u0", "again"),
        lambda tx: tx.messaging.sessions.cleanup_stale(),
    ]


def _message(id: str, role: str, text: str = "") -> dict[str, Any]:
    return {"id": id, "created_at": 1747000000.25, "role": role, "content": {"text": text or f"{id} said {'x' * 40}"}}


def _record(tx: Transaction, id: str) -> None:
    tx.conversations.messages.record("main", _message(id, "user"))


def _branch(tx: Transaction, name: str) -> str:
    return next(branch.id for branch in tx.conversations.branches.list("talk") if branch.name == name)


def _order(tx: Transaction, branch: str) -> str:
    return tx.conversations.branches.get(branch).progression_id


def _append(tx: Transaction, id: str, role: Any, *parts: Any) -> None:
    tx.chat.messages.append("chat", role=role, parts=[{"type": "text", "text": f"{id} {'x' * 50}"}, *parts], id=id)


def _person(tx: Transaction, user: str) -> str:
    return tx.messaging.sessions.get_or_create(platform="slack", channel_id="C", user_id=user).id


def _said(tx: Transaction, user: str, content: str) -> None:
    session = _person(tx, user)
    tx.messaging.messages.add(session, role="user", content=content, platform_message_id=content)
    tx.messaging.sessions.touch(session)


SCRIPTS = [Script("conversation", conversation), Script("chat", chat), Script("people", people)]
