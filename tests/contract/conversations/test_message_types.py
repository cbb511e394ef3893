"""Message types: the number of a class, given once and for good."""

from contextlib import suppress
from typing import Any

import pytest

from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import make_branch, message, of_class, present, put_many

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
    with store.begin() as tx:
        return int(tx.conversations.messages.put(of_class(id, lion_class)).lion_class)


def types(raw: Raw) -> list[tuple[Any, ...]]:
    return raw.rows("SELECT type_id, lion_class FROM message_types ORDER BY type_id")


def test_a_new_database_knows_six_types(store: Any, raw: Raw, open_store: Any) -> None:
    """(c) 1"""
    assert types(raw) == SEEDED
    open_store()
    assert types(raw) == SEEDED


def test_a_known_class_has_its_number(store: Any, raw: Raw) -> None:
    """(c) 10"""
    for wanted, path in SEEDED:
        assert number(store, path) == wanted
        assert (present(store, "m").lion_class, present(store, "m").lion_class_str) == (wanted, path)
    assert types(raw) == SEEDED


def test_a_message_of_no_class_is_of_type_0(store: Any, raw: Raw) -> None:
    """(c) 10"""
    for metadata in (None, {}, {"lion_class": ""}, {"lion_class": None}, {"other": "a.B"}):
        with store.begin() as tx:
            made = tx.conversations.messages.put(message("m", node_metadata=metadata))
        assert (made.lion_class, made.lion_class_str) == SEEDED[0]
        assert made.node_metadata == metadata
    assert types(raw) == SEEDED


def test_a_new_class_gets_the_next_number_once(store: Any, other: Any, raw: Raw) -> None:
    """(c) 10"""
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


def test_putting_again_changes_the_class(store: Any) -> None:
    number(store, "my.Note")
    number(store, SEEDED[2][1])
    assert present(store, "m").lion_class == 2
    with store.begin() as tx:
        tx.conversations.messages.put(message("m"))
    assert present(store, "m").lion_class == 0


def test_a_class_is_new_again_when_its_transaction_fails(store: Any, raw: Raw) -> None:
    with suppress(InterruptedError), store.begin() as tx:
        assert tx.conversations.messages.put(of_class("m", "my.Note")).lion_class == 6
        raise InterruptedError
    assert types(raw) == SEEDED
    assert number(store, "my.Other") == 6


def test_a_foreign_key_guards_the_number(store: Any, raw: Raw) -> None:
    if raw.is_sqlite:
        raw.rows("PRAGMA foreign_keys=ON")
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        raw.rows("INSERT INTO messages (id, created_at, content, role, lion_class) VALUES ('m', 1, '1', 'user', 99)")
