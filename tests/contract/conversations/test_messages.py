"""Messages: putting one as its runtime dumps it, reading it back as it was, and what is refused."""

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persist.errors import PayloadTooLarge, UnreadableRow
from persist.settings import Settings
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import (
    AT,
    NOT_LABELS,
    NOWHERE,
    items,
    make_progression,
    make_session,
    message,
    numbered,
    present,
    put,
    put_many,
    refused,
    session_of,
    stored,
)
from tests.contract.faces import on_one_face
from tests.examples import examples
from tests.unit.json_values import normal, same, values

SYSTEM = "lionagi.protocols.messages.system.System"
WHOLE: dict[str, Any] = {
    "id": "mine",
    "created_at": 1_700_000_000.123456789,
    "node_metadata": {"lion_class": SYSTEM, "n": [1, 2.5, None], "o": {"deep": True}},
    "content": {"text": "Hello", "list": [1, "2", None, False]},
    "embedding": [0.5, -2.0],
    "sender": "ada",
    "recipient": "bob",
    "channel": "general",
    "role": "system",
}


def test_a_message_comes_back_as_it_was_put(store: Any, other: Any) -> None:
    made = store.conversations.messages.put(WHOLE)
    assert made.to_dict() == WHOLE
    assert made.created_at_epoch == 1_700_000_000.123456789
    assert made.created_at == datetime(2023, 11, 14, 22, 13, 20, 123457, tzinfo=UTC)
    assert (made.lion_class, made.lion_class_str) == (1, SYSTEM)
    assert present(other, "mine") == made


def test_what_is_left_out_is_absent(store: Any) -> None:
    made = put(store, "a")
    assert (made.node_metadata, made.embedding, made.sender, made.recipient, made.channel) == (None,) * 5
    assert made.to_dict() == {**dict.fromkeys(WHOLE), **message("a")}


def test_a_message_has_the_published_columns(store: Any, raw: Raw) -> None:
    put(store, "a", {"t": 1}, node_metadata={"k": 2})
    columns = "id, created_at, embedding, sender, recipient, channel, role, lion_class"
    assert raw.rows(f"SELECT {columns} FROM messages") == [("a", AT, None, None, None, None, "user", 0)]
    assert raw.json("SELECT content FROM messages") == {"t": 1}
    assert raw.json("SELECT node_metadata FROM messages") == {"k": 2}


def test_metadata_may_have_either_name(store: Any) -> None:
    made = put(store, "a", metadata={"k": 1})
    assert made.node_metadata == {"k": 1}
    assert made.to_dict()["node_metadata"] == {"k": 1}
    with store.begin() as tx:
        both = message("b", metadata={"k": 1}, node_metadata={"k": 1})
        assert refused(tx.conversations.messages.put, both) == "message.node_metadata"
    assert stored(store, "b") is None


def test_the_float_of_an_instant_is_kept_exactly(store: Any) -> None:
    for epoch in (0, -1.5, AT, 1e-9, 1_700_000_000.1234567, -62_135_596_800.0, 253_402_300_799.0):
        made = put(store, f"at {epoch}", created_at=epoch)
        assert (made.created_at_epoch, type(made.created_at_epoch)) == (epoch, float)
        assert made.created_at == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=epoch)
        assert present(store, made.id) == made


def test_an_instant_may_be_an_aware_datetime(store: Any) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    made = put(store, "a", created_at=datetime(2026, 1, 2, 8, 34, 5, 678_901, tzinfo=zone))
    assert made.created_at == datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    assert made.created_at_epoch == made.created_at.timestamp()


def test_text_that_looks_like_json_stays_text(store: Any) -> None:
    for text in ('{"text": "x"}', "[1, 2, 3]", '"quoted"', "plain", "42", "null", "1e400", "NaN", "true"):
        assert put(store, "a", text).content == text


def test_a_scalar_keeps_its_value_and_type(store: Any, raw: Raw) -> None:
    """No numeric affinity."""
    for value in (1, True, 3.5, 1.0, 1e16, 2**53 + 1, 2**64 - 1, -(2**63), 1e300, 5e-324):
        found = put(store, "a", value).content
        assert (found, type(found)) == (value, type(value))
        if raw.is_sqlite:
            assert raw.value("SELECT typeof(content) FROM messages") == "text"


@pytest.mark.parametrize("epoch", [math.nan, math.inf, 1e300])
def test_a_message_whose_instant_is_none_is_unreadable(store: Any, raw: Raw, epoch: float) -> None:
    if raw.is_sqlite and math.isnan(epoch):
        epoch = -math.inf  # SQLite stores no NaN
    put(store, "a", "x")
    put(store, "b", "x")
    raw.rows("UPDATE messages SET created_at = ? WHERE id = ?", epoch, "a")
    with pytest.raises(UnreadableRow, match="created_at"):
        store.conversations.messages.get("a")
    assert list(store.conversations.messages.get_many(["a", "b"])) == ["b"]


class Pair(NamedTuple):
    left: Any
    right: Any


def test_uuids_become_text_and_tuples_lists(store: Any) -> None:
    one, two = uuid4(), uuid4()
    given = message(
        "x",
        {"u": one, "list": [one, {"v": two}], "tuple": (1, two)},
        metadata={"u": one, "in": (two,)},
        sender=one,
        recipient=two,
    )
    made = store.conversations.messages.put({**given, "id": one})
    assert (made.id, made.sender, made.recipient) == (str(one), str(one), str(two))
    assert made.content == {"u": str(one), "list": [str(one), {"v": str(two)}], "tuple": [1, str(two)]}
    assert made.node_metadata == {"u": str(one), "in": [str(two)]}
    assert put(store, "y", UUID(int=7)).content == str(UUID(int=7))
    assert put(store, "z", Pair(1, ())).content == [1, []]


@on_one_face
@given(st.lists(values, min_size=1, max_size=6))
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_value_is_content_and_metadata(store: Any, contents: list[Any]) -> None:
    wanted = {f"a{index}": value for index, value in enumerate(contents) if value is not None}
    put_many(store, [message(id, value, metadata={"v": [value]}) for id, value in wanted.items()])
    found = store.conversations.messages.get_many(list(wanted))
    assert list(found) == list(wanted)
    for id, value in wanted.items():
        assert same(found[id].content, normal(value))
        assert same(found[id].node_metadata["v"][0], normal(value))


BAD_FIELDS: list[tuple[str, Any]] = [
    *[("id", bad) for bad in [None, *NOT_LABELS]],
    *[("role", bad) for bad in [None, "  ", "\t\n", 42, *NOT_LABELS]],
    *[("created_at", bad) for bad in [None, "2026-01-02", True, datetime(2026, 1, 2), math.nan, math.inf, -math.inf]],
    *[("created_at", bad) for bad in [1e300, 253_402_300_800.0, -62_135_596_801.0, 10**400]],
    *[(name, bad) for name in ("sender", "recipient", "channel") for bad in NOT_LABELS],
    *[("content", bad) for bad in [None, math.nan, math.inf, 2**64, -(2**63) - 1, b"x", {1, 2}, object()]],
    *[("node_metadata", bad) for bad in [[], "text", 1, [["k", "v"]]]],
    *[("embedding", bad) for bad in ["text", 1, b"abc", {0: 1.0}, {1.0}]],
    *[("node_metadata.lion_class", {"lion_class": bad}) for bad in [1, True, ["a.B"], {"path": "a.B"}, "a\x00B"]],
    ("content.list[1]", {"list": [0, math.nan]}),
    ("content.when", {"when": datetime(2026, 1, 2, tzinfo=UTC)}),
    ("content", {1: "key"}),
    ("node_metadata.k[0]", {"k": [math.inf]}),
    ("embedding[1]", [0.0, math.nan]),
    ("embedding[0]", [True]),
    ("embedding[2]", [0.0, 1.0, "2"]),
]


def test_a_bad_field_is_named_and_nothing_is_written(store: Any, raw: Raw) -> None:
    with store.begin() as tx:
        for path, bad in BAD_FIELDS:
            name = path.partition(".")[0].partition("[")[0]
            wrong = message("a") | {name: bad}
            assert refused(tx.conversations.messages.put, wrong) == f"message.{path}", bad
            assert refused(tx.conversations.messages.put_many, [message("b"), wrong]) == f"messages[1].{path}", bad
        tx.conversations.messages.put(message("kept"))  # the transaction is still good
    assert raw.rows("SELECT id FROM messages") == [("kept",)]


def test_a_message_needs_four_fields_and_has_no_others(store: Any, raw: Raw) -> None:
    with store.begin() as tx:
        for name in ("id", "created_at", "content", "role"):
            given = message("a")
            del given[name]
            assert refused(tx.conversations.messages.put, given) == f"message.{name}"
        for name in ("kind", "lion_class", "createdAt", "", "stored_at"):
            assert refused(tx.conversations.messages.put, message("a") | {name: 1}) == f"message.{name}"
    assert raw.count("messages") == 0


def test_content_and_metadata_have_a_cap(open_store: Any) -> None:
    store = open_store(settings=Settings(max_json_bytes=1000))
    with store.begin() as tx:
        for name, big in (("content", "é" * 600), ("node_metadata", {"k": "é" * 600})):
            with pytest.raises(PayloadTooLarge) as refusal:
                tx.conversations.messages.put(message("a") | {name: big})
            assert (refusal.value.path, refusal.value.limit) == (f"message.{name}", 1000)
            assert refusal.value.size > 1200
        tx.conversations.messages.put(message("kept", "é" * 400))
    assert stored(store, "a") is None
    assert present(store, "kept").content == "é" * 400


def test_putting_again_overwrites_all_but_the_first_instant(store: Any, raw: Raw) -> None:
    with store.begin() as tx:
        tx.conversations.messages.put(WHOLE)
        made = tx.conversations.messages.put(message("mine", "new", sender="eve", created_at=5.0))
    assert made.to_dict() == {**dict.fromkeys(WHOLE), **message("mine", "new", sender="eve"), "created_at": WHOLE["created_at"]}
    assert (made.lion_class, made.lion_class_str) == (0, "__unknown__")
    assert raw.count("messages") == 1


def test_the_moment_it_first_came_is_kept(store: Any, clock: Any, raw: Raw) -> None:
    first = clock().timestamp()
    put(store, "a", created_at=1.0)
    clock.advance(seconds=60)
    put(store, "a", "again", created_at=2.0)
    assert raw.rows("SELECT created_at, stored_at FROM messages") == [(1.0, first)]


# Many messages: put in one batch into progressions and a pool, and read by their ids.


def test_many_are_read_by_id_in_the_order_asked_for(store: Any) -> None:
    ids = numbered(1203)
    assert put_many(store, [message(id, id) for id in ids]) == 1203
    wanted = [*reversed(ids), NOWHERE, ids[0]]
    found = store.conversations.messages.get_many(wanted)
    assert store.conversations.messages.get_many([]) == {}
    assert store.conversations.messages.get_many(iter(ids[:2])) == {id: found[id] for id in ids[:2]}
    assert list(found) == ids[::-1]
    assert all(one.id == one.content == id for id, one in found.items())


def test_of_many_with_one_id_the_last_stays(store: Any, raw: Raw) -> None:
    progression = make_progression(store)
    batch = [message("b", 1, created_at=1.0), message("a", 2), message("b", 3, created_at=3.0)]
    put_many(store, batch, progression_ids=[progression])
    assert (present(store, "b").content, present(store, "b").created_at_epoch) == (3, 1.0)
    assert items(store, progression) == ["b", "a"]
    assert raw.count("messages") == 2


def test_many_join_every_progression_once_in_their_order(store: Any) -> None:
    first, second = make_progression(store, ["z", "b"]), make_progression(store)
    assert put_many(store, [message(id) for id in ("c", "b", "a")], progression_ids=[second, first, second]) == 3
    assert items(store, first) == ["z", "b", "c", "a"]
    assert items(store, second) == ["c", "b", "a"]


def test_many_join_the_pool_of_a_session(store: Any, clock: Any) -> None:
    session = make_session(store)
    at = clock.advance(seconds=5)
    put_many(store, [message("b"), message("a")], session_id=session.id, progression_ids=[session.progression_id])
    found = session_of(store, session.id)
    assert items(store, session.progression_id) == ["b", "a"]
    assert (found.first_msg_id, found.last_msg_id) == ("b", "a")
    assert (found.updated_at, found.last_message_at) == (at, at)


def test_no_messages_change_nothing(store: Any, clock: Any) -> None:
    session = make_session(store)
    clock.advance(seconds=5)
    assert put_many(store, [], session_id=session.id, progression_ids=[session.progression_id]) == 0
    assert session_of(store, session.id) == session
