"""How a prune goes on in parts: bounded transactions, a valid store between any two of them, and others who write meanwhile."""

import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.conversations import pruning
from persist.errors import Conflict, NotFound, TransactionOpen
from persist.maintenance import maintain, prune
from persist.maintenance.pruning import prune_conversations
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.at_once import together
from tests.concurrency.test_conversation_pruning import until_it_waits
from tests.contract.chat.scenes import create, record, step, text
from tests.contract.conftest import Raw
from tests.contract.histories.scenes import save
from tests.contract.workflows.making import done, make_run, start
from tests.maintenance.pruning_scenes import age
from tests.maintenance.test_pruning import MONTH, errors, limit
from tests.statement_log import seen_statements
from tests.subprocesses import Worker

CHAT = ("chat_sessions", "chat_messages", "chat_parts")
TALK = ("sessions", "branches", "progressions", "progression_members", "messages")
MESSAGES = 1200


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> int:
    limit(monkeypatch, 10)
    return 10


def long_chat(store: Store, messages: int, parts: int = 2) -> str:
    session = create(store)
    with store.begin() as tx:
        for number in range(messages):
            said = [{"type": "text", "text": f"{number}, {part}"} for part in range(parts)]
            tx.chat.messages.append(session, role="user", parts=said)
    return session


def long_talk(store: Store, id: str, messages: int) -> None:
    """Its progression and that of its branch name the same messages."""
    with store.begin() as tx:
        session = tx.conversations.sessions.create(id=id, status="completed")
        branch = tx.conversations.branches.create(id, id=f"{id} branch")
        ids = [f"{id} {number:04}" for number in range(messages)]
        tx.conversations.messages.put_many([{"id": one, "created_at": 1.5, "role": "user", "content": "x"} for one in ids])
        for progression in (session.progression_id, branch.progression_id):
            tx.conversations.progressions.replace(progression, ids)


@pytest.fixture
def talks(store: Store, clock: FrozenClock) -> Store:
    """A long conversation and a short one, both old."""
    long_talk(store, "long", MESSAGES)
    long_talk(store, "short", 2)
    age(clock)
    return store


def counts(url: str, tables: tuple[str, ...] = CHAT) -> list[int]:
    with closing(Raw(url)) as raw:
        return [raw.count(table) for table in tables]


def shown(store: Store, branch: str) -> list[str]:
    return [message.id for message in store.conversations.branches.history(branch)]


@pytest.mark.parametrize(("messages", "parts"), [(25, 2), (1, 45)])
def test_a_long_chat_goes_in_transactions_of_so_many_rows(
    store: Store, url: str, clock: FrozenClock, rows: int, messages: int, parts: int
) -> None:
    """Messages are whole, those that are left are the newest, and only a message of too many parts loses some of them."""
    session = long_chat(store, messages, parts)
    age(clock)
    told, left = [0], list[int]()

    def look(gone: int) -> None:
        told.append(gone)
        found = store.chat.messages.list(session) if store.chat.sessions.list().items else []
        left.append(sum(len(one["parts"]) for one in found))
        if messages > 1:
            texts = [[part["text"] for part in one["parts"]] for one in found]
            assert texts == [[f"{number}, {part}" for part in range(parts)] for number in range(messages - len(found), messages)]

    report = prune(store, "chat", older_than=MONTH, progress=look)
    assert report.tables == {"chat_messages": messages, "chat_parts": messages * parts, "chat_sessions": 1}
    assert max(after - before for before, after in pairwise(told)) <= 2 * rows  # so many below messages, and as many messages
    assert len(told) > 4
    assert counts(url) == [0, 0, 0]
    if messages == 1:
        assert left == [35, 25, 15, 5, 0, 0][: len(left)]


def test_a_chat_that_is_used_again_keeps_what_is_left(store: Store, clock: FrozenClock, rows: int) -> None:
    session = long_chat(store, 25)
    age(clock)
    used: list[int] = []

    def use(gone: int) -> None:
        used.append(gone)
        if len(used) == 1:
            store.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "once more"}])

    prune(store, "chat", older_than=MONTH, progress=use)
    left = store.chat.messages.list(session)
    assert left[-1]["parts"][0]["text"] == "once more"
    assert 15 < len(left) < 26
    assert used == [used[0]] * 2  # the second transaction left it alone


def test_small_ones_go_together(store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    for _ in range(7):
        long_chat(store, 1, parts=1)
    for number in range(3):
        long_talk(store, f"t{number}", 1)
    age(clock)
    told: list[int] = []
    prune(store, "chat", older_than=MONTH, progress=told.append)
    assert told[0] >= 3 * 3  # three chats of three rows each in the first transaction
    assert told[-1] == 21
    sizes: list[Any] = []
    remove = pruning._Sessions.remove

    def counted(self: Any, work: Any, cut: Any, found: Any) -> Any:
        sizes.append([row[1] for row in found])
        return remove(self, work, cut, found)

    monkeypatch.setattr(pruning._Sessions, "remove", counted)
    prune(store, "conversations", older_than=MONTH)
    assert max(map(len, sizes)) > 1


def test_a_long_conversation_becomes_shorter_from_its_end(store: Store, clock: FrozenClock, rows: int, url: str) -> None:
    long_talk(store, "long", 25)
    fork = store.conversations.branches.fork("long branch", at=20)
    age(clock)
    told, lengths = [0], []

    def look(gone: int) -> None:
        told.append(gone)
        if store.conversations.sessions.list().items:
            left = shown(store, "long branch")
            assert left == [f"long {number:04}" for number in range(len(left))]
            assert shown(store, fork.id) == left[:20]
            assert errors(store) == []
            lengths.append(len(left))

    report = prune(store, "conversations", older_than=MONTH, progress=look)
    assert report.tables == {"branches": 2, "messages": 25, "progression_members": 50, "progressions": 3, "sessions": 1}
    assert max(after - before for before, after in pairwise(told)) <= 2 * rows
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) >= 3
    assert counts(url, TALK) == [0] * 5


def test_what_a_fork_of_a_long_conversation_shows_stays(store: Store, clock: FrozenClock, rows: int, url: str) -> None:
    """A fork that another program has put into another session."""
    long_talk(store, "long", 25)
    store.conversations.sessions.create(id="young", status="running")
    fork = store.conversations.branches.fork("long branch")
    with closing(Raw(url)) as raw:
        raw.rows("UPDATE branches SET session_id = 'young' WHERE id = ?", fork.id)
    inherited = shown(store, fork.id)
    age(clock)
    assert prune(store, "conversations", older_than=MONTH).tables["sessions"] == 1
    assert shown(store, fork.id) == inherited
    assert len(inherited) == 25
    assert errors(store) == []


def test_where_one_writes_a_prune_leaves_the_lock_to_others(url: str, clock: FrozenClock, rows: int) -> None:
    """Between two transactions; on a server, where others need other rows, it does not pause."""
    pauses: list[float] = []
    with Store.open(url, clock=clock, sleep=pauses.append) as store:
        long_chat(store, 25)
        age(clock)
        told: list[int] = []
        prune(store, "chat", older_than=MONTH, progress=told.append)
        assert len(pauses) == (len(told) - 1 if store.path else 0)
        assert all(pause > 0 for pause in pauses)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_dry_run_waits_for_nobody_and_nobody_for_it(
    talks: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    before = counts(url, TALK)
    with closing(Raw(url)) as writer:
        writer.rows("BEGIN IMMEDIATE")
        trial = prune(talks, "conversations", older_than=MONTH, dry_run=True)
        few = prune_conversations(talks, keep_days=30, keep_n=0, dry_run=True)
        steps = maintain(talks, dry_run=True)
        writer.rows("COMMIT")
    assert not steps.failed
    assert list(folder.iterdir()) == []
    assert counts(url, TALK) == before
    assert (few.sessions, few.messages) == (2, MESSAGES + 2)
    assert trial.tables == prune(talks, "conversations", older_than=MONTH).tables
    with talks.begin(), pytest.raises(TransactionOpen):
        prune(talks, "conversations", older_than=MONTH, dry_run=True)


class Killed(BaseException):
    """As a kill between two transactions would be."""


def test_others_write_between_the_batches_and_the_next_prune_goes_on(talks: Store, url: str) -> None:
    """The conversation is gone first, and its messages follow."""
    seen: list[int] = []
    with Store.open(url, settings=Settings(busy_timeout_ms=0)) as other:

        def look(rows: int) -> None:
            other.conversations.sessions.create(id=f"new {rows}")
            seen.append(counts(url, ("messages",))[0])
            if seen[-1] == MESSAGES + 2 - 500:
                assert not {one.id for one in other.conversations.sessions.list(limit=100).items} & {"long"}
                raise Killed

        with pytest.raises(Killed):
            prune(talks, "conversations", older_than=MONTH, progress=look)
    assert seen[-2:] == [MESSAGES + 2, 702]
    assert prune(talks, "conversations", older_than=MONTH).tables["messages"] == 702
    assert counts(url, ("messages",)) == [0]


def test_a_transaction_sends_few_statements_however_many_rows_go(
    talks: Store, url: str, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long it holds its locks is how long its statements take, each of which waits for a turn on a busy machine."""
    long_chat(talks, 300)
    age(clock)
    seen = seen_statements(monkeypatch)
    with Store.open(url, clock=clock, sleep=lambda _: None) as other:
        for what, most in (("conversations", 30), ("chat", 16)):
            counted: list[int] = []

            def note(gone: int, counted: list[int] = counted) -> None:
                counted.append(len(list(groupby(seen))))  # SQLite tells of a deletion once more for each row with a foreign key
                seen.clear()

            seen.clear()
            prune(other, what, older_than=MONTH, progress=note)
            assert len(counted) >= 4
            assert max(counted[1:-1]) <= most, what


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("lock", ["branches:short branch", "sessions:short", "history_runs:r", "chat_sessions:"])
def test_what_another_transaction_holds_is_left_for_the_next_prune(
    short_lock_waits: None, store: Store, url: str, clock: FrozenClock, lock: str
) -> None:
    held, chat = create(store), create(store)
    for id in ("long", "short"):
        long_talk(store, id, 2)
    with store.begin() as tx:
        for name in "qrs":
            save(tx, "s", 1, run=name)
    age(clock)
    table, _, id = lock.partition(":")
    what = {"history_runs": "histories", "chat_sessions": "chat"}.get(table, "conversations")
    root = "sessions" if what == "conversations" else table
    with Store.open(url, clock=clock, settings=Settings(busy_timeout_ms=50)) as patient, closing(Raw(url)) as writer:
        writer.rows("BEGIN")
        writer.rows(f"SELECT id FROM {table} WHERE id = '{id or held}' FOR UPDATE")
        told = prune(patient, what, older_than=MONTH, dry_run=True).tables
        gone = prune(patient, what, older_than=MONTH).tables
        writer.rows("ROLLBACK")
        assert told[root] - gone[root] == 1
        assert prune(patient, what, older_than=MONTH).tables[root] == 1
    assert what == "chat" or store.chat.sessions.get(chat).id == chat


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_prompt_that_is_just_being_named_stays(store: Store, url: str, clock: FrozenClock) -> None:
    """Its row is old, and the message that names it is not there for others to see yet."""
    session, digest = create(store), store.chat.prompts.put("be brief")
    age(clock)
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            assert tx.chat.prompts.put("be brief") == digest
            pruned = pool.submit(prune, store, "system_prompts", older_than=MONTH)
            until_it_waits(url, pruned)
            tx.chat.messages.append(session, role="user", parts=[], metadata={"system_prompt_digest": digest})
        assert pruned.result(30).tables == {}
    assert store.chat.prompts.get(digest) == "be brief"


def test_chats_that_are_used_again_in_between_stay(store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes first has it: a recorder is refused as a whole, or nothing of what it uses is missing afterwards."""
    monkeypatch.setattr("persist.db.operations.pruning.Pruning.batch", 3)
    old = [long_chat(store, 2, 1) for _ in range(30)]
    age(clock)
    finished = threading.Event()

    def use() -> list[str]:
        used = []
        try:
            for id in reversed(old):
                with suppress(NotFound, Conflict):  # the prune was faster
                    record(store, id, [{"type": "start"}, *step(*text("again")), {"type": "finish"}])
                    used.append(id)
        finally:
            finished.set()
        return used

    def sweep() -> int:
        gone = 0
        while not finished.is_set():
            gone += prune(store, "chat", older_than=MONTH).tables.get("chat_sessions", 0)
        return gone

    used, gone = together([use, sweep])
    assert len(used) + gone == 30
    assert {session.id for session in store.chat.sessions.list(limit=100).items} == set(used)
    assert [len(store.chat.messages.list(id)) for id in used] == [3] * len(used)


def test_a_run_that_is_restarted_in_between_stays(store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the removal: what was seen is looked at again."""
    runs = [make_run(store).id for _ in range(4)]
    for run in runs:
        done(store, workflow_run_id=run)
        store.workflows.runs.finish(run, "failed")
    age(clock)
    monkeypatch.setattr("persist.db.operations.pruning.Pruning.batch", 1)
    restarted: list[str] = []

    def meanwhile(rows: int) -> None:
        if not restarted:
            store.workflows.runs.restart(runs[2])
            start(store, workflow_run_id=runs[3])
            restarted.append(runs[2])

    report = prune(store, "workflows", older_than=MONTH, progress=meanwhile)
    assert report.tables == {"workflow_runs": 2, "executions": 2}
    assert {run.id for run in store.workflows.runs.list().items} == set(runs[2:])


@pytest.fixture
def begin(url: str) -> Iterator[Any]:
    """Starts the worker; none outlives the test."""
    workers: list[Worker] = []

    def begin(*options: object) -> Worker:
        workers.append(Worker("tests.maintenance.pruning_worker", url, *options))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.close()


@pytest.mark.parametrize(("chats", "messages", "options"), [(60, 2, (5,)), (1, 60, (500, 10))])
def test_a_killed_prune_has_removed_whole_batches(
    store: Store, url: str, begin: Any, clock: FrozenClock, chats: int, messages: int, options: tuple[int, ...]
) -> None:
    """Of many small chats, and of a long one, whose messages are whole."""
    for _ in range(chats):
        long_chat(store, messages, 1)
    process = begin("chat", *options)
    assert int(process.stdout.readline()) > 0
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    sessions, left, parts = counts(url)
    assert parts == left
    assert chats == 1 or (sessions % 5, left) == (0, messages * sessions)
    assert errors(store) == []
    clock.advance(seconds=1)
    assert prune(store, "chat", older_than=timedelta(0)).tables.get("chat_sessions", 0) == sessions
    assert counts(url) == [0, 0, 0]


@pytest.mark.one_database
def test_two_prunes_take_each_row_once(store: Store, begin: Any) -> None:
    with store.begin() as tx:
        for number in range(300):
            tx.telemetry.tools.record("bash", instance_id=f"box{number % 3}")
    said = [process.communicate(timeout=60)[0].split() for process in [begin("tool_history", 10) for _ in range(2)]]
    assert [lines[-1] for lines in said] == ["done", "done"]
    assert sum(max([0, *map(int, lines[:-1])]) for lines in said) == 300
