"""How long a prune keeps others waiting: a dry run never, a real one for a batch at a time."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.conversations import pruning
from persist.errors import TransactionOpen
from persist.maintenance import maintain, prune
from persist.maintenance.pruning import prune_conversations
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.contract.histories.scenes import save
from tests.maintenance.pruning_scenes import DAY
from tests.statement_log import seen_statements

MESSAGES = 1200
TABLES = ("sessions", "branches", "progressions", "progression_members", "messages")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    """A long conversation and a short one, both old."""
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            for name, count in (("long", MESSAGES), ("short", 2)):
                tx.conversations.sessions.create(id=name, status="completed")
                tx.conversations.branches.create(name, id=f"{name} branch")
                made: list[dict[str, Any]] = [
                    {"id": f"{name} {n}", "created_at": 1.5, "role": "user", "content": "x"} for n in range(count)
                ]
                tx.conversations.messages.put_many(made)
                progression = tx.conversations.branches.get(f"{name} branch").progression_id
                tx.conversations.progressions.replace(progression, [str(message["id"]) for message in made])
        clock.advance(delta=40 * DAY)
        yield store


def counts(url: str) -> list[int]:
    with closing(Raw(url)) as raw:
        return [raw.count(table) for table in TABLES]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_dry_run_waits_for_nobody_and_nobody_for_it(store: Store, database_url: str, folder: Path) -> None:
    before = counts(database_url)
    with closing(Raw(database_url)) as writer:
        writer.rows("BEGIN IMMEDIATE")
        trial = prune(store, "conversations", older_than=30 * DAY, dry_run=True)
        few = prune_conversations(store, keep_days=30, keep_n=0, dry_run=True)
        steps = maintain(store, dry_run=True)
        writer.rows("COMMIT")
    assert not steps.failed
    assert list(folder.iterdir()) == []
    assert counts(database_url) == before
    assert (few.sessions, few.messages) == (2, MESSAGES + 2)
    assert trial.tables == prune(store, "conversations", older_than=30 * DAY).tables
    with store.begin(), pytest.raises(TransactionOpen):
        prune(store, "conversations", older_than=30 * DAY, dry_run=True)


def test_the_verb_and_the_batches_count_alike(store: Store, folder: Path) -> None:
    with store.begin() as tx:
        told = tx.conversations.sessions.prune(keep_days=30, keep_n=0, dry_run=True)
    assert prune_conversations(store, keep_days=30, keep_n=0, dry_run=True) == told
    assert prune_conversations(store, keep_days=30, keep_n=0) == told


def test_others_write_between_the_batches_of_one_conversation(store: Store, database_url: str) -> None:
    seen: list[list[int]] = []
    with Store.open(database_url, settings=Settings(busy_timeout_ms=0)) as other:

        def look(rows: int) -> None:
            with other.begin() as tx:
                tx.conversations.sessions.create(id=f"new {rows}")
            with other.read() as tx:
                assert not {one.id for one in tx.conversations.sessions.list(limit=100).items} & {"long"}
            seen.append(counts(database_url))

        prune(store, "conversations", older_than=30 * DAY, progress=look)
    messages = [found[-1] for found in seen]
    assert messages[0] == MESSAGES + 2  # the conversation is gone, and its messages follow
    assert sorted(set(messages), reverse=True) == [1202, 702, 202, 0]


def test_a_transaction_sends_few_statements_however_many_rows_go(
    store: Store, database_url: str, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long it holds its locks is how long its statements take, each of which waits for a turn on a busy machine."""
    with store.begin() as tx:
        chat = tx.chat.sessions.create(agent="build", model={}).id
        for number in range(300):
            tx.chat.messages.append(chat, role="user", parts=[{"type": "text", "text": f"{number}, {part}"} for part in "ab"])
    clock.advance(delta=40 * DAY)
    seen = seen_statements(monkeypatch)
    with Store.open(database_url, clock=clock, sleep=lambda _: None) as other:
        for what, most in (("conversations", 30), ("chat", 16)):
            counted: list[int] = []

            def note(gone: int, counted: list[int] = counted) -> None:
                counted.append(len(list(groupby(seen))))  # SQLite tells of a deletion once more for each row with a foreign key
                seen.clear()

            seen.clear()
            prune(other, what, older_than=30 * DAY, progress=note)
            assert len(counted) >= 4
            assert max(counted[1:-1]) <= most, what


class Killed(BaseException):
    """As a kill between two transactions would be."""


def test_the_next_prune_goes_on_where_one_was_killed(store: Store, database_url: str) -> None:
    calls: list[int] = []

    def die(rows: int) -> None:
        calls.append(rows)
        if len(calls) == 2:
            raise Killed

    with pytest.raises(Killed):
        prune(store, "conversations", older_than=30 * DAY, progress=die)
    assert counts(database_url) == [0, 0, 0, 0, 702]
    with store.read() as tx:
        assert tx.conversations.sessions.list().items == []
    assert prune(store, "conversations", older_than=30 * DAY).tables == {"messages": 702}
    assert counts(database_url) == [0, 0, 0, 0, 0]


def test_conversations_go_together_as_long_as_they_are_small(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning._Sessions, "rows", 1000)
    sizes: list[Any] = []
    remove = pruning._Sessions.remove

    def counted(self: Any, work: Any, cut: Any, found: Any) -> Any:
        sizes.append([row[1] for row in found])
        return remove(self, work, cut, found)

    monkeypatch.setattr(pruning._Sessions, "remove", counted)
    prune(store, "conversations", older_than=30 * DAY)
    assert sorted(sizes) == [["long"], ["long"], ["short"]]  # the long one in two transactions


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize(
    "lock", ["branches WHERE id = 'short branch'", "sessions WHERE id = 'short'", "history_runs WHERE id = 'r'"]
)
def test_what_another_transaction_holds_is_left_for_the_next_prune(
    store: Store, database_url: str, clock: FrozenClock, lock: str
) -> None:
    with store.begin() as tx:
        for name in "qrs":
            save(tx, "s", 1, run=name)
    clock.advance(delta=40 * DAY)
    what, table = ("histories", "history_runs") if "history" in lock else ("conversations", "sessions")
    with (
        Store.open(database_url, clock=clock, settings=Settings(busy_timeout_ms=50)) as patient,
        closing(Raw(database_url)) as writer,
    ):
        writer.rows("BEGIN")
        writer.rows(f"SELECT id FROM {lock} FOR UPDATE")
        told = prune(patient, what, older_than=30 * DAY, dry_run=True).tables
        gone = prune(patient, what, older_than=30 * DAY).tables
        writer.rows("ROLLBACK")
        assert told[table] - gone[table] == 1
        assert prune(patient, what, older_than=30 * DAY).tables[table] == 1
