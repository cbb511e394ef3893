"""How a prune goes on in parts: bounded transactions, a valid store between any two of them, and others who write meanwhile."""

import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
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
from tests.concurrency.test_conversation_pruning import until_it_waits
from tests.concurrency.test_threads import together
from tests.contract.chat.scenes import create, record, step, text
from tests.contract.conftest import Raw
from tests.contract.histories.scenes import save
from tests.contract.workflows.making import done, make_run, start
from tests.maintenance.pruning_scenes import DAY, age
from tests.maintenance.test_pruning import errors, limit
from tests.statement_log import seen_statements
from tests.subprocesses import Worker

TABLES = ("chat_sessions", "chat_messages", "chat_parts")


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


def counts(url: str) -> list[int]:
    with closing(Raw(url)) as raw:
        return [raw.count(table) for table in TABLES]


def test_a_long_chat_goes_in_transactions_of_so_many_rows(store: Store, database_url: str, clock: FrozenClock, rows: int) -> None:
    session = long_chat(store, 25)
    age(clock)
    told: list[int] = []

    def look(gone: int) -> None:
        told.append(gone)
        with store.read() as tx:
            left = tx.chat.messages.list(session) if tx.chat.sessions.list().items else []
        # messages are whole, and those that are left are the newest
        assert [[part["text"] for part in one["parts"]] for one in left] == [
            [f"{number}, {part}" for part in range(2)] for number in range(25 - len(left), 25)
        ]

    report = prune(store, "chat", older_than=30 * DAY, progress=look)
    assert report.tables == {"chat_messages": 25, "chat_parts": 50, "chat_sessions": 1}
    steps = [after - before for before, after in zip([0, *told], told, strict=False)]
    assert max(steps) <= 2 * rows  # so many rows below messages, and as many messages
    assert len(steps) > 3
    assert counts(database_url) == [0, 0, 0]


def test_a_message_of_many_parts_goes_in_parts(store: Store, database_url: str, clock: FrozenClock, rows: int) -> None:
    session = long_chat(store, 1, parts=45)
    age(clock)
    seen: list[int] = []

    def look(gone: int) -> None:
        with store.read() as tx:
            if tx.chat.sessions.list().items:
                seen.append(sum(len(one["parts"]) for one in tx.chat.messages.list(session)))

    assert prune(store, "chat", older_than=30 * DAY, progress=look).total == 47
    assert seen == [35, 25, 15, 5, 0][: len(seen)]
    assert len(seen) >= 4


def test_a_chat_that_is_used_again_keeps_what_is_left(store: Store, clock: FrozenClock, rows: int) -> None:
    session = long_chat(store, 25)
    age(clock)
    used: list[int] = []

    def use(gone: int) -> None:
        used.append(gone)
        with store.begin() as tx:
            if len(used) == 1:
                tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "once more"}])

    prune(store, "chat", older_than=30 * DAY, progress=use)
    left = store.chat.messages.list(session)
    assert left[-1]["parts"][0]["text"] == "once more"
    assert 15 < len(left) < 26
    assert used == [used[0]] * 2  # the second transaction left it alone


def test_small_chats_still_go_together(store: Store, clock: FrozenClock, rows: int) -> None:
    for _ in range(7):
        long_chat(store, 1, parts=1)
    age(clock)
    told: list[int] = []
    prune(store, "chat", older_than=30 * DAY, progress=told.append)
    assert told[0] >= 3 * 3  # three chats of three rows each in the first transaction
    assert told[-1] == 21


def long_conversation(store: Store, messages: int) -> None:
    """Its progression and that of its branch name the same messages."""
    with store.begin() as tx:
        tx.conversations.sessions.create(id="long", status="completed")
        branch = tx.conversations.branches.create("long", id="branch")
        made: list[dict[str, Any]] = [
            {"id": f"m{n:03}", "created_at": 1.5, "role": "user", "content": "x"} for n in range(messages)
        ]
        tx.conversations.messages.put_many(made)
        ids = [str(message["id"]) for message in made]
        tx.conversations.progressions.replace(branch.progression_id, ids)
        tx.conversations.progressions.replace(tx.conversations.sessions.get("long").progression_id, ids)


def shown(store: Store, branch: str) -> list[str]:
    return [message.id for message in store.conversations.branches.history(branch)]


def test_a_long_conversation_becomes_shorter_from_its_end(store: Store, clock: FrozenClock, rows: int, database_url: str) -> None:
    long_conversation(store, 35)
    fork = store.conversations.branches.fork("branch", at=30)
    age(clock)
    told, lengths = [0], []

    def look(gone: int) -> None:
        told.append(gone)
        there = store.conversations.sessions.list().items
        if there:
            left = shown(store, "branch")
            assert left == [f"m{number:03}" for number in range(len(left))]
            assert shown(store, fork.id) == left[:30]
            assert errors(store) == []
            lengths.append(len(left))

    report = prune(store, "conversations", older_than=30 * DAY, progress=look)
    assert report.tables == {"branches": 2, "messages": 35, "progression_members": 70, "progressions": 3, "sessions": 1}
    assert max(after - before for before, after in pairwise(told)) <= 2 * rows
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) >= 3
    with closing(Raw(database_url)) as raw:
        assert [raw.count(table) for table in report.tables] == [0] * 5


def test_what_a_fork_of_a_long_conversation_shows_stays(store: Store, clock: FrozenClock, rows: int, database_url: str) -> None:
    """A fork that another program has put into another session."""
    long_conversation(store, 35)
    with store.begin() as tx:
        tx.conversations.sessions.create(id="young", status="running")
        fork = tx.conversations.branches.fork("branch")
    with closing(Raw(database_url)) as raw:
        raw.rows("UPDATE branches SET session_id = 'young' WHERE id = ?", fork.id)
    inherited = shown(store, fork.id)
    age(clock)
    assert prune(store, "conversations", older_than=30 * DAY).tables["sessions"] == 1
    assert shown(store, fork.id) == inherited == [f"m{number:03}" for number in range(35)]
    assert errors(store) == []


def test_where_one_writes_a_prune_leaves_the_lock_to_others(database_url: str, clock: FrozenClock, rows: int) -> None:
    """Between two transactions; on a server, where others need other rows, it does not pause."""
    pauses: list[float] = []
    with Store.open(database_url, clock=clock, sleep=pauses.append) as store:
        long_chat(store, 25)
        age(clock)
        told: list[int] = []
        prune(store, "chat", older_than=30 * DAY, progress=told.append)
        assert len(pauses) == (len(told) - 1 if store.path else 0)
        assert all(pause > 0 for pause in pauses)


# Long conversations, and how long others wait.


MESSAGES = 1200
TALK_TABLES = ("sessions", "branches", "progressions", "progression_members", "messages")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.fixture
def talks(database_url: str, clock: FrozenClock) -> Iterator[Store]:
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


def talk_counts(url: str) -> list[int]:
    with closing(Raw(url)) as raw:
        return [raw.count(table) for table in TALK_TABLES]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_dry_run_waits_for_nobody_and_nobody_for_it(talks: Store, database_url: str, folder: Path) -> None:
    before = talk_counts(database_url)
    with closing(Raw(database_url)) as writer:
        writer.rows("BEGIN IMMEDIATE")
        trial = prune(talks, "conversations", older_than=30 * DAY, dry_run=True)
        few = prune_conversations(talks, keep_days=30, keep_n=0, dry_run=True)
        steps = maintain(talks, dry_run=True)
        writer.rows("COMMIT")
    assert not steps.failed
    assert list(folder.iterdir()) == []
    assert talk_counts(database_url) == before
    assert (few.sessions, few.messages) == (2, MESSAGES + 2)
    assert trial.tables == prune(talks, "conversations", older_than=30 * DAY).tables
    with talks.begin(), pytest.raises(TransactionOpen):
        prune(talks, "conversations", older_than=30 * DAY, dry_run=True)


def test_others_write_between_the_batches_of_one_conversation(talks: Store, database_url: str) -> None:
    seen: list[list[int]] = []
    with Store.open(database_url, settings=Settings(busy_timeout_ms=0)) as other:

        def look(rows: int) -> None:
            other.conversations.sessions.create(id=f"new {rows}")
            assert not {one.id for one in other.conversations.sessions.list(limit=100).items} & {"long"}
            seen.append(talk_counts(database_url))

        prune(talks, "conversations", older_than=30 * DAY, progress=look)
    messages = [found[-1] for found in seen]
    assert messages[0] == MESSAGES + 2  # the conversation is gone, and its messages follow
    assert sorted(set(messages), reverse=True) == [1202, 702, 202, 0]


def test_a_transaction_sends_few_statements_however_many_rows_go(
    talks: Store, database_url: str, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long it holds its locks is how long its statements take, each of which waits for a turn on a busy machine."""
    with talks.begin() as tx:
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


def test_the_next_prune_goes_on_where_one_was_killed(talks: Store, database_url: str) -> None:
    calls: list[int] = []

    def die(rows: int) -> None:
        calls.append(rows)
        if len(calls) == 2:
            raise Killed

    with pytest.raises(Killed):
        prune(talks, "conversations", older_than=30 * DAY, progress=die)
    assert talk_counts(database_url) == [0, 0, 0, 0, 702]
    assert talks.conversations.sessions.list().items == []
    assert prune(talks, "conversations", older_than=30 * DAY).tables == {"messages": 702}
    assert talk_counts(database_url) == [0, 0, 0, 0, 0]


def test_conversations_go_together_as_long_as_they_are_small(talks: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning._Sessions, "rows", 1000)
    sizes: list[Any] = []
    remove = pruning._Sessions.remove

    def counted(self: Any, work: Any, cut: Any, found: Any) -> Any:
        sizes.append([row[1] for row in found])
        return remove(self, work, cut, found)

    monkeypatch.setattr(pruning._Sessions, "remove", counted)
    prune(talks, "conversations", older_than=30 * DAY)
    assert sorted(sizes) == [["long"], ["long"], ["short"]]  # the long one in two transactions


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize(
    "lock", ["branches WHERE id = 'short branch'", "sessions WHERE id = 'short'", "history_runs WHERE id = 'r'"]
)
def test_what_another_transaction_holds_is_left_for_the_next_prune(
    talks: Store, database_url: str, clock: FrozenClock, lock: str
) -> None:
    with talks.begin() as tx:
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


# Beside writers, beside another prune, and killed in the middle.


postgres = pytest.mark.parametrize("backend", ["postgres"])
Prune = Callable[..., Worker]


@pytest.fixture
def begun(database_url: str) -> Iterator[Prune]:
    """Starts the worker; none outlives the test."""
    with ExitStack() as stack:

        def begin(what: str, batch: int) -> Worker:
            worker = Worker("tests.maintenance.pruning_worker", database_url, what, batch)
            stack.callback(worker.close)
            return worker

        yield begin


def chats(store: Store, count: int) -> list[str]:
    """Chats with two messages of one part each."""
    ids = []
    for _ in range(count):
        ids.append(create(store))
        with store.begin() as tx:
            for role in ("user", "assistant"):
                tx.chat.messages.append(ids[-1], role=role, parts=[{"type": "text", "text": "hi"}])
    return ids


def test_a_killed_prune_has_removed_whole_batches(store: Store, database_url: str, begun: Prune, clock: FrozenClock) -> None:
    chats(store, 60)
    process = begun("chat", 5)
    assert [int(process.stdout.readline()) for _ in range(3)] == [25, 50, 75]
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    with closing(Raw(database_url)) as raw:
        left = raw.count("chat_sessions")
        assert left <= 45
        assert left % 5 == 0
        assert (raw.count("chat_messages"), raw.count("chat_parts")) == (2 * left, 2 * left)
        clock.advance(seconds=1)
        report = prune(store, "chat", older_than=timedelta(0))
        assert report.tables.get("chat_sessions", 0) == left
        assert [raw.count(table) for table in ("chat_sessions", "chat_messages", "chat_parts")] == [0, 0, 0]


def test_two_prunes_take_each_row_once(store: Store, database_url: str, begun: Prune, clock: FrozenClock) -> None:
    with store.begin() as tx:
        for number in range(300):
            tx.telemetry.tools.record("bash", instance_id=f"box{number % 3}")
    processes = [begun("tool_history", 10) for _ in range(2)]
    said = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [lines[-1] for lines in said] == ["done", "done"]
    assert sum(max([0, *map(int, lines[:-1])]) for lines in said) == 300


def test_chats_that_are_used_again_in_between_stay(store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes first has it: a recorder is refused as a whole, or nothing of what it uses is missing afterwards."""
    monkeypatch.setattr("persist.db.operations.pruning.Pruning.batch", 3)
    old = chats(store, 40)
    clock.advance(delta=40 * DAY)
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
            gone += prune(store, "chat", older_than=30 * DAY).tables.get("chat_sessions", 0)
        return gone

    used, gone = together([use, sweep])
    assert len(used) + gone == 40
    with store.read() as tx:
        assert {session.id for session in tx.chat.sessions.list(limit=100).items} == set(used)
        assert [len(tx.chat.messages.list(id)) for id in used] == [3] * len(used)


@postgres
def test_what_somebody_holds_is_left_for_the_next_time(store: Store, clock: FrozenClock) -> None:
    held, idle = create(store), create(store)
    clock.advance(delta=40 * DAY)
    with ThreadPoolExecutor(1) as pool, store.begin() as tx:
        tx.chat.sessions.update_metadata(held, {"title": "again"})
        report = pool.submit(prune, store, "chat", older_than=30 * DAY).result(30)
        assert report.tables == {"chat_sessions": 1}
    with store.read() as tx:
        assert tx.chat.sessions.get(held).id == held
        with pytest.raises(NotFound):
            tx.chat.sessions.get(idle)


@postgres
def test_a_prompt_that_is_just_being_named_stays(store: Store, database_url: str, clock: FrozenClock) -> None:
    """Its row is old, and the message that names it is not there for others to see yet."""
    session = create(store)
    digest = store.chat.prompts.put("be brief")
    clock.advance(delta=40 * DAY)
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            assert tx.chat.prompts.put("be brief") == digest
            pruned = pool.submit(prune, store, "system_prompts", older_than=30 * DAY)
            until_it_waits(database_url, pruned)
            tx.chat.messages.append(session, role="user", parts=[], metadata={"system_prompt_digest": digest})
        assert pruned.result(30).tables == {}
    assert store.chat.prompts.get(digest) == "be brief"


def test_a_run_that_is_restarted_in_between_stays(store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the removal: what was seen is looked at again."""
    runs = [make_run(store).id for _ in range(4)]
    for run in runs:
        done(store, workflow_run_id=run)
        store.workflows.runs.finish(run, "failed")
    clock.advance(delta=40 * DAY)
    monkeypatch.setattr("persist.db.operations.pruning.Pruning.batch", 1)
    restarted: list[str] = []

    def meanwhile(rows: int) -> None:
        if not restarted:
            store.workflows.runs.restart(runs[2])
            start(store, workflow_run_id=runs[3])
            restarted.append(runs[2])

    report = prune(store, "workflows", older_than=30 * DAY, progress=meanwhile)
    assert report.tables == {"workflow_runs": 2, "executions": 2}
    assert {run.id for run in store.workflows.runs.list().items} == set(runs[2:])
