"""Both majors of the AI SDK: which one a recorder follows, and what each makes of the streams that they read differently."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest

from persist.chat.reducer import reduce
from persist.errors import Closed, Conflict, InvalidValue, StreamProtocolError
from persist.settings import AiSdk, Settings
from tests.cases import each
from tests.contract.chat.scenes import (
    VECTORS,
    Message,
    aborted_at,
    approval,
    call,
    create,
    final,
    lead,
    output,
    record,
    recordable,
    same_message,
    say,
    shown,
    step,
    text,
    turn,
    words,
)
from tests.contract.conftest import Raw
from tests.streams.vectors import cases

START = {"type": "start", "messageId": "m"}
REFUSED = {"type": "tool-input-error", "toolCallId": "c", "toolName": "w", "input": "raw", "errorText": "bad"}
ONLY_7: list[Any] = [
    {"type": "custom", "kind": "mock.note"},
    {"type": "reasoning-file", "mediaType": "image/png", "url": "data:,x"},
    {"type": "steering-message", "id": "s", "parts": [{"type": "text", "text": "Use Oslo.", "extra": 1}]},
]
BEGUN = [{"type": "tool-input-start", "toolCallId": "c", "toolName": "w"}, {"type": "tool-input-delta", "toolCallId": "c"}]


def parts(store: Any, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shown(store, session)[-1]["parts"]
    return found


@each(("ai_sdk", "key"), [(6, "rawInput"), (7, "input"), (None, "input")])
def test_a_refused_input(store: Any, ai_sdk: int | None, key: str) -> None:
    session = create(store)
    record(store, session, [START, REFUSED], ai_sdk=ai_sdk)
    assert parts(store, session) == [
        {"type": "tool-w", "toolCallId": "c", "state": "output-error", key: "raw", "errorText": "bad"}
    ]
    store.chat.sessions.delete(session)


def test_what_only_7_has_is_counted_by_6(store: Any, session: str) -> None:
    with store.record(session, ai_sdk=6) as recorder:
        recorder.feed_many(
            [START, *text("a"), *ONLY_7, {"type": "reset-step"}, {"type": "tool-approval-response", "approvalId": 5}]
        )
        assert recorder.ignored == 5
    assert parts(store, session) == [{"type": "text", "text": "a", "state": "done"}]


def test_what_only_7_has_is_kept(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many(turn(*ONLY_7, id="m"))
        assert recorder.ignored == 0
    assert parts(store, session) == [{"type": "step-start"}, *ONLY_7]


def test_what_neither_knows_is_counted_and_what_is_the_applications_kept(store: Any, session: str) -> None:
    hologram: dict[str, Any] = {"type": "data-hologram", "data": {"depth": [1, None]}, "extra": {"key": "kept"}}
    with store.record(session) as recorder:
        recorder.feed_many(turn({"type": "hologram", "depth": 3}, hologram, {"type": "steering"}, id="m"))
        assert recorder.ignored == 2
    assert parts(store, session) == [{"type": "step-start"}, hologram]


def test_stored_parts_of_a_type_that_neither_knows_stay_when_the_message_goes_on(store: Any, session: str) -> None:
    hologram = {"type": "hologram", "depth": 3, "inner": [{"a": None}]}
    store.chat.messages.append(session, id="m", role="assistant", parts=[hologram])
    record(store, session, [START, *text("more")])
    assert parts(store, session)[0] == hologram


@each("ai_sdk", [6, 7])
@each("pieces", [["[", "-", "1]"], ['{"a": [', " ", "-", "2", ",-", "3]}"], ["[-"], ["[+", "+", "1"]], ids=str)
def test_an_array_whose_first_item_is_no_value_yet(store: Any, other: Any, ai_sdk: Any, pieces: list[str]) -> None:
    """Readers join deltas without knowing the major that was recorded; they see its reading all the same."""
    session = create(store)
    chunks = [START, BEGUN[0], *({**BEGUN[1], "inputTextDelta": piece} for piece in pieces)]
    with store.record(session, ai_sdk=ai_sdk) as recorder:
        for count, chunk in enumerate(chunks, start=1):
            recorder.feed(chunk)
            assert not (count > 1) or shown(other, session) == [reduce(chunks[:count], ai_sdk=ai_sdk)]
    assert shown(store, session) == [reduce(chunks, ai_sdk=ai_sdk)]
    store.chat.sessions.delete(session)


def test_an_answer_in_the_stream_closes_the_approval(store: Any, session: str) -> None:
    asked = {**approval("a1", "c"), "reason": "It deletes.", "isAutomatic": True}
    record(store, session, [START, *step(call("bash", "c", {})), asked])
    assert parts(store, session)[-1]["approval"] == {"id": "a1", "requestReason": "It deletes.", "isAutomatic": True}
    record(store, session, [START, {"type": "tool-approval-response", "approvalId": "a1", "approved": False, "reason": "policy"}])
    answered = {"id": "a1", "requestReason": "It deletes.", "isAutomatic": True, "approved": False, "reason": "policy"}
    assert parts(store, session)[-1]["state"] == "approval-responded"
    assert parts(store, session)[-1]["approval"] == answered
    assert store.chat.messages.answer_approval(session, "a1", approved=True) is False


def test_an_answer_finds_the_approval_of_an_earlier_message(store: Any, session: str) -> None:
    record(store, session, turn(call("bash", "c", {}), approval("a1", "c"), id="first"))
    answer = {"type": "tool-approval-response", "approvalId": "a1", "approved": True}
    record(
        store, session, [{"type": "start", "messageId": "second"}, *text("so"), answer, output("c", "done"), {"type": "finish"}]
    )
    first, second = shown(store, session)
    assert (first["parts"][-1]["state"], first["parts"][-1]["output"]) == ("output-available", "done")
    assert first["parts"][-1]["approval"] == {"id": "a1", "approved": True}
    assert len(second["parts"]) == 1


def test_an_answer_to_nothing_is_refused(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([START, call("bash", "c", {}), approval("a1", "c")])
        with pytest.raises(StreamProtocolError):
            recorder.feed({"type": "tool-approval-response", "approvalId": "a2", "approved": True})
    assert parts(store, session)[-1]["state"] == "approval-requested"


@each("ai_sdk", [5, 8, "7", True, 7.5, "v7"])
def test_other_majors_are_refused(store: Any, ai_sdk: Any) -> None:
    session = create(store)
    with pytest.raises(InvalidValue) as refused:
        store.record(session, ai_sdk=ai_sdk)
    assert refused.value.path == "ai_sdk"
    with pytest.raises(InvalidValue) as refused:
        reduce([], ai_sdk=ai_sdk)
    assert refused.value.path == "ai_sdk"


def test_the_setting_chooses_where_the_call_does_not(
    open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, session: str
) -> None:
    monkeypatch.setenv("PERSIST_AI_SDK", "6")
    store = open_store()
    record(store, session, [START, REFUSED])
    assert "rawInput" in parts(store, session)[0]
    record(store, session, [{**START, "messageId": "n"}, REFUSED], ai_sdk=7)
    assert "input" in parts(store, session)[0]


def test_a_setting_that_is_no_major_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSIST_AI_SDK", "5")
    with pytest.raises(InvalidValue) as refused:
        Settings()
    assert refused.value.path == "PERSIST_AI_SDK"


# Bad chunks are refused one by one; unknown ones are counted; the recorder goes on.


def refused(recorder: Any, chunk: Any) -> bool:
    try:
        recorder.feed(chunk)
    except StreamProtocolError:
        return False  # a good chunk at the wrong time
    except InvalidValue:
        return True
    return False


def test_the_same_chunks_are_refused_as_by_the_sdk(store: Any, session: str) -> None:
    """But message metadata is an object here, because its column holds one."""
    wrong, seen = [], []
    for ai_sdk, case in cases("chunk_validation"):
        chunk = case["chunk"]
        if case in seen:
            continue  # both majors judge nearly all chunks alike
        seen.append(case)
        accepted = case["accepted"] and isinstance(chunk.get("messageMetadata"), dict | None)
        with store.record(session, ai_sdk=ai_sdk) as recorder:
            bad = refused(recorder, chunk)
            unknown = recorder.ignored == 1
        if not (unknown or bad != accepted):
            wrong.append(case)
    assert wrong == []


def test_a_bad_chunk_writes_nothing_and_the_recorder_goes_on(store: Any, raw: Raw, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        for bad in (
            {"type": "text-delta", "id": "t"},
            {"type": "text-delta", "id": "t", "delta": 5},
            {"type": "text-delta", "id": None, "delta": "x"},
            {"type": "start", "messageId": None},
            {"type": "tool-input-available", "toolCallId": "c", "toolName": "bash", "input": float("nan")},
            {"type": "data-x", "data": {1: "a"}},
            {"id": "t"},
            "text-delta",
            None,
        ):
            before = raw.rows("SELECT data_json, updated_at FROM chat_parts")
            with pytest.raises(InvalidValue) as refusal:
                recorder.feed(bad)
            assert not isinstance(refusal.value, StreamProtocolError)
            assert raw.rows("SELECT data_json, updated_at FROM chat_parts") == before
        recorder.feed({"type": "text-delta", "id": "t", "delta": "fine"})
    assert words(shown(store, session)) == ["fine"]


def test_extra_keys_are_fine(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t", "extra": [1]})
        recorder.feed({"type": "source-url", "sourceId": "s", "url": "https://example.org", "extra": 1})
    assert shown(store, session)[0]["parts"] == [
        {"type": "text", "text": "", "state": "streaming"},
        {"type": "source-url", "sourceId": "s", "url": "https://example.org"},
    ]


def test_chunks_of_unknown_type_are_counted_and_change_nothing(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        assert recorder.ignored == 0
        for kind in ("tool-input-progress", "media-video", ""):
            recorder.feed({"type": kind, "anything": object})
        assert recorder.ignored == 3
        assert recorder.message_id is None
        recorder.feed_many([{"type": "later"}, *text("x"), {"type": "later still"}])
        assert recorder.ignored == 5
    assert words(shown(store, session)) == ["x"]


def test_many_chunks_are_kept_up_to_the_bad_one(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        with pytest.raises(InvalidValue):
            recorder.feed_many([*text("a", "b")[:2], {"type": "text-delta", "id": "t", "delta": None}, *text("c")[1:]])
        assert words(shown(other, session)) == ["a"]
        recorder.feed_many(text("c")[1:])
    assert words(shown(store, session)) == ["ac"]


def test_many_chunks_are_kept_up_to_the_one_out_of_sequence(store: Any, other: Any, session: str) -> None:
    with store.record(session) as recorder:
        with pytest.raises(StreamProtocolError) as refusal:
            recorder.feed_many([*text("a"), {"type": "text-end", "id": "t"}, *text("lost")])
        assert refusal.value.index == 3
        assert words(shown(other, session)) == ["a"]
        with pytest.raises(Closed):
            recorder.feed_many(text("b"))


def test_no_chunks_are_no_work(store: Any, raw: Raw, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([])
        recorder.flush()
    assert (raw.count("chat_messages"), raw.count("chat_turns")) == (0, 0)


def test_a_backlog_is_one_transaction_and_one_write_for_each_part(counted_store: Any, statements: list[str]) -> None:
    store, session = counted_store, create(counted_store)
    pieces = ["x"] * 500
    with store.record(session) as recorder:
        recorder.feed({"type": "start-step"})
        statements.clear()
        recorder.feed_many([*text(*pieces, id="a"), *text(*pieces, id="b")])
        writes = [one for one in statements if one.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE"))]
    assert sum("chat_parts" in one for one in writes) == 2
    assert len(writes) <= 6
    assert words(shown(store, session)) == ["x" * 1000]


def test_server_sent_events_are_parsed_line_by_line(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        for line in (
            ": a comment",
            "event: message",
            'data: {"type":"text-start","id":"t"}\n',
            b'data: {"type":"text-delta","id":"t","delta":"\xc3\xbc"}\r\n',
            'data:{"type":"text-end","id":"t"}',
            "",
            "data: [DONE]\n\n",
        ):
            recorder.feed_sse(line)
    assert shown(store, session)[0]["parts"] == [{"type": "text", "text": "ü", "state": "done"}]


def test_a_recorder_needs_its_session_and_its_end_is_final(store: Any, session: str) -> None:
    with pytest.raises(LookupError), store.record("ses_nowhere"):
        raise AssertionError("entered")
    recorder = store.record(session)
    with recorder:
        recorder.feed_many(text("x"))
    recorder.close()
    for use in (lambda: recorder.feed({"type": "finish"}), recorder.flush, lambda: recorder.feed_many([])):
        with pytest.raises(Closed):
            use()


# What the real `ai` package makes of a stream is what the store holds, at the end and whenever the recorder is cut off.


OWNED = ("model", "agent", "system_prompt_digest", "stopped_at")

# Where the reducer, which knows one message, and the recorder, which knows the session, differ: a user message is none that an
# assistant's stream may continue, the result of an earlier message's call finds its part, and a message that the stream comes
# back to goes on. Each has a test of its own.
APART = {"resume-user-message", "start-other-id-forgets-tool-call", "start-three-messages", "fatal-new-message-forgets-approval"}
RECORDABLE = [vector for vector in VECTORS if vector["name"] not in APART]


def _differs(vector: dict[str, Any]) -> bool:
    name: str = vector["name"]
    return name.startswith(("approval", "reset", "resume", "text-open", "steering", "fatal"))


RECORDED = [vector for at, vector in enumerate(RECORDABLE) if vector["ai_sdk"] == AiSdk.V6 or _differs(vector) or at % 4 == 0]
"""Both majors go through one recorder: of 7 those that 6 reads otherwise, and a sample of the rest."""


def prepared(store: Any, vector: dict[str, Any]) -> str:
    """A session that holds what the vector continues."""
    session = create(store)
    if initial := vector.get("initial"):
        store.chat.messages.append(
            session, id=initial["id"], role=initial["role"], parts=initial["parts"], metadata=initial.get("metadata")
        )
    return session


def discard(store: Any, session: str) -> None:
    """The vectors share their message ids, which are unique in a database."""
    store.chat.sessions.delete(session)


def mismatch(found: list[Message], expected: list[Message], owned: tuple[str, ...] = ()) -> str | None:
    """What differs, in a few words; None when nothing does."""
    if len(found) != len(expected):
        return f"{len(found)} messages instead of {len(expected)}"
    for one, two in zip(found, expected, strict=True):
        if same_message(one, two, but=owned):
            continue
        parts = [pair for pair in zip_longest(one["parts"], two["parts"]) if pair[0] != pair[1]]
        return f"{one['id']}: {parts[0] if parts else (one.get('metadata'), two.get('metadata'))}"
    return None


def feed(store: Any, session: str, vector: dict[str, Any], **options: Any) -> int | None:
    """Record the vector -> where it was refused."""
    with store.record(session, ai_sdk=vector["ai_sdk"], **options) as recorder:
        for at, chunk in enumerate(recordable(vector)):
            try:
                recorder.feed(chunk)
            except StreamProtocolError:
                return at - lead(vector)
    return None


def test_the_final_messages_are_the_sdks(store: Any) -> None:
    wrong = {}
    for vector in RECORDED:
        session = prepared(store, vector)
        options = {"model": {"model_id": "m"}, "agent": "plan", "system_prompt": "Be brief."}
        refused = feed(store, session, vector, **options)
        assert refused == (vector["fatal"]["at"] if vector["fatal"] else None), vector["name"]
        ending = final(vector)
        finished = any(chunk["type"] == "finish" for chunk in vector["chunks"])
        written = [ending] if ending["parts"] or finished else []  # metadata alone makes no message before the finish
        expected = [*vector.get("previous_messages", []), *written]
        found = shown(store, session)
        if difference := mismatch(found, expected, OWNED):
            wrong[vector["name"]] = difference
        discard(store, session)
    assert not wrong, "\n".join(f"{name}: {difference}" for name, difference in wrong.items())


def test_every_cut_is_what_a_second_connection_sees(store: Any, other: Any) -> None:
    wrong = {}
    for vector in RECORDED:
        session = prepared(store, vector)
        cuts = {cut["consumed"]: cut["message"] for cut in vector["cuts"]}
        end = aborted_at(vector)
        with store.record(session, ai_sdk=vector["ai_sdk"]) as recorder:
            for at, chunk in enumerate(recordable(vector)):
                consumed = at + 1 - lead(vector)
                try:
                    recorder.feed(chunk)
                except StreamProtocolError:
                    break
                if consumed not in cuts or (end is not None and consumed > end):
                    continue
                found = shown(other, session)
                expected = cuts[consumed]
                if not expected["parts"] and (not found or found[-1]["parts"]):
                    continue  # its row may wait for its first part
                if difference := mismatch(found[-1:], [expected]):
                    wrong[f"{vector['name']} after {consumed}"] = difference
        discard(store, session)
    assert not wrong, "\n".join(f"{name}: {difference}" for name, difference in wrong.items())


def test_a_fatal_chunk_names_its_place_and_closes_the_recorder(store: Any, other: Any, session: str) -> None:
    """What came before it is kept, even what was only buffered."""
    recorder = store.record(session, save_on="turn")
    with recorder:
        recorder.feed({"type": "start", "messageId": "m"})
        recorder.feed_many(text("kept"))
        with pytest.raises(StreamProtocolError) as refused:
            recorder.feed({"type": "text-delta", "id": "t", "delta": "of no open text"})
        assert (refused.value.index, refused.value.chunk_type) == (4, "text-delta")
        assert shown(other, session)[0]["parts"] == [{"type": "text", "text": "kept", "state": "done"}]
        with pytest.raises(RuntimeError):
            recorder.feed({"type": "finish"})
    record(store, session, text("the next turn starts"))
    assert len(shown(store, session)) == 2


def test_an_abort_before_any_part_leaves_no_message(store: Any, clock: Any, session: str) -> None:
    at = clock.advance(seconds=9)
    record(store, session, [{"type": "start", "messageId": "m"}, {"type": "abort"}])
    assert shown(store, session) == []
    assert store.chat.sessions.get(session).updated_at == at


def test_only_an_assistant_message_can_be_continued(store: Any, session: str) -> None:
    user = say(store, session, "hi")
    with store.record(session) as recorder, pytest.raises(Conflict):
        recorder.feed({"type": "start", "messageId": user})
    assert len(shown(store, session)) == 1
