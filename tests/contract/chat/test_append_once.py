"""Appending under a given id once, and at an instant of the past."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, rollup, say, session_of, shown, words
from tests.contract.conftest import Raw

HI = [{"type": "text", "text": "hi"}]
LARGE = f"data:image/png;base64,{'A' * 100_000}"
TABLES = ("chat_sessions", "chat_messages", "chat_parts", "chat_part_blobs")


def append(store: Any, session: str, **fields: Any) -> Any:
    with store.begin() as tx:
        return tx.chat.messages.append(session, **{"role": "user", "parts": HI, "id": "m", **fields})


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


def test_an_id_of_another_session_is_a_conflict(store: Any, session: str) -> None:
    append(store, session)
    with pytest.raises(Conflict, match="is taken"):
        append(store, create(store))
    with pytest.raises(NotFound):
        append(store, "nowhere")


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
    with store.begin() as tx:
        tx.chat.messages.compact(session, summary="s", tail_start_id=None, auto=False, summary_tokens=2)
    clock.advance(seconds=1)
    append(store, session, id="old", role="assistant", metadata=usage, created_at=clock() - timedelta(days=1))
    assert rollup(store, session)[0] == 2
    append(store, session, id="new", role="assistant", metadata=usage, created_at=clock())
    assert rollup(store, session)[0] == 7
