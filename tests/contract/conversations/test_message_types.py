"""Message types: the number of a class, given once and for good."""

import math
import struct
from array import array
from contextlib import suppress
from typing import Any

import numpy
import pytest

from persist.errors import PersistError
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import (
    branch_of,
    counted,
    history,
    items,
    make_branch,
    message,
    numbered,
    of_class,
    present,
    put,
    put_many,
    refused,
    replace,
    say,
    session_of,
    stored,
)
from tests.contract.faces import on_one_face

PREFIX = "lionagi.protocols.messages."
SEEDED = [
    (0, "__unknown__"),
    (1, f"{PREFIX}system.System"),
    (2, f"{PREFIX}instruction.Instruction"),
    (3, f"{PREFIX}assistant_response.AssistantResponse"),
    (4, f"{PREFIX}action_request.ActionRequest"),
    (5, f"{PREFIX}action_response.ActionResponse"),
]


def number(store: Any, lion_class: Any, id: str = "m") -> int:
    """The number that a message of the class gets."""
    return int(store.conversations.messages.put(of_class(id, lion_class)).lion_class)


def types(raw: Raw) -> list[tuple[Any, ...]]:
    return raw.rows("SELECT type_id, lion_class FROM message_types ORDER BY type_id")


def test_a_new_database_knows_six_types(store: Any, raw: Raw, open_store: Any) -> None:
    assert types(raw) == SEEDED
    open_store()
    assert types(raw) == SEEDED


def test_a_known_class_has_its_number(store: Any, raw: Raw) -> None:
    for wanted, path in SEEDED:
        assert number(store, path) == wanted
        assert (present(store, "m").lion_class, present(store, "m").lion_class_str) == (wanted, path)
    assert types(raw) == SEEDED


def test_a_message_of_no_class_is_of_type_0(store: Any, raw: Raw) -> None:
    for metadata in (None, {}, {"lion_class": ""}, {"lion_class": None}, {"other": "a.B"}):
        made = store.conversations.messages.put(message("m", node_metadata=metadata))
        assert (made.lion_class, made.lion_class_str) == SEEDED[0]
        assert made.node_metadata == metadata
    assert types(raw) == SEEDED


def test_a_new_class_gets_the_next_number_once(store: Any, other: Any, raw: Raw) -> None:
    assert number(store, "my.Note") == 6
    assert number(other, "my.Other", "n") == 7
    assert number(other, "my.Note", "o") == 6
    assert number(store, "my.note", "p") == 8
    assert types(raw)[6:] == [(6, "my.Note"), (7, "my.Other"), (8, "my.note")]
    assert present(other, "n").lion_class_str == "my.Other"


def test_the_numbers_of_others_are_respected(store: Any, raw: Raw) -> None:
    """A file of the original, or of a copy, may hold any."""
    raw.rows("INSERT INTO message_types (type_id, lion_class) VALUES (40, 'their.Class')")
    assert number(store, "their.Class") == 40
    assert number(store, "my.Note") == 41


def test_every_way_of_writing_gives_numbers(store: Any, raw: Raw) -> None:
    branch = make_branch(store)
    batch = [of_class(f"m{n}", f"my.Class{n % 3}") for n in range(30)]
    put_many(store, batch)
    with store.begin() as tx:
        recorded = tx.conversations.messages.record(branch.id, of_class("r", "my.Class3"))
        many = tx.conversations.messages.get_many([one["id"] for one in batch])
    assert recorded.lion_class_str == "my.Class3"
    assert [one.lion_class_str for one in many.values()] == [one["node_metadata"]["lion_class"] for one in batch]
    assert types(raw)[6:] == [(6 + n, f"my.Class{n}") for n in range(4)]


def test_a_class_is_new_again_when_its_transaction_fails(store: Any, raw: Raw) -> None:
    with suppress(InterruptedError), store.begin() as tx:
        assert tx.conversations.messages.put(of_class("m", "my.Note")).lion_class == 6
        raise InterruptedError
    assert types(raw) == SEEDED
    assert number(store, "my.Other") == 6


LARGEST = (2 - 2**-23) * 2.0**127
"""The largest float32; what rounds to more does not fit."""


def blob(raw: Raw) -> bytes:
    return bytes(raw.value("SELECT embedding FROM messages"))


def test_an_embedding_is_a_blob_of_little_endian_float32(store: Any, raw: Raw) -> None:
    given = [0.1, -0.2, 0.3, 0.0]
    made = put(store, "a", embedding=given)
    assert made.embedding == pytest.approx(given, rel=1e-6)
    assert blob(raw) == struct.pack("<4f", *given)
    assert present(store, "a") == made
    if raw.is_sqlite:
        assert raw.value("SELECT typeof(embedding) FROM messages") == "blob"


def test_packed_bytes_are_taken_as_they_are(store: Any, raw: Raw) -> None:
    for kind in (bytes, bytearray, memoryview):
        packed = struct.pack("<3f", 1.5, -0.0, 2**-149)
        made = put(store, "a", embedding=kind(packed))
        assert made.embedding == [1.5, 0.0, 2**-149]
        assert blob(raw) == packed


NUMBERS = [1.5, -0.25, 3.0]
ARRAYS: list[Any] = [
    numpy.array(NUMBERS, "f4"),
    numpy.array(NUMBERS, "f8"),
    numpy.array(NUMBERS, ">f8"),
    numpy.array([1.5, 0, -0.25, 0, 3.0, 0], "f4")[::2],
    list(numpy.array(NUMBERS, "f4")),
    array("f", NUMBERS),
    array("d", NUMBERS),
    memoryview(array("f", NUMBERS)),
    memoryview(array("d", NUMBERS)),
]


@on_one_face
@each("given", ARRAYS, ids=range(len(ARRAYS)))
def test_arrays_of_floats_are_read_by_their_format(store: Any, raw: Raw, given: Any) -> None:
    assert put(store, "a", embedding=given).embedding == NUMBERS
    assert blob(raw) == struct.pack("<3f", *NUMBERS)
    ((nearest, distance),) = store.conversations.vectors.search(given)
    assert (nearest.id, distance) == ("a", 0.0)


def test_arrays_of_anything_else_are_refused(store: Any) -> None:
    bad = [numpy.array([1, 2]), numpy.array([1], "f2"), numpy.zeros((2, 2), "f4"), numpy.array(1.0), numpy.array([True])]
    bad += [
        memoryview(array("i", [1])),
        numpy.array([1e39]),
        numpy.array([math.nan], "f4"),
        numpy.array(["a"]),
        numpy.array([1j]),
    ]
    with store.begin() as tx:
        for one in bad:
            assert refused(tx.conversations.messages.put, message("a", embedding=one)).startswith("message.embedding"), one
    assert stored(store, "a") is None


def test_an_empty_embedding_differs_from_none(store: Any, raw: Raw) -> None:
    assert put(store, "a", embedding=[]).embedding == []
    assert blob(raw) == b""
    assert put(store, "a", embedding=b"").embedding == []
    assert put(store, "a", embedding=None).embedding is None
    assert raw.value("SELECT embedding FROM messages") is None


def test_numbers_become_the_nearest_float32(store: Any) -> None:
    given = [LARGEST, -LARGEST, 1, 0, -7, 2**-149, 1e-300, 16_777_217, 0.1]
    found = put(store, "a", embedding=given).embedding
    assert found == [struct.unpack("<f", struct.pack("<f", number))[0] for number in given]
    assert {type(number) for number in found} == {float}


def test_what_is_no_vector_is_refused_and_nothing_is_written(store: Any) -> None:
    bad: list[Any] = [
        [math.nan],
        [0.0, math.inf],
        [-math.inf],
        [1e39],
        [-1e39],
        [LARGEST * (1 + 2**-24)],
        [10**400],
        ["1"],
        [None],
        [True],
        [[1.0]],
        b"abc",
        b"\x00" * 5,
        struct.pack("<f", math.nan),
        struct.pack("<2f", 0, math.inf),
        "abcd",
        {1.0: 2.0},
        {1.0},
        5,
    ]
    with store.begin() as tx:
        for one in bad:
            assert refused(tx.conversations.messages.put, message("a", embedding=one)).startswith("message.embedding"), one
        tx.conversations.messages.put(message("kept", embedding=[1.0]))
    assert stored(store, "a") is None
    assert present(store, "kept").embedding == [1.0]


# The live write: one message, where it belongs, in one transaction.


def record(store: Any, branch_id: str, given: Any) -> Any:
    return store.conversations.messages.record(branch_id, given)


def everything(store: Any, raw: Raw, branch_id: str) -> Any:
    """What a live write could change."""
    branch = branch_of(store, branch_id)
    session = session_of(store, branch.session_id)
    return branch, session, items(store, branch.progression_id), items(store, session.progression_id), raw.count("messages")


def test_a_message_joins_its_branch_and_the_pool(store: Any, other: Any, clock: Any) -> None:
    branch = make_branch(store)
    sibling = make_branch(store, branch.session_id)
    at = clock.advance(seconds=5)
    made = record(store, branch.id, of_class("a", "my.Note", content={"t": 1}, sender="s"))
    assert made.to_dict() == {
        **message("a", {"t": 1}, sender="s", node_metadata={"lion_class": "my.Note"}),
        **dict.fromkeys(("embedding", "recipient", "channel")),
    }
    assert present(other, "a") == made
    say(store, sibling.id, "b")
    say(store, branch.id, "c")
    found = session_of(other, branch.session_id)
    assert history(other, branch.id) == ["a", "c"]
    assert history(other, sibling.id) == ["b"]
    assert items(other, found.progression_id) == ["a", "b", "c"]
    assert (found.first_msg_id, found.last_msg_id) == ("a", "c")
    assert (found.updated_at, found.last_message_at) == (at, at)
    assert branch_of(other, branch.id) == branch


def test_a_session_keeps_the_first_message_it_was_given(store: Any) -> None:
    branch = make_branch(store)
    say(store, make_branch(store).id, "opening")
    store.conversations.sessions.update(branch.session_id, first_msg_id="opening")
    say(store, branch.id, "a", "b")
    found = session_of(store, branch.session_id)
    assert (found.first_msg_id, found.last_msg_id) == ("opening", "b")


def test_activity_never_moves_back(store: Any, clock: Any) -> None:
    branch = make_branch(store)
    late = clock.advance(seconds=60)
    say(store, branch.id, "a")
    clock.advance(seconds=-30)
    say(store, branch.id, "b", created_at=1.0)
    found = session_of(store, branch.session_id)
    assert (found.updated_at, found.last_message_at, found.last_msg_id) == (late, late, "b")


def test_a_system_message_is_the_branchs(store: Any) -> None:
    branch = make_branch(store)
    say(store, branch.id, "s", role="system")
    say(store, branch.id, "u")
    assert branch_of(store, branch.id).system_msg_id == "s"
    say(store, branch.id, "s2", role="system")
    assert branch_of(store, branch.id).system_msg_id == "s2"
    assert history(store, branch.id) == ["s", "u", "s2"]


def test_other_roles_leave_the_pointer_alone(store: Any) -> None:
    branch = make_branch(store)
    for number, role in enumerate(("user", "assistant", "action", "unset", "System", "anything")):
        say(store, branch.id, str(number), role=role)
    assert branch_of(store, branch.id).system_msg_id is None
    assert len(history(store, branch.id)) == 6


def test_recording_again_overwrites_and_keeps_its_place(store: Any) -> None:
    branch = make_branch(store)
    say(store, branch.id, "a", "b")
    made = record(store, branch.id, message("a", "new", created_at=99.0))
    assert (made.content, made.created_at_epoch) == ("new", message("a")["created_at"])
    assert history(store, branch.id) == ["a", "b"]
    assert items(store, session_of(store, branch.session_id).progression_id) == ["a", "b"]
    assert session_of(store, branch.session_id).last_msg_id == "a"


FAIL_ON_SQLITE = """
    CREATE TRIGGER fail BEFORE UPDATE ON sessions WHEN NEW.last_msg_id = 'late' BEGIN SELECT RAISE(ABORT, 'no'); END
"""
FAIL_ON_POSTGRES = "ALTER TABLE sessions ADD CONSTRAINT fail CHECK (last_msg_id <> 'late')"


def test_a_live_write_whose_last_statement_fails_leaves_nothing(store: Any, raw: Raw) -> None:
    branch = make_branch(store)
    say(store, branch.id, "a")
    before = everything(store, raw, branch.id)
    raw.rows(FAIL_ON_SQLITE if raw.is_sqlite else FAIL_ON_POSTGRES)
    with pytest.raises(PersistError):
        record(store, branch.id, message("late", role="system"))
    assert everything(store, raw, branch.id) == before
    assert stored(store, "late") is None
    say(store, branch.id, "b")
    assert history(store, branch.id) == ["a", "b"]


def test_a_live_write_costs_the_same_however_long_the_branch_is(counted_store: Any, statements: list[str]) -> None:
    store = counted_store
    short, long = make_branch(store), make_branch(store)
    for branch, count in ((short, 10), (long, 5000)):
        for progression in (branch.progression_id, session_of(store, branch.session_id).progression_id):
            replace(store, progression, numbered(count))
    say(store, short.id, "first")  # what a store asks once is asked here
    costs = [counted(statements, lambda: say(store, short.id, "a")), counted(statements, lambda: say(store, long.id, "b"))]
    assert costs[0] == costs[1] <= 14
