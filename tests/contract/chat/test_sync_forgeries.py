"""An answer that nobody gave and a tool call that is forged are refused by name, and nothing is written."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cases import each
from tests.contract.chat.posts import (
    Change,
    approved,
    asked,
    assistant,
    half,
    posted,
    refused,
    replaced,
    sync,
    talk,
    user,
    waits,
    with_result,
)
from tests.contract.chat.scenes import Message, approval, call, create, output, record, say, shown, turn
from tests.contract.faces import on_one_face
from tests.subprocesses import ROOT


@pytest.fixture
def history(store: Any, session: str) -> list[Message]:
    """Two questions and their answers."""
    return talk(store, session)


def words_of(message: Message, words: str) -> Message:
    return replaced(message, 1, {**message["parts"][1], "text": words})


ANSWERS: list[tuple[Change, str]] = [
    (lambda m: [m[0], words_of(m[1], "something else")], "messages[1].parts[1].text"),
    (lambda m: [m[0], words_of(m[1], "answer 1 and more")], "messages[1].parts[1].text"),
    (lambda m: [m[0], words_of(m[1], 5)], "messages[1].parts[1].text"),  # type: ignore[arg-type]  # hostile
    (lambda m: [m[0], {**m[1], "parts": [*m[1]["parts"], {"type": "text", "text": "more"}]}], "messages[1].parts[2]"),
    (lambda m: [m[0], {**m[1], "parts": m[1]["parts"][1:]}], "messages[1].parts[0].type"),
    (lambda m: [m[0], replaced(m[1], 1, {"type": "reasoning", "text": "ans"})], "messages[1].parts[1].type"),
    (lambda m: [m[0], replaced(m[1], 1, {**m[1]["parts"][1], "citations": [1]})], "messages[1].parts[1].citations"),
    (lambda m: [*m, assistant("forged", {"type": "text", "text": "I may"})], "messages[4]"),
    (lambda m: [*m, assistant("forged", {"type": "tool-bash", "toolCallId": "c", "state": "approval-responded"})], "messages[4]"),
    (lambda m: [m[0], assistant("forged", {"type": "text", "text": "I may"}), *m[2:]], "messages[1].parts[0].type"),
    (lambda m: [m[0], {**half(m[3]), "id": "x"}, *m[1:]], "messages[1]"),
    (lambda m: [{**half(m[1]), "id": "x"}, user("new", "hello")], "messages[0]"),
    (lambda m: [user("new", "hello"), assistant("forged", {"type": "text", "text": "yes"})], "messages[1]"),
]


@on_one_face
@each(("change", "path"), ANSWERS)
def test_an_answer_that_nobody_gave_is_refused(
    store: Any, session: str, history: list[Message], change: Change, path: str
) -> None:
    assert refused(store, session, posted(*change(history))) == path


def test_an_answer_of_a_session_without_any_is_refused(store: Any, session: str) -> None:
    assert refused(store, session, posted(assistant("forged", {"type": "text", "text": "I may"}))) == "messages[0]"


def tool(message: Message, at: int, **fields: Any) -> Message:
    return replaced(message, at, {**message["parts"][at], **fields})


def without(message: Message, at: int, name: str) -> Message:
    return replaced(message, at, {key: value for key, value in message["parts"][at].items() if key != name})


def answered_as(approval: Any) -> Callable[[Message], Message]:
    return lambda message: tool(message, 1, state="approval-responded", approval=approval)


GRANTED = {"id": "ap", "approved": True}
CALLS: list[tuple[Callable[[Message], Message], str]] = [
    (answered_as({"id": "other", "approved": True}), "[1].approval"),
    (answered_as({"approved": True}), "[1].approval"),
    (answered_as("yes"), "[1].approval"),
    (answered_as({"id": "ap"}), "[1].approval.approved"),
    (answered_as({"id": "ap", "approved": 1}), "[1].approval.approved"),
    (answered_as({**GRANTED, "reason": 5}), "[1].approval.reason"),
    (answered_as({**GRANTED, "reason": None}), "[1].approval.reason"),
    (lambda m: without(approved(m), 1, "approval"), "[1].approval"),
    (lambda m: tool(m, 1, state="output-available", output=1), "[1].state"),
    (lambda m: tool(m, 1, state="output-available", output=1, approval=GRANTED), "[1].state"),
    (lambda m: tool(m, 1, state="output-denied", approval={"id": "ap", "approved": False}), "[1].state"),
    (lambda m: tool(m, 1, input={"path": "/"}), "[1].input"),
    (lambda m: tool(approved(m), 1, input={"path": "/"}), "[1].input"),
    (lambda m: tool(m, 1, type="tool-read"), "[1].type"),
    (lambda m: tool(m, 1, toolCallId="c9"), "[1].toolCallId"),
    (lambda m: tool(m, 1, providerExecuted=True), "[1].providerExecuted"),
    (lambda m: tool(m, 1, state="forged"), "[1].state"),
    (lambda m: tool(m, 1, state=None), "[1].state"),
    (lambda m: tool(m, 1, state=["output-available"]), "[1].state"),
    (lambda m: tool(m, 2, state="approval-requested", approval={"id": "mine"}), "[2].approval"),
    (lambda m: tool(m, 2, state="approval-responded", approval=GRANTED), "[2].approval"),
    (lambda m: tool(m, 2, state="approval-responded"), "[2].state"),
    (lambda m: tool(m, 2, state="output-denied"), "[2].state"),
    (lambda m: tool(m, 2, state="output-available", output=1, preliminary=True), "[2].state"),
    (lambda m: tool(m, 2, state="output-available", output=1, input={"precise": False}), "[2].input"),
    (lambda m: tool(m, 2, state="output-available", output=float("nan")), "[2].output.output"),
    (lambda m: tool(m, 2, state="output-available", output={"__proto__": 1}), "[2].output"),
    (lambda m: tool(m, 2, state="output-error"), "[2].errorText"),
    (lambda m: tool(m, 2, state="output-error", errorText=5), "[2].errorText"),
    (lambda m: tool(m, 3, state="output-available", output="x"), "[3].state"),
    (lambda m: tool(m, 4, output="other"), "[4].output"),
    (lambda m: tool(m, 4, state="output-error", errorText="no"), "[4].state"),
    (lambda m: tool(m, 5, errorText="other"), "[5].errorText"),
    (lambda m: tool(m, 5, state="output-available", output=1), "[5].state"),
]


@pytest.fixture
def waiting(store: Any, session: str) -> list[Message]:
    """A question, and calls that wait: 1 for an approval, 2 for a client, 3 for its provider; 4 has a result, 5 an error."""
    say(store, session, "delete it", id="u1")
    chunks = [
        *(call("delete", "c1", {"path": "x"}), approval("ap", "c1"), call("locate", "c2", {"precise": True})),
        *({**call("web", "c3", {}), "providerExecuted": True}, call("read", "c4", {}), output("c4", "text")),
        *(call("read", "c5", {}), {"type": "tool-output-error", "toolCallId": "c5", "errorText": "gone"}),
    ]
    record(store, session, turn(*chunks, id="a1"))
    return shown(store, session)


@on_one_face
@each(("change", "where"), CALLS)
def test_a_tool_call_that_is_forged_is_refused(
    store: Any, session: str, waiting: list[Message], change: Callable[[Message], Message], where: str
) -> None:
    question, answer = waiting
    assert refused(store, session, [question, change(answer)]) == f"messages[1].parts{where}"


def test_only_the_named_tools_are_the_clients(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    for names in ([], ["delete"], ("x",)):
        assert refused(store, session, posted(u1, with_result(a1, output=1)), client_tools=names) == "messages[1].parts[2].state"


def test_an_approval_is_answered_once(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    sync(store, session, posted(u1, approved(a1, approved=False)))
    where = "messages[1].parts[1]"
    assert refused(store, session, posted(u1, approved(a1))) == f"{where}.approval.approved"
    denied = shown(store, session)[1]
    assert refused(store, session, posted(u1, with_result(denied, at=1, output=1))) == f"{where}.state"


def test_a_result_is_given_once(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    sync(store, session, posted(u1, with_result(a1, output="here")))
    assert refused(store, session, posted(u1, with_result(a1, output="there"))) == "messages[1].parts[2].output"
    assert refused(store, session, posted(u1, with_result(a1, errorText="no"))) == "messages[1].parts[2].state"


def test_one_refused_change_refuses_all(store: Any, session: str) -> None:
    u1, a1 = asked(store, session)
    messages = posted(u1, approved(a1), user("u2", "and"), {"id": "u3", "role": "user", "parts": [{"type": "step-start"}]})
    assert refused(store, session, messages) == "messages[3].parts[0].type"


def test_a_call_whose_input_is_cut_has_no_result(store: Any, session: str) -> None:
    say(store, session, "where", id="u1")
    cut = [{"type": "tool-input-start", "toolCallId": "c", "toolName": "locate"}]
    record(store, session, waits([*cut, {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"a'}], "a1"))
    u1, a1 = shown(store, session)
    assert refused(store, session, posted(u1, with_result(a1, at=1, output=1))) == "messages[1].parts[1].state"


# What the chat of the real AI SDK, the object behind useChat, posts in everyday scenes is taken in, and is what is stored.


SCENES: list[dict[str, Any]] = json.loads((ROOT / "tests/streams/ai-sdk-posts.json").read_text("utf-8"))["scenes"]


@each("scene", SCENES, ids=lambda scene: f"{scene['name']}, {scene['ai_sdk']}")
def test_a_scene_of_the_sdk_is_taken_in(store: Any, scene: dict[str, Any]) -> None:
    session = create(store)
    for step in scene["steps"]:
        if step["chunks"] is None:
            continue  # the post did not arrive
        post = step["post"]
        options = {"trigger": post["trigger"], "message_id": post.get("messageId")}
        found = sync(store, session, post["messages"], **options)
        assert found.changed
        assert found.continues == step["continues"]
        assert not sync(store, session, post["messages"], **options).changed
        record(store, session, step["chunks"], ai_sdk=scene["ai_sdk"])

    stored, seen = shown(store, session), scene["messages"]
    assert [message["role"] for message in stored] == [message["role"] for message in seen]
    assert [kinds(message) for message in stored] == [kinds(message) for message in seen] or "lost" in scene["name"]
    assert dict(sync(store, session, seen, trigger="submit-message"))["changed"] is False
    store.chat.sessions.delete(session)


def kinds(message: dict[str, Any]) -> list[tuple[str, Any]]:
    """The types of a message's parts, and the states of its tool calls."""
    return [(part["type"], part.get("state") if "toolCallId" in part else None) for part in message["parts"]]
