"""The save policy decides when a stream becomes durable, never what becomes of it."""

import json
import re
from typing import Any

import pytest

from persist.errors import InvalidValue, StreamProtocolError
from persist.settings import Settings
from tests.cases import each
from tests.contract.chat.scenes import VECTORS, approval, call, create, output, record, shown, step, text, words
from tests.contract.conftest import Raw, unmarked

POLICIES = ("chunk", "step", "turn")
TWO_STEPS = [
    {"type": "start", "messageId": "m"},
    *step(*text("one"), call("bash", "c", {}), output("c", 1)),
    *step(*text("two", "!")),
    {"type": "finish"},
]


def rows(raw: Raw) -> list[tuple[Any, ...]]:
    """Everything stored of the messages, minted ids apart."""
    messages = raw.rows("SELECT id, role, metadata_json, created_at, updated_at FROM chat_messages ORDER BY created_at, id")
    parts = raw.rows(
        'SELECT message_id, "index", type, data_json, tool_call_id, tool_state, created_at, updated_at'
        ' FROM chat_parts ORDER BY message_id, "index"'
    )
    return [tuple(_normal(value) for value in row) for row in [*messages, *parts]]


def _normal(value: Any) -> Any:
    if isinstance(value, dict) or (isinstance(value, str) and value.startswith("{")):
        return unmarked(json.loads(value) if isinstance(value, str) else value)  # the order of keys is no part of a JSON object
    return "minted" if isinstance(value, str) and re.fullmatch(r"(msg|prt)_[0-9a-f]{12}[0-9A-Za-z]{14}", value) else value


@each("chosen", ["tool", "text", "start", "random", "streamText", "reset", "steering", "spoilt"])
def test_the_same_rows_under_every_policy(store: Any, raw: Raw, chosen: str) -> None:
    vectors = [vector for vector in VECTORS if vector["name"].startswith(chosen) and not vector.get("initial")]
    vectors = [vector for vector in vectors if not vector["fatal"]][:12]
    assert vectors
    for vector in vectors:
        seen = []
        for policy in POLICIES:
            session = create(store)
            record(store, session, vector["chunks"], save_on=policy, model={"model_id": "m"}, ai_sdk=vector["ai_sdk"])
            seen.append(rows(raw))
            store.chat.sessions.delete(session)
        assert seen[0] == seen[1] == seen[2], vector["name"]


def durable(other: Any, session: str) -> list[str]:
    return words(shown(other, session))


def test_step_by_step_a_cut_leaves_the_previous_step(store: Any, other: Any, session: str) -> None:
    seen = []
    with store.record(session, save_on="step") as recorder:
        for chunk in TWO_STEPS:
            recorder.feed(chunk)
            seen.append(durable(other, session))
    first, second, last = [index for index, chunk in enumerate(TWO_STEPS) if chunk["type"] in ("finish-step", "finish")]
    assert all(state == [] for state in seen[:first])
    assert all(state == ["one"] for state in seen[first:second])
    assert all(state == ["onetwo!"] for state in seen[second:])
    assert last == len(TWO_STEPS) - 1


def test_turn_by_turn_a_cut_leaves_nothing(store: Any, other: Any, session: str) -> None:
    with store.record(session, save_on="turn") as recorder:
        for chunk in TWO_STEPS[:-1]:
            recorder.feed(chunk)
            assert durable(other, session) == []
        recorder.feed(TWO_STEPS[-1])
        assert durable(other, session) == ["onetwo!"]


@each("policy", ["step", "turn"])
@each("ending", [{"type": "abort"}, {"type": "error", "errorText": "over"}])
def test_abort_and_error_flush_whatever_the_policy(store: Any, other: Any, policy: str, ending: Any) -> None:
    session = create(store)
    with store.record(session, save_on=policy) as recorder:
        recorder.feed_many([{"type": "start-step"}, *text("a", "b")[:-1]])
        assert durable(other, session) == []
        recorder.feed(ending)
        assert durable(other, session) == ["ab"]


@pytest.mark.parametrize("policy", ["step", "turn"])
def test_flush_and_close_write_what_waits(store: Any, other: Any, session: str, policy: str) -> None:
    with store.record(session, save_on=policy) as recorder:
        recorder.feed_many(text("a")[:-1])
        recorder.flush()
        assert durable(other, session) == ["a"]
        recorder.feed({"type": "text-delta", "id": "t", "delta": "b"})
        assert durable(other, session) == ["a"]
    assert durable(other, session) == ["ab"]
    assert shown(other, session)[0]["parts"][0]["state"] == "streaming"  # closing finishes nothing


def test_leaving_on_an_exception_writes_what_waits(store: Any, other: Any, session: str) -> None:
    def interrupted() -> None:
        with store.record(session, save_on="turn") as recorder:
            recorder.feed_many(text("kept")[:-1])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert durable(other, session) == ["kept"]


def test_the_policy_comes_from_the_settings_unless_given(open_store: Any) -> None:
    store = open_store(settings=Settings(save_on="turn"))
    session = create(store)
    other = open_store()
    with store.record(session) as recorder:
        recorder.feed_many(text("a"))
        assert durable(other, session) == []
    with store.record(session, save_on="chunk") as recorder:
        recorder.feed_many(text("b"))
        assert durable(other, session) == ["a", "b"]


@each("options", [{"save_on": "never"}, {"buffer_ms": -1}, {"buffer_bytes": 1.5}, {"metadata": [1]}, {"agent": ""}])
def test_a_bad_option_is_refused(store: Any, options: dict[str, Any]) -> None:
    session = create(store)
    with pytest.raises(InvalidValue) as refused:
        store.record(session, **options)
    assert refused.value.path == next(iter(options))


START_A, START_B = ({"type": "start", "messageId": id} for id in "AB")
STEP, RESET, FINISH = ({"type": type} for type in ("start-step", "reset-step", "finish"))
ASKED = [START_A, STEP, call("bash", "c"), approval("a", "c")]
ANSWERED = {"type": "tool-approval-response", "approvalId": "a", "approved": True}
FAILED = {"type": "tool-output-error", "toolCallId": "c", "errorText": "no"}
TYPED = [{"type": "tool-input-start", "toolCallId": "c", "toolName": "bash"}]
TYPED += [{"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{}"}]


@pytest.mark.parametrize(
    ("before", "chunks"),
    [
        ([START_A, STEP, call("bash", "c")], [RESET, output("c", 1)]),
        (ASKED, [RESET, ANSWERED]),
        ([START_A, STEP, call("bash", "c"), FINISH, START_B, STEP, call("bash", "c")], [RESET, output("c", 1)]),
        ([], [START_A, STEP, call("bash", "c"), START_B, STEP, output("c", 1), output("c", 2), FINISH]),
        ([], [START_A, STEP, *TYPED, START_B, STEP, output("c", 1), FINISH]),
        ([START_A, STEP, *TYPED], [{**TYPED[1], "inputTextDelta": " "}, START_B, STEP, output("c", 1), FINISH]),
        ([], [*ASKED, START_B, STEP, ANSWERED, ANSWERED, output("c", 1), FINISH]),
        ([START_A, STEP, call("bash", "c")], [output("c", 1), START_B, STEP, output("c", 2), FINISH]),
        (
            [START_A, STEP, call("bash", "c")],
            [START_B, STEP, FAILED, {"type": "start", "messageId": "C"}, output("c", 2), FINISH],
        ),
        ([START_A, STEP, call("bash", "c")], [START_B, STEP, call("bash", "d"), RESET, output("c", 1), FINISH]),
    ],
)
def test_a_call_of_what_is_not_written_yet_counts_as_if_it_were(
    store: Any, raw: Raw, before: list[Any], chunks: list[Any]
) -> None:
    found = []
    for number, (policy, together) in enumerate(
        (("chunk", False), ("chunk", True), ("step", True), ("turn", True), ("turn", False))
    ):
        session, refused = create(store), None
        named = [{**chunk, "messageId": f"{chunk['messageId']}{number}"} if "messageId" in chunk else chunk for chunk in chunks]
        first = [{**chunk, "messageId": f"{chunk['messageId']}{number}"} if "messageId" in chunk else chunk for chunk in before]
        with store.record(session, save_on=policy) as recorder:
            recorder.feed_many(first)
            try:
                if together:
                    recorder.feed_many(named)
                else:
                    for chunk in named:
                        recorder.feed(chunk)
            except StreamProtocolError as error:
                refused = error.index
        found.append((refused, [(message["id"][0], message["parts"]) for message in shown(store, session)]))
    assert found == [found[0]] * len(found)
    assert raw.count("chat_part_deltas") == 0
