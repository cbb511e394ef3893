"""A dry run on a server counts what a prune then removes, also where conversations and histories share what they name."""

from contextlib import closing
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from persist import Store
from persist.conversations.schemas import PruneReport
from persist.framework_state.histories.schemas import Message
from persist.maintenance import doctor, prune
from persist.maintenance.pruning import prune_conversations
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import message
from tests.contract.histories.scenes import entry, put
from tests.maintenance.pruning_scenes import DAY, all_locked

CONVERSATIONS = ("sessions", "exchange_items", "messages", "conversations")
HISTORIES = ("history_records", "history_runs", "histories")


def converse(tx: Any, chance: Random, round: int) -> None:
    """Three sessions with branches and forks that share messages, progressions, pointers and letters; some are running."""
    messages = [f"{round}-m{number}" for number in range(12)]
    tx.conversations.messages.put_many([message(id) for id in messages])
    pools: list[str] = []
    for number in range(3):
        some = chance.sample(messages, 4)
        pointers = {"first_msg_id": some[0], "last_msg_id": some[1]} if chance.random() < 0.5 else {}
        status = chance.choice(["completed", "running", None])
        session = tx.conversations.sessions.create(id=f"{round}-s{number}", status=status, **pointers)
        pools.append(session.progression_id)
        for kind in range(chance.randrange(3)):
            system = chance.choice([None, *messages])
            branch = tx.conversations.branches.create(session.id, id=f"{round}-b{number}{kind}", system_msg_id=system)
            tx.conversations.progressions.replace(branch.progression_id, chance.sample(messages, chance.randrange(5)))
            if chance.random() < 0.5:
                tx.conversations.branches.fork(branch.id, new_id=f"{branch.id}-fork")
        tx.conversations.progressions.replace(session.progression_id, some)
    for number in range(2):
        sent = tx.conversations.exchange.send(sender="a", recipient="b", content="x", id=f"{round}-letter{number}")
        if chance.random() < 0.5:
            tx.conversations.exchange.mark_read("b", sent.id)
        if chance.random() < 0.5:
            tx.conversations.progressions.replace(chance.choice(pools), [sent.id])


def remember(tx: Any, chance: Random, round: int, clock: FrozenClock) -> None:
    """A tree of messages in which conversations and runs end; some wait for results of tool calls."""
    tree = [entry(f"{round}-e{number}", f"{round}-e{chance.randrange(number)}" if number else None) for number in range(9)]
    put(tx, f"{round}-whole", "1", None, tree[-1].id, tree, updated_at=clock())
    for number in range(3):
        left = [one.id for one in chance.sample(tree, chance.randrange(3))]
        waits: dict[str, Any] = {"deferred": {"calls": []}} if chance.random() < 0.3 else {}
        put(tx, f"{round}-h{number}", "1", None, chance.choice(tree).id, branches=left, updated_at=clock(), **waits)
    tx.histories.records.delete(f"{round}-whole")
    said = [Message({"said": letter}) for letter in "abcd"]
    for number in range(2):
        for step in range(2):
            at = clock() + timedelta(seconds=step)
            upto = said[: chance.randrange(1, 5)]
            tx.histories.snapshots.save(f"{round}-r{number}", upto, state="complete", step_index=step, taken_at=at)
    reached = tx.histories.snapshots.list(f"{round}-r0")[-1].entries[-1].id
    put(tx, f"{round}-on", "1", None, f"{round}-more", [entry(f"{round}-more", reached)], updated_at=clock())


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("keep", [0, 2])
def test_a_count_without_a_lock_is_what_goes(store: Store, url: str, clock: FrozenClock, keep: int) -> None:
    """Scenes by chance: some is old, some is young, and a prune of one table leaves what others still name."""
    chance = Random(keep)
    with closing(Raw(url)) as writer:
        for round, what in enumerate([*CONVERSATIONS, *HISTORIES] * 2):
            for part, days in enumerate((40, 20)):
                with store.begin() as tx:
                    if what in CONVERSATIONS:
                        converse(tx, chance, 2 * round + part)
                    else:
                        remember(tx, chance, 2 * round + part, clock)
                clock.advance(delta=timedelta(days=days))
            with all_locked(writer):
                expected = prune(store, what, older_than=30 * DAY, keep=keep, dry_run=True).tables
            assert prune(store, what, older_than=30 * DAY, keep=keep).tables == expected
            assert sum(expected.values()) > 3 or what == "messages"
    assert [one.code for one in doctor(store) if one.severity == "error"] == []


@pytest.mark.parametrize("backend", ["postgres"])
def test_the_verb_and_the_command_count_without_a_lock(store: Store, url: str, clock: FrozenClock) -> None:
    with store.begin() as tx:
        converse(tx, Random(7), 1)
    clock.advance(delta=40 * DAY)
    with closing(Raw(url)) as writer, all_locked(writer):
        told = prune_conversations(store, keep_days=30, keep_n=1, dry_run=True)
        assert store.conversations.sessions.prune(keep_days=30, keep_n=1, dry_run=True) == told
    assert told.sessions > 0
    assert told.messages > 0
    assert prune_conversations(store, keep_days=30, keep_n=1) == told


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("old", [False, True])
def test_what_a_fork_in_another_session_inherits_is_counted_by_a_trial(
    store: Store, url: str, clock: FrozenClock, old: bool
) -> None:
    """Another program has put it there. The trial rolls back: it changes nothing, and says what goes."""
    with store.begin() as tx:
        for name in ("from", "to"):
            tx.conversations.sessions.create(id=name, status="completed" if old or name == "from" else "running")
        branch = tx.conversations.branches.create("from")
        tx.conversations.messages.put_many([message("m")])
        tx.conversations.progressions.replace(branch.progression_id, ["m"])
        fork = tx.conversations.branches.fork(branch.id)
    with closing(Raw(url)) as raw:
        raw.rows("UPDATE branches SET session_id = 'to' WHERE id = ?", fork.id)
    clock.advance(delta=40 * DAY)
    told = store.conversations.sessions.prune(keep_days=30, keep_n=0, dry_run=True)
    assert told == PruneReport(sessions=1 + old, branches=1 + old, progressions=2 * (1 + old), messages=int(old))
    expected = prune(store, "conversations", older_than=30 * DAY, dry_run=True).tables
    assert prune(store, "conversations", older_than=30 * DAY).tables == expected


def test_more_conversations_than_a_look_shows_all_go(store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("persist.maintenance.pruning", "persist.conversations.pruning"):
        monkeypatch.setattr(f"{module}.MOST_CANDIDATES", 2)
    with store.begin() as tx:
        for number in range(5):
            tx.conversations.sessions.create(id=f"s{number}")
    clock.advance(delta=40 * DAY)
    told = prune(store, "sessions", older_than=30 * DAY, dry_run=True).tables
    assert prune(store, "sessions", older_than=30 * DAY).tables == told == {"sessions": 5, "progressions": 5}
