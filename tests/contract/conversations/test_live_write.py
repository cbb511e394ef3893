"""The live write: one message, where it belongs, in one transaction."""

from typing import Any

import pytest

from persist.errors import PersistError
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
    replace,
    say,
    session_of,
    stored,
)


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
    """(c) 25"""
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
