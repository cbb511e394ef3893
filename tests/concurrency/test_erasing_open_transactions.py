"""A person is erased while others write: what is committed afterwards by a transaction that had written goes, too."""

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest

from persist import Store
from persist.errors import StoreBusy
from persist.framework_state.agent_tasks.schemas import Piece
from persist.framework_state.app_sessions.schemas import ArtifactKey, NewEvent, NewMemory, StateChange
from persist.framework_state.checkpoints.schemas import Blob
from persist.framework_state.histories.schemas import Message, NewEntry
from persist.maintenance import EraseReport, doctor, erase, erasure_marks, maintain
from persist.testing import START
from tests.concurrency.test_conversation_pruning import postgres, until_it_waits
from tests.maintenance.erasing_scenes import places_of

R, NEEDLE = "maria-1", "needle-in-the-haystack"
SAID = {"a": NEEDLE}
TEXT = [{"type": "text", "text": NEEDLE}]
STARTED = {"trigger_type": "chat", "trigger_id": "x"}


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url, events=True) as store:
        yield store


def scene(store: Store) -> None:
    """One thing of each domain, in which nothing says what the writers say."""
    with store.begin() as tx:
        tx.programs.runs.create(id=R)
        tx.programs.agents.start(R, "captain", resume=False)
        tx.programs.executions.begin(R, statement_index=1, statement_text="x")
        tx.checkpoints.states.put(R, "1", head=Blob("json", b"x"), metadata={}, versions={}, values={})
        tx.replay_streams.messages.append(R, "1", "x")
        tx.transcripts.entries.append("-w", R, [{"type": "user"}])
        tx.workflows.runs.create("w", trigger_id="t", current_phase="p", id=R)
        tx.conversations.sessions.create(id=R, user="maria")
        tx.conversations.branches.create(R, id="branch")
        tx.chat.sessions.create(id=R, agent="a", model={}, owner="maria")
        tx.app_sessions.sessions.create("app", "maria", R)
        tx.histories.runs.register(R, conversation_id=R, agent_name="a", started_at=START)
        entry = NewEntry("entry", None, Message({}))
        tx.histories.records.put(R, revision="1", expected_revision=None, head_id=entry.id, entries=[entry], updated_at=START)
        tx.agent_tasks.tasks.save("maria", R, state="working", head=b"x", pieces=[], context_id=R, status_key="1")


def rows_of_a_program(tx: Any) -> None:
    tx.programs.bindings.bind(R, "n", NEEDLE)
    tx.programs.imports.add(R, "al", f"https://example.com/{NEEDLE}")
    tx.programs.executions.begin(R, statement_index=2, statement_text=NEEDLE)
    tx.programs.agents.start(R, NEEDLE, resume=False)


def rows_of_their_own(tx: Any) -> None:
    """Rows with no row above them, some of them the first under these names."""
    tx.telemetry.status.record("idle", metadata=SAID, instance_id=R)
    tx.telemetry.tags.record("issue", f"https://example.com/{NEEDLE}", instance_id=R)
    tx.usage.calls.record(model=NEEDLE, owner="maria", instance_id="other", error=NEEDLE)
    tx.usage.budgets.set("owner:maria", "day", 1, timezone="UTC")
    tx.checkpoints.memories.put(("people", "maria", "new"), "likes", SAID)
    tx.app_sessions.memories.add("app", "maria", "new", [NewMemory("m", "{}", NEEDLE, [NEEDLE])])
    tx.app_sessions.artifacts.save(ArtifactKey("app", "maria", None, "file"), f'{{"a": "{NEEDLE}"}}', data=b"x")
    tx.agent_tasks.webhooks.set(R, "w1", owner="maria", data=NEEDLE.encode())


def rows_that_name_others(tx: Any) -> None:
    step = tx.workflows.executions.start(skill=NEEDLE, **STARTED)
    tx.workflows.executions.set_session(step.id, R)
    tx.workflows.executions.start(skill=NEEDLE, workflow_run_id=R, **STARTED)
    tx.conversations.sessions.create(id="friend")
    tx.conversations.branches.create("friend", id="of a friend")
    tx.conversations.exchange.send(sender="of a friend", recipient="branch", content=SAID, channel="c")


def rows_below_others(tx: Any) -> None:
    tx.workflows.signals.send(R, "s", SAID)
    tx.checkpoints.states.put(R, "2", head=Blob("json", NEEDLE.encode()), metadata=SAID, versions={}, values={})
    tx.replay_streams.messages.append(R, "2", NEEDLE)
    tx.transcripts.entries.append("-w", R, [{"type": "user", "x": NEEDLE}])
    tx.conversations.messages.record("branch", {"id": "m1", "created_at": 1.5, "role": "user", "content": SAID})
    tx.chat.messages.append(R, role="user", parts=TEXT)
    tx.histories.run_events.append(R, "run_started", step_index=0, at=START, error=NEEDLE)
    state = StateChange(user={"a": f'"{NEEDLE}"'})
    tx.app_sessions.sessions.append("app", "maria", R, NewEvent("e", 1.5, f'{{"a":"{NEEDLE}"}}'), state=state)
    pieces = [Piece("history", 0, 0, NEEDLE.encode())]
    tx.agent_tasks.tasks.save("maria", R, state="working", head=b"x", pieces=pieces, context_id=R, status_key="2")


def statement_below_another(tx: Any) -> None:
    first = tx.programs.executions.list(R)[0]
    tx.programs.executions.begin(R, statement_index=2, statement_text=NEEDLE, parent_id=first.id)


def segment_of_an_agent(tx: Any) -> None:
    tx.programs.agents.add_segment(R, "captain", prompt=NEEDLE, summary="s")


def further_branch(tx: Any) -> None:
    tx.conversations.branches.create(R, id="further")
    tx.conversations.messages.record("further", {"id": "m2", "created_at": 1.5, "role": "user", "content": SAID})


def fork_of_a_branch(tx: Any) -> None:
    tx.conversations.sessions.create(id="taken over", name=NEEDLE)
    tx.conversations.branches.create("taken over", node_metadata={"parent_branch_id": "branch", "forked_at_ord": 0})


def fork_of_a_chat(tx: Any) -> None:
    said = tx.chat.messages.append(R, role="user", parts=TEXT)
    tx.chat.messages.append(tx.chat.sessions.fork(R, said.id).id, role="user", parts=TEXT)


def fork_of_a_history(tx: Any) -> None:
    entry = NewEntry("entry-2", "entry", Message(SAID))
    fork = {"forked_from": R, "forked_at": "entry", "updated_at": START}
    tx.histories.records.put("fork", revision="1", expected_revision=None, head_id=entry.id, entries=[entry], **fork)


def run_below_a_run(tx: Any) -> None:
    tx.workflows.runs.create("w", trigger_id="t2", current_phase="p", parent_run_id=R, context=SAID)


def rows_that_go_again(tx: Any) -> None:
    """Nobody ever sees these rows. The log of events has them, in streams that are known and in others."""
    tx.checkpoints.memories.put(("people", "maria"), "likes", SAID)
    tx.checkpoints.memories.delete(("people", "maria"), "likes")
    kept = ArtifactKey("app", "maria", None, "gone again")
    tx.app_sessions.artifacts.save(kept, f'{{"a": "{NEEDLE}"}}', data=b"x")
    tx.app_sessions.artifacts.delete(kept)
    tx.agent_tasks.webhooks.set(R, "gone again", owner="maria", data=NEEDLE.encode())
    tx.agent_tasks.webhooks.delete(R, id="gone again", owner="maria")
    tx.chat.messages.delete(tx.chat.messages.append(R, role="user", parts=TEXT).id)
    tx.chat.sessions.create(id="gone again", agent="a", model={}, owner="maria", metadata=SAID)
    tx.chat.sessions.delete("gone again")


WRITES: list[Callable[[Any], None]] = [
    rows_of_a_program,
    rows_of_their_own,
    rows_that_name_others,
    rows_below_others,
    statement_below_another,
    segment_of_an_agent,
    further_branch,
    fork_of_a_branch,
    fork_of_a_chat,
    fork_of_a_history,
    run_below_a_run,
    rows_that_go_again,
]


class Telling:
    """Takes note when an erasure waits for transactions that were writing."""

    def __init__(self) -> None:
        self.waits = threading.Event()

    def __call__(self, what: str, done: int, total: int) -> None:
        assert done <= total
        if what == "what others are writing":
            self.waits.set()

    def until_it_waits(self, url: str, erasing: "Future[EraseReport]") -> None:
        """Until the erasure waits for a row, or for writers, or is over."""
        until_it_waits(url, erasing, self.waits.is_set)


def erase_maria(store: Store, progress: Callable[[str, int, int], object]) -> EraseReport:
    return erase(store, owner="maria", session_id=R, namespace="people.maria", progress=progress)


@postgres
def test_what_was_being_written_is_erased_too(store: Store, database_url: str) -> None:
    with Store.open(database_url) as other, Store.open(database_url) as third, ThreadPoolExecutor(1) as pool:
        for write in WRITES:
            scene(store)
            telling = Telling()
            with other.begin() as tx:
                write(tx)
                erasing = pool.submit(erase_maria, store, telling)
                telling.until_it_waits(database_url, erasing)
                assert not erasing.done(), write
                if write is rows_of_their_own:  # the erasure holds nothing that stops a writer
                    third.programs.runs.create(id="ann's")
                    third.programs.bindings.bind("ann's", "n", "x")
                    third.telemetry.tags.record("issue", "https://example.com/x", instance_id="ann's")
                    third.agent_tasks.webhooks.set("ann's", "w1", owner="ann", data=b"x")
            erasing.result(60)
            assert places_of(database_url, NEEDLE) == set(), write
    assert doctor(store) == []


@postgres
def test_a_writer_that_goes_on_leaves_the_erasure_unfinished(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene(store)
    monkeypatch.setattr(erasure_marks, "_PATIENCE", 0.0)
    with Store.open(database_url) as other:
        with other.begin() as tx:
            rows_of_their_own(tx)
            with ThreadPoolExecutor(1) as pool, pytest.raises(StoreBusy, match="persist maintain"):
                pool.submit(erase_maria, store, Telling()).result(60)
            assert [problem.code for problem in doctor(store)] == ["erasure_unfinished"]
        maintain(store)
    assert places_of(database_url, NEEDLE) == set()
    assert doctor(store) == []


@contextmanager
def locks_a_row(url: str) -> Iterator[None]:
    """A transaction that has locked a row of somebody else, and may write what depends on it."""
    with psycopg.connect(url) as raw:
        assert raw.execute("SELECT FROM persist.run WHERE id = 'ann' FOR SHARE").rowcount == 1
        yield


@contextmanager
def is_prepared(url: str) -> Iterator[None]:
    """A transaction that has written, is prepared to commit, and belongs to no process any more."""
    name = f"persist-test-{secrets.token_hex(8)}"
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("BEGIN; SET LOCAL persist.keeps_event_log = 'on'")
        raw.execute("UPDATE persist.run SET updated_at = updated_at WHERE id = 'ann'")
        if raw.execute("SHOW max_prepared_transactions").fetchall() == [("0",)]:  # such a server has none of these
            yield
            raw.execute("ROLLBACK")
            return
        raw.execute(f"PREPARE TRANSACTION '{name}'")
        try:
            yield
        finally:
            raw.execute(f"COMMIT PREPARED '{name}'")


@postgres
@pytest.mark.parametrize("holding", [locks_a_row, is_prepared])
def test_who_is_waited_for(
    store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch, holding: Callable[[str], AbstractContextManager[None]]
) -> None:
    scene(store)
    store.programs.runs.create(id="ann")
    monkeypatch.setattr(erasure_marks, "_PATIENCE", 0.0)
    with holding(database_url), pytest.raises(StoreBusy, match="persist maintain"):
        erase_maria(store, Telling())
    erase_maria(store, Telling())
    assert doctor(store) == []


def test_what_is_written_before_the_rows_go_is_erased_too(store: Store, database_url: str) -> None:
    """Forks and rows under new names, committed once it is written down what goes. A session that begins then stays."""
    scene(store)

    def meanwhile(what: str, done: int, total: int) -> None:
        if what == "rows" and not written:
            with store.begin() as tx:
                written.append(tx.chat.sessions.create(agent="a", model={}, owner="maria").id)
                for write in WRITES:
                    write(tx)

    written: list[str] = []
    erase_maria(store, meanwhile)
    assert places_of(database_url, NEEDLE) == set()
    assert [session.id for session in store.chat.sessions.list(owner="maria").items] == written
    assert doctor(store) == []
