"""Messages: appended whole, listed in order, read back verbatim."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound
from tests.cases import each
from tests.contract.chat.scenes import create, record, say, session_of, shown, text, turn, words
from tests.contract.conftest import Raw

HI = [{"type": "text", "text": "hi"}]


def test_a_message_and_its_parts_are_stored_together(store: Any, clock: Any, raw: Raw, session: str) -> None:
    at = clock.advance(seconds=1)
    parts = [*HI, {"type": "file", "mediaType": "image/png", "url": "https://example.org/a.png"}]
    with store.begin() as tx:
        made = tx.chat.messages.append(session, role="user", parts=parts, metadata={"snapshot_id": "s1"})
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
    with store.begin() as tx:
        tx.chat.messages.append(session, role="assistant", parts=[part, {"type": "data-x", "toolCallId": "not a tool"}])
    rows = raw.rows('SELECT tool_call_id, tool_state FROM chat_parts p ORDER BY p."index"')
    assert rows == [("call_0", "output-available"), (None, None)]


def test_all_three_roles_and_no_other(store: Any, session: str) -> None:
    for role in ("system", "user", "assistant"):
        say(store, session, role, role=role)
    assert [message["role"] for message in shown(store, session)] == ["system", "user", "assistant"]
    with store.begin() as tx:
        for bad in ("tool", "", None, 1):
            with pytest.raises(InvalidValue) as refused:
                tx.chat.messages.append(session, role=bad, parts=HI)
            assert refused.value.path == "role"


@each("parts", ["hi", {"type": "text"}, None, ["hi"], [{}], [{"type": 1}], [{"type": ""}], [{"type": "text", "text": {1, 2}}]])
def test_parts_are_a_list_of_objects_with_a_type(store: Any, parts: Any) -> None:
    session = create(store)
    with store.begin() as tx, pytest.raises(InvalidValue) as refused:
        tx.chat.messages.append(session, role="user", parts=parts)
    assert refused.value.path.startswith("parts")
    assert shown(store, session) == []


def test_a_message_needs_its_session_and_an_id_of_its_own(store: Any, session: str) -> None:
    with store.begin() as tx, pytest.raises(NotFound):
        tx.chat.messages.append("ses_nowhere", role="user", parts=HI)
    assert say(store, session, "first", id="client-1") == "client-1"
    with pytest.raises(Conflict), store.begin() as tx:
        tx.chat.messages.append(session, role="user", parts=HI, id="client-1")
    with store.begin() as tx, pytest.raises(InvalidValue):
        tx.chat.messages.append(session, role="user", parts=HI, id="")
    assert words(shown(store, session)) == ["first"]


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


def test_a_page_has_bounds_that_exist(store: Any, session: str) -> None:
    stranger = say(store, create(store), "elsewhere")
    with store.read() as tx:
        for before in ("msg_nowhere", stranger):
            with pytest.raises(NotFound):
                tx.chat.messages.list(session, before=before)
        for limit in (-1, 1.5, "2"):
            with pytest.raises(InvalidValue):
                tx.chat.messages.list(session, limit=limit)
        for verb in (tx.chat.messages.list, tx.chat.messages.list_json, tx.chat.messages.model_view):
            with pytest.raises(NotFound):
                verb("ses_nowhere")


def test_hidden_messages_are_listed_only_on_request_and_queued_ones_never(store: Any, session: str) -> None:
    first = say(store, session, "first")
    say(store, session, "second")
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, first)
        queued = tx.chat.messages.enqueue(session, parts=HI)
    with store.read() as tx:
        visible = tx.chat.messages.list(session)
        every = tx.chat.messages.list(session, include_hidden=True)
        assert (words(visible), words(every)) == (["first"], ["first", "second"])
        assert words(tx.chat.messages.list(session, limit=5)) == ["first"]
        assert words(tx.chat.messages.list(session, limit=5, include_hidden=True)) == ["first", "second"]
        assert words(tx.chat.messages.model_view(session)) == ["first"]
        assert json.loads(tx.chat.messages.list_json(session)) == visible
        assert json.loads(tx.chat.messages.list_json(session, include_hidden=True)) == every
        assert tx.chat.messages.get(queued.id)["parts"] == HI


def test_get_reads_one_message_as_list_does(store: Any, session: str) -> None:
    record(store, session, turn(*text("Hello")), metadata={"k": 1})
    (listed,) = shown(store, session)
    with store.read() as tx:
        assert tx.chat.messages.get(listed["id"]) == listed
        with pytest.raises(NotFound):
            tx.chat.messages.get("msg_nowhere")


def test_list_json_is_list_spliced(store: Any, session: str) -> None:
    say(store, session, 'quotes " \\ and \u2028 and \U0001f600', metadata={"a": [1, 2.5, None, True, "ü"]})
    record(store, session, turn(*text("Hel", "lo")))
    with store.record(session) as recorder:
        recorder.feed_many([*text("growing", id="a")[:-1], {"type": "text-delta", "id": "a", "delta": " on"}])
        recorder.feed({"type": "text-delta", "id": "a", "delta": " and on"})
        with store.read() as tx:
            raw_json, listed = tx.chat.messages.list_json(session), tx.chat.messages.list(session)
    assert isinstance(raw_json, bytes)
    assert json.loads(raw_json) == listed
    assert words(listed)[-1] == "growing on and on"


def test_message_metadata_patches_merge_and_unknown_keys_survive(store: Any, clock: Any, session: str) -> None:
    message = say(store, session, "hi", metadata={"custom": {"a": 1}, "trigger": {"source": "webhook"}})
    at = clock.advance(seconds=1)
    with store.begin() as tx:
        changed = tx.chat.messages.update_metadata(message, {"custom": {"b": 2}, "trigger": None})
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
    with store.begin() as tx:
        tx.chat.messages.append(session, role="user", parts=HI, metadata=model and {"model": {**model, "n": [1, 1]}})
    found = session_of(store, session)
    assert found.updated_at == at
    assert model is None or json.dumps(found.model["n"]) == "[1, 1]"
    store.chat.sessions.delete(session)
