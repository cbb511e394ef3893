"""Pruning sweeps messages that nothing names once they are old enough, refuses bad options, and is all or nothing."""

from datetime import timedelta
from typing import Any

import pytest

from persist.conversations.schemas import PruneReport
from persist.errors import InvalidValue
from tests.contract.conftest import Raw
from tests.contract.conversations.making import (
    DAY,
    NOTHING,
    branches,
    dump,
    fork_into,
    make_branch,
    make_session,
    prune,
    pruned,
    put,
    sessions,
    stored,
    talk,
)

# ---------------------------------------------------------------- orphans


def test_a_message_that_never_belonged_to_anything_goes_after_a_day(store: Any, raw: Raw, clock: Any) -> None:
    """(d) 5: one that was put a moment ago may be about to be appended."""
    put(store, "old")
    clock.advance(delta=DAY)
    put(store, "new")
    assert pruned(store, raw) == NOTHING
    clock.advance(seconds=0.001)
    assert pruned(store, raw) == PruneReport(sessions=0, branches=0, progressions=0, messages=1)
    assert stored(store, "old", "new") == ["new"]


def test_the_grace_is_counted_from_when_it_was_put(store: Any, raw: Raw, clock: Any) -> None:
    """Not from its created_at, which its runtime made up, and not from the last time it was put."""
    with store.begin() as tx:
        tx.conversations.messages.put({"id": "ancient", "created_at": 1.0, "role": "user", "content": "x"})
        tx.conversations.messages.put({"id": "future", "created_at": 4e9, "role": "user", "content": "x"})
    assert pruned(store, raw) == NOTHING
    clock.advance(delta=DAY + timedelta(seconds=1))
    put(store, "future")
    assert pruned(store, raw).messages == 2


def test_the_grace_may_be_another(store: Any, raw: Raw, clock: Any) -> None:
    put(store, "m")
    clock.advance(seconds=10)
    assert pruned(store, raw, orphan_grace=timedelta(seconds=10)) == NOTHING
    assert pruned(store, raw, orphan_grace=timedelta(seconds=9)).messages == 1


def test_whatever_names_a_message_keeps_it_from_the_sweep(store: Any, raw: Raw, clock: Any) -> None:
    put(store, "in a progression", "first", "last", "system", "nowhere")
    with store.begin() as tx:
        tx.conversations.progressions.create(ids=["in a progression"])
        sent = tx.conversations.exchange.send(sender="a", recipient=None, content="x").id
    make_session(store, "s", status="running", first_msg_id="first", last_msg_id="last")
    make_branch(store, "s", system_msg_id="system")
    clock.advance(delta=40 * DAY)
    assert pruned(store, raw, keep_n=0).messages == 1
    assert stored(store, "nowhere") == []
    assert len(stored(store, "in a progression", "first", "last", "system", sent)) == 5


def test_what_a_deleted_session_left_is_swept(store: Any, raw: Raw, clock: Any) -> None:
    talk(store, "s", "a", "b")
    with store.begin() as tx:
        tx.conversations.sessions.delete("s")
    assert pruned(store, raw) == NOTHING
    clock.advance(delta=2 * DAY)
    assert pruned(store, raw).messages == 2


def test_a_message_of_another_program_without_an_instant_of_its_own_counts_from_created_at(
    store: Any, raw: Raw, clock: Any
) -> None:
    put(store, "old", "new")
    now = clock().timestamp()
    raw.rows("UPDATE messages SET stored_at = NULL, created_at = ? WHERE id = 'old'", now - 86_401)
    raw.rows("UPDATE messages SET stored_at = NULL, created_at = ? WHERE id = 'new'", now - 86_399)
    assert pruned(store, raw).messages == 1
    assert stored(store, "old", "new") == ["new"]


# ---------------------------------------------------------------- refusals, and all or nothing


def test_a_bad_option_is_named(store: Any, raw: Raw, clock: Any) -> None:
    talk(store, "old", "a")
    clock.advance(delta=400 * DAY)
    before = dump(raw)
    bad: list[tuple[str, Any]] = [
        *(("keep_days", value) for value in (-1, 1.5, True, None, "30", 10**7, 2**63 - 1)),
        *(("keep_n", value) for value in (-1, 1.5, True, None, "100", 2**63)),
        *(("dry_run", value) for value in (0, 1, None, "yes")),
        *(("orphan_grace", value) for value in (1, None, -DAY, timedelta.max)),
    ]
    with store.begin() as tx:
        for name, value in bad:
            with pytest.raises(InvalidValue) as refused:
                tx.conversations.sessions.prune(**{"keep_n": 0, name: value})
            assert refused.value.path == name, (name, value)
        tx.conversations.sessions.get("old")
    assert dump(raw) == before
    assert prune(store, keep_n=2**63 - 1) == NOTHING


def test_a_dry_run_leaves_the_transaction_as_it_was(store: Any, raw: Raw, clock: Any) -> None:
    talk(store, "old", "a")
    clock.advance(delta=40 * DAY)
    with store.begin() as tx:
        tx.conversations.sessions.create(id="before")
        assert tx.conversations.sessions.prune(keep_n=0, dry_run=True).sessions == 1
        tx.conversations.sessions.create(id="after")
        assert tx.conversations.sessions.get("old").id == "old"
    assert set(sessions(store)) == {"old", "before", "after"}
    assert branches(store, "old") == ["old"]


def test_a_prune_that_is_rolled_back_took_nothing(store: Any, raw: Raw, clock: Any) -> None:
    talk(store, "old", "a")
    make_session(store, "new", status="running")
    fork_into(store, "new", "old", 1)
    clock.advance(delta=40 * DAY)
    before = dump(raw)
    with pytest.raises(ZeroDivisionError), store.begin() as tx:
        assert tx.conversations.sessions.prune(keep_n=0).sessions / 0
    assert dump(raw) == before
