"""Messages: appended whole, listed in order, read back verbatim."""

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, record, rollup, say, session_of, shown, text, words
from tests.contract.conftest import Raw

HI = [{"type": "text", "text": "hi"}]


def test_a_message_and_its_parts_are_stored_together(store: Any, clock: Any, raw: Raw, session: str) -> None:
    at = clock.advance(seconds=1)
    parts = [*HI, {"type": "file", "mediaType": "image/png", "url": "https://example.org/a.png"}]
    made = store.chat.messages.append(session, role="user", parts=parts, metadata={"snapshot_id": "s1"})
    assert re.fullmatch(r"msg_[0-9a-f]{12}[0-9A-Za-z]{14}", made.id)
    assert (made.session_id, made.role, made.metadata) == (session, "user", {"snapshot_id": "s1"})
    assert made.created_at == made.updated_at == at
    rows = raw.rows('SELECT p.id, p.message_id, p.session_id, p."index", p.type FROM chat_parts p ORDER BY p."index"')
    assert [row[1:] for row in rows] == [(made.id, session, 0, "text"), (made.id, session, 1, "file")]
    assert all(re.fullmatch(r"prt_[0-9a-f]{12}[0-9A-Za-z]{14}", row[0]) for row in rows)
    assert shown(store, session) == [{"id": made.id, "role": "user", "parts": parts, "metadata": {"snapshot_id": "s1"}}]
    assert session_of(store, session).updated_at == at


def test_an_appended_tool_part_is_found_by_its_call(store: Any, raw: Raw, session: str) -> None:
    part = {"type": "tool-bash", "toolCallId": "call_0", "state": "output-available", "input": {}, "output": 1}
    store.chat.messages.append(session, role="assistant", parts=[part, {"type": "data-x", "toolCallId": "not a tool"}])
    rows = raw.rows('SELECT tool_call_id, tool_state FROM chat_parts p ORDER BY p."index"')
    assert rows == [("call_0", "output-available"), (None, None)]


@each("parts", ["hi", {"type": "text"}, None, ["hi"], [{}], [{"type": 1}], [{"type": ""}], [{"type": "text", "text": {1, 2}}]])
def test_parts_are_a_list_of_objects_with_a_type(store: Any, parts: Any) -> None:
    session = create(store)
    with store.begin() as tx, pytest.raises(InvalidValue) as refused:
        tx.chat.messages.append(session, role="user", parts=parts)
    assert refused.value.path.startswith("parts")
    assert shown(store, session) == []


def test_messages_come_in_the_order_they_were_appended_whatever_their_ids(store: Any, clock: Any, session: str) -> None:
    for id in ("zzz", "aaa", None, "mmm", "000"):
        say(store, session, str(id), id=id)
    assert words(shown(store, session)) == ["zzz", "aaa", "None", "mmm", "000"]
    clock.advance(seconds=-5)
    say(store, session, "the clock went back")
    assert words(shown(store, session))[-1] == "the clock went back"


def test_limit_is_the_newest_and_before_a_message(store: Any, session: str) -> None:
    ids = [say(store, session, str(number)) for number in range(6)]
    assert words(shown(store, session, limit=2)) == ["4", "5"]
    assert words(shown(store, session, limit=2, before=ids[4])) == ["2", "3"]
    assert words(shown(store, session, before=ids[2])) == ["0", "1"]
    assert words(shown(store, session, limit=99)) == ["0", "1", "2", "3", "4", "5"]
    assert shown(store, session, limit=2**63 - 1) == shown(store, session)
    assert shown(store, session, before=ids[0]) == []


def test_paging_back_meets_every_message_once_even_within_a_millisecond(store: Any, clock: Any, session: str) -> None:
    for number in range(10):
        clock.advance(seconds=0.001 * (number % 3 == 0))
        say(store, session, str(number), id=f"id-{number * 7 % 10}")
    pages: list[str] = []
    before = None
    while page := shown(store, session, limit=3, before=before):
        pages = words(page) + pages
        before = page[0]["id"]
    assert pages == [str(number) for number in range(10)]


def test_hidden_messages_are_listed_only_on_request_and_queued_ones_never(store: Any, session: str) -> None:
    first = say(store, session, "first")
    say(store, session, "second")
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, first)
        queued = tx.chat.messages.enqueue(session, parts=HI)
    visible = store.chat.messages.list(session)
    every = store.chat.messages.list(session, include_hidden=True)
    assert (words(visible), words(every)) == (["first"], ["first", "second"])
    assert words(store.chat.messages.list(session, limit=5)) == ["first"]
    assert words(store.chat.messages.list(session, limit=5, include_hidden=True)) == ["first", "second"]
    assert words(store.chat.messages.model_view(session)) == ["first"]
    assert json.loads(store.chat.messages.list_json(session)) == visible
    assert json.loads(store.chat.messages.list_json(session, include_hidden=True)) == every
    assert store.chat.messages.get(queued.id)["parts"] == HI


def test_message_metadata_patches_merge_and_unknown_keys_survive(store: Any, clock: Any, session: str) -> None:
    message = say(store, session, "hi", metadata={"custom": {"a": 1}, "trigger": {"source": "webhook"}})
    at = clock.advance(seconds=1)
    changed = store.chat.messages.update_metadata(message, {"custom": {"b": 2}, "trigger": None})
    assert changed.metadata == {"custom": {"a": 1, "b": 2}}
    assert changed.updated_at == at
    assert changed.created_at < at
    assert shown(store, session)[0]["metadata"] == {"custom": {"a": 1, "b": 2}}
    with store.begin() as tx, pytest.raises(NotFound):
        tx.chat.messages.update_metadata("msg_nowhere", {})


@each("model", [None, {"provider_id": "p", "n": [1, 1.0]}])
@each("named", [False, True])
def test_a_transaction_writes_its_session_for_few_of_many_messages(store: Any, clock: Any, named: bool, model: Any) -> None:
    session = create(store)
    instants = set()
    with store.begin() as tx:
        for number in range(30):
            at = clock.advance(seconds=0.01)
            fields = {"id": f"m{number}"} if named else {}
            tx.chat.messages.append(session, role="user", parts=HI, metadata=model and {"model": model}, **fields)
            found = tx.chat.sessions.get(session)
            instants.add(found.updated_at)
            assert timedelta(0) <= at - found.updated_at <= timedelta(milliseconds=100)
            assert model is None or json.dumps(found.model) == json.dumps(model)
    assert len(instants) <= 4
    at = clock.advance(seconds=0.001)
    store.chat.messages.append(session, role="user", parts=HI, metadata=model and {"model": {**model, "n": [1, 1]}})
    found = session_of(store, session)
    assert found.updated_at == at
    assert model is None or json.dumps(found.model["n"]) == "[1, 1]"
    store.chat.sessions.delete(session)


LARGE = f"data:image/png;base64,{'A' * 100_000}"
TABLES = ("chat_sessions", "chat_messages", "chat_parts", "chat_part_blobs")


def append(store: Any, session: str, **fields: Any) -> Any:
    return store.chat.messages.append(session, **{"role": "user", "parts": HI, "id": "m", **fields})


def rows(raw: Raw) -> list[Any]:
    return [raw.rows(f"SELECT * FROM {table} ORDER BY 1") for table in TABLES]


@each(
    "fields",
    [
        {},
        {"parts": []},
        {"parts": [*HI, {"type": "data-x", "data": {"half": "\ud83d", "joined": "\ud83d\ude00", "zero": -0.0}}]},
        {"metadata": {"a": {"b": [1, None]}, "model": {"model_id": "other"}}},
        {"role": "assistant", "metadata": {"usage": {"input": 5, "output": 7}}},
        {"role": "assistant", "parts": [{"type": "data-compaction", "data": {"summary": "s", "tail_start_id": None}}]},
        {"created_at": datetime(2020, 1, 2, tzinfo=UTC)},
        {"parts": [{"type": "file", "mediaType": "image/png", "url": LARGE}]},
    ],
)
def test_the_same_message_again_changes_nothing(store: Any, raw: Raw, clock: Any, fields: dict[str, Any]) -> None:
    session = create(store)
    first = append(store, session, **fields)
    before = rows(raw)
    clock.advance(seconds=1)
    with store.begin() as tx:
        again = [tx.chat.messages.append(session, **{"role": "user", "parts": HI, "id": "m", **fields}) for _ in range(2)]
    assert again == [first, first]
    assert store.chat.messages.append(session, **{"role": "user", "parts": HI, "id": "m", **fields}) == first
    assert rows(raw) == before
    store.chat.sessions.delete(session)


def test_what_became_of_a_message_does_not_make_it_another(store: Any, clock: Any, session: str) -> None:
    question = say(store, session, "asked")
    append(store, session, role="assistant", metadata={"a": 1})
    with store.begin() as tx:
        tx.chat.messages.record_step_usage("m", 0, input_tokens=5, output_tokens=5)
        tx.chat.sessions.rewind(session, question)
    assert append(store, session, role="assistant", metadata={"a": 1}).metadata.keys() == {"a", "usage", "hidden_at"}
    assert append(store, session, role="assistant").metadata["a"] == 1  # without metadata none is compared


@each(
    "fields",
    [
        {"parts": []},
        {"parts": [{"type": "text", "text": "other"}]},
        {"parts": [*HI, *HI]},
        {"parts": [{"type": "text", "text": "hi", "state": "done"}]},
        {"role": "assistant"},
        {"metadata": {"a": 2}},
        {"metadata": {"a": 1, "b": 2}},
    ],
)
def test_another_message_under_the_id_is_a_conflict(store: Any, raw: Raw, fields: dict[str, Any]) -> None:
    session = create(store)
    append(store, session, metadata={"a": 1})
    before = rows(raw)
    with pytest.raises(Conflict, match="The id 'm' is taken by another message"):
        append(store, session, **fields)
    assert rows(raw) == before
    with pytest.raises(Conflict):
        store.chat.messages.append(session, **{"role": "user", "parts": HI, "id": "m", "metadata": {"a": 1}, **fields})
    assert rows(raw) == before
    store.chat.sessions.delete(session)


def test_a_message_of_the_past_stands_where_it_was_said(store: Any, clock: Any, session: str) -> None:
    say(store, session, "now", id="n")
    clock.advance(seconds=10)
    then = clock() - timedelta(days=2)
    stored = append(store, session, id="b", parts=[{"type": "text", "text": "then b"}], created_at=then)
    assert (stored.created_at, stored.updated_at) == (then, clock())
    append(store, session, id="a", parts=[{"type": "text", "text": "then a"}], created_at=then)
    append(store, session, id=None, parts=[{"type": "text", "text": "between"}], created_at=then + timedelta(days=1))
    say(store, session, "later")
    assert words(shown(store, session)) == ["then a", "then b", "between", "now", "later"]
    assert session_of(store, session).updated_at == clock()
    assert session_of(store, session).model == MODEL


def test_an_instant_of_the_past_is_aware_and_not_to_come(store: Any, clock: Any, session: str) -> None:
    zone = timezone(timedelta(hours=2))
    assert append(store, session, created_at=clock().astimezone(zone)).created_at == clock()
    for wrong in (clock() + timedelta(milliseconds=1), clock().replace(tzinfo=None), "2020-01-01", 5):
        with pytest.raises(InvalidValue) as caught:
            append(store, session, id="other", created_at=wrong)
        assert caught.value.path == "created_at"
    assert len(shown(store, session)) == 1


def test_usage_before_a_compaction_is_not_counted(store: Any, clock: Any, session: str) -> None:
    usage = {"usage": {"input": 5, "output": 1}}
    append(store, session, role="assistant", metadata=usage)
    store.chat.messages.compact(session, summary="s", tail_start_id=None, auto=False, summary_tokens=2)
    clock.advance(seconds=1)
    append(store, session, id="old", role="assistant", metadata=usage, created_at=clock() - timedelta(days=1))
    assert rollup(store, session)[0] == 2
    append(store, session, id="new", role="assistant", metadata=usage, created_at=clock())
    assert rollup(store, session)[0] == 7


# Message metadata: what the stream says, merged, below what the recorder itself knows.


M1, M2 = {"provider_id": "a", "model_id": "one"}, {"provider_id": "b", "model_id": "two"}


def merge(payload: Any) -> dict[str, Any]:
    return {"type": "message-metadata", "messageMetadata": payload}


def metadata_of(store: Any, session: str) -> Any:
    return shown(store, session)[-1].get("metadata")


def test_the_recorder_owns_model_agent_and_prompt_digest(store: Any, session: str) -> None:
    chunks = [
        {"type": "start", "messageMetadata": {"model": M2, "agent": "other", "system_prompt_digest": "x", "mine": 1}},
        *text("x"),
        merge({"model": {"model_id": "later"}, "agent": None, "usage": {"input": 7}}),
        {"type": "finish", "messageMetadata": {"system_prompt_digest": None}},
    ]
    record(store, session, chunks, model=M1, agent="plan", system_prompt="Be brief.")
    assert metadata_of(store, session) == {
        "model": M1,
        "agent": "plan",
        "system_prompt_digest": hashlib.sha256(b"Be brief.").hexdigest(),
        "mine": 1,
        "usage": {"input": 7},
    }


def test_what_the_recorder_does_not_own_is_the_streams(store: Any, session: str) -> None:
    record(store, session, [*text("x"), merge({"model": M2, "agent": "plan"})])
    assert metadata_of(store, session) == {"model": M2, "agent": "plan"}


def test_the_agent_is_said_only_when_it_is_not_the_sessions(store: Any, session: str) -> None:
    record(store, session, text("x"), agent="build")
    assert metadata_of(store, session) is None
    record(store, session, text("x"), agent="plan")
    assert metadata_of(store, session) == {"agent": "plan"}


def test_given_metadata_lies_below_the_streams(store: Any, session: str) -> None:
    record(store, session, [*text("x"), merge({"a": 2})], metadata={"a": 1, "b": {"c": 1}, "snapshot_id": "s"})
    assert metadata_of(store, session) == {"a": 2, "b": {"c": 1}, "snapshot_id": "s"}


def test_objects_merge_and_everything_else_replaces(store: Any, session: str) -> None:
    payloads = [{"a": {"b": 1, "c": [1, 2]}, "n": 1}, {"a": {"c": [3]}, "n": None}, None, {"a": {"d": {"e": 1}}}, {"n": {"o": 1}}]
    record(store, session, [*text("x"), *map(merge, payloads)])
    assert metadata_of(store, session) == {"a": {"b": 1, "c": [3], "d": {"e": 1}}, "n": {"o": 1}}


def test_keys_that_would_reach_a_prototype_are_not_merged(store: Any, session: str) -> None:
    first, second = {"a": {"b": 1}}, {"__proto__": {"x": 1}, "constructor": 1, "a": {"prototype": 1, "c": 2}}
    record(store, session, [*text("x"), merge(first), merge(second)])
    assert metadata_of(store, session) == {"a": {"b": 1, "c": 2}}


def test_metadata_alone_makes_no_message_before_the_finish(store: Any, raw: Raw, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed({"type": "start", "messageId": "m", "messageMetadata": {"a": 1}})
        recorder.feed(merge({"b": 2}))
        assert raw.count("chat_messages") == 0
        recorder.feed({"type": "finish", "messageMetadata": {"c": 3}})
        assert raw.count("chat_messages") == 1
    assert shown(store, session) == [{"id": "m", "role": "assistant", "parts": [], "metadata": {"a": 1, "b": 2, "c": 3}}]


def test_keys_that_others_wrote_meanwhile_survive(store: Any, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "m"}, {"type": "start-step"}])
        store.chat.messages.update_metadata("m", {"rating": 5})
        recorder.feed(merge({"a": 1}))
        recorder.feed({"type": "finish"})
    assert metadata_of(store, session) == {"rating": 5, "a": 1}


@each("payload", [1, "text", [1], True])
def test_metadata_is_an_object(store: Any, payload: Any) -> None:
    session = create(store)
    with store.record(session) as recorder:
        for kind in ("start", "message-metadata", "finish"):
            with pytest.raises(InvalidValue):
                recorder.feed({"type": kind, "messageMetadata": payload})
    assert shown(store, session) == []


@each("key", ["queued_at", "queue_enqueued_at", "queue_canceled_at", "hidden_at"])
def test_the_keys_of_queue_and_rewind_are_not_for_patches(store: Any, key: str) -> None:
    session = create(store)
    message = say(store, session, "hi")
    with store.begin() as tx, pytest.raises(InvalidValue):
        tx.chat.messages.update_metadata(message, {key: 1})
    assert len(shown(store, session)) == 1
