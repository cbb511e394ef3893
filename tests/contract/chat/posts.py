"""What browsers post in the tests of `messages.sync`, and a conversation to post to."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from persist.errors import Conflict, InvalidValue
from tests.contract.chat.scenes import Message, approval, call, record, say, shown, step, text, turn


def posted(*messages: Message) -> list[Message]:
    """The messages after a browser had them: JSON, written and read."""
    found: list[Message] = orjson.loads(orjson.dumps(messages))
    return found


def user(id: str, words: str, **fields: Any) -> Message:
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": words}], **fields}


def assistant(id: str, *parts: Message) -> Message:
    return {"id": id, "role": "assistant", "parts": [*parts]}


def sync(store: Any, session: str, messages: Any, **options: Any) -> Any:
    return store.chat.messages.sync(session, messages, **options)


def talk(store: Any, session: str) -> list[Message]:
    """Two questions and their answers: u1 a1 u2 a2."""
    for number in ("1", "2"):
        say(store, session, f"question {number}", id=f"u{number}")
        record(store, session, turn(*text(f"answer {number}"), id=f"a{number}"))
    return shown(store, session)


def asked(store: Any, session: str, **fields: Any) -> list[Message]:
    """A question and an answer that waits for an approval, and for the result of a client's tool."""
    say(store, session, "delete it", id="u1")
    gate = {**approval("ap", "c1"), **fields}
    record(store, session, turn(call("delete", "c1", {"path": "x"}), gate, call("locate", "c2", {"precise": True}), id="a1"))
    return shown(store, session)


def approved(message: Message, *, at: int = 1, approved: bool = True, **reason: Any) -> Message:
    """The message as `addToolApprovalResponse` leaves it."""
    part = message["parts"][at]
    answer = {**part["approval"], "approved": approved, **reason}
    return replaced(message, at, {**part, "state": "approval-responded", "approval": answer})


def with_result(message: Message, *, at: int = 2, **result: Any) -> Message:
    """The message as `addToolOutput` leaves it."""
    state = "output-error" if "errorText" in result else "output-available"
    return replaced(message, at, {**message["parts"][at], "state": state, **result})


def replaced(message: Message, at: int, part: Message) -> Message:
    return {**message, "parts": [*message["parts"][:at], part, *message["parts"][at + 1 :]]}


def half(message: Message) -> Message:
    """The message as a browser has it that lost the rest of its text."""
    *parts, last = message["parts"]
    return {**message, "parts": [*parts, {**last, "text": last["text"][:3], "state": "streaming"}]}


def waits(chunks: list[Message], id: str) -> list[Message]:
    """A stream that does not end."""
    return [{"type": "start", "messageId": id}, *step(*chunks)[:-1]]


NOTHING = {
    "changed": False,
    "added": [],
    "edited": [],
    "hidden": [],
    "approvals": [],
    "tool_outputs": [],
    "continues": None,
    "answered_by": None,
    "running": False,
}


def changed(**fields: Any) -> dict[str, Any]:
    return {**NOTHING, "changed": True, **fields}


def unchanged(**fields: Any) -> dict[str, Any]:
    return {**NOTHING, **fields}


Change = Callable[[list[Message]], list[Any]]


def refused(store: Any, session: str, messages: Any, **options: Any) -> str:
    """The path that is refused. Nothing is written, and the transaction goes on."""
    before = shown(store, session, include_hidden=True)
    with store.begin() as tx:
        with pytest.raises(InvalidValue) as caught:
            tx.chat.messages.sync(session, messages, **options)
        assert tx.chat.messages.list(session, include_hidden=True) == before
    assert str(caught.value).endswith(".")
    return caught.value.path


def conflict(store: Any, session: str, messages: Any, **options: Any) -> str:
    before = shown(store, session, include_hidden=True)
    with store.begin() as tx:
        with pytest.raises(Conflict) as caught:
            tx.chat.messages.sync(session, messages, **options)
        assert tx.chat.messages.list(session, include_hidden=True) == before
    return str(caught.value)
