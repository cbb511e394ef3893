"""examples/filled: what it fills in, on both databases, and the program around it as a process."""

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from examples.filled import fill
from examples.filled.chats import LIVE
from examples.filled.queue import LEASED, WORKER
from examples.filled.talking import KEPT, forget, talk
from examples.filled.times import Times
from persist import Store
from persist.maintenance import doctor, stats
from persist.programs import audit
from persist.sessionlog import list_session_logs, read_session_log
from persist.testing import FrozenClock
from tests.subprocesses import Worker

EMPTY = {"chat_part_deltas": "the tail of an answer that is being recorded", "quarantine": "rows that another program spoilt"}
"""Tables without a row, and what they would hold."""


@pytest.mark.one_server  # what a shell wrote is noted by triggers
def test_it_fills_every_table_with_what_a_page_shows(database_url: str) -> None:
    """By another store, since the clock of this one is that of the machine or the server."""
    with Store.open(database_url) as store:
        ids = fill(store)
        assert {name for name, facts in stats(store)["tables"].items() if not facts["rows"]} == EMPTY.keys()
        assert {(found.code, found.subject) for found in doctor(store)} == {("tool_call_orphaned", "session chat-tools")}
        assert len(store.events.read("*")) == 1_000
        assert {"raw_write"} <= {found.code for found in audit(store, ids["program"])}
        _assert_runs(store, ids)
        _assert_usage(store, ids)
        _assert_chats(store, ids)
        _assert_machines(store, ids)


def _assert_runs(store: Store, ids: dict[str, Any]) -> None:
    with store.read() as tx:
        workflows = tx.workflows
        waiting = {gate.workflow_run_id: gate for gate in workflows.approvals.pending()}
        assert waiting.keys() == {ids["waiting_run"], ids["reply_run"], ids["two_gates_run"]}
        assert {gate.kind for gate in waiting.values()} == {"approve", "reply"}
        assert all(gate.summary for gate in waiting.values())
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(minutes=10)
        for name, kind in (
            ("failed_run", "error"),
            ("rejected_run", "rejected"),
            ("restarted_run", "restarts"),
            ("retried_run", "retries"),
            ("expired_run", "expired"),
            ("gate_expired_run", "expired"),
            ("cancelled_run", "cancelled"),
        ):
            run = workflows.runs.get(ids[name])
            assert (name, run.failure_kind) == (name, kind)
            assert run.finished_at is not None
            assert run.finished_at >= midnight
        queued = {run.id: run for run in workflows.runs.list_queued()}
        for name in ("ready_run", "urgent_run", "delayed_run", "held_run", "unpaid_run", "limited_run", "backing_off_run"):
            assert ids[name] in queued
        assert not workflows.workflow_overrides.is_enabled(workflows.runs.get(ids["held_run"]).workflow_name)
        assert {schedule.timezone for schedule in workflows.schedules.list()} > {"Europe/Berlin", "Asia/Tokyo"}
        run = workflows.runs.get(ids["finished_run"])
        assert (run.status, run.attempt, len(run.phase_history) > 3) == ("succeeded", 2, True)
        assert {effect.state for effect in workflows.effects.list(run.id)} == {"done", "failed", "begun"}
        assert [child.id for child in workflows.runs.children(run.id).items] == ids["child_runs"][::-1]
        family = workflows.runs.family(run.id)
        assert family.runs == 1 + len(ids["child_runs"])
        assert family.cost_usd > 0.07
        assert {status["state"] for status in (run.node_statuses or {}).values()} == {"done"}
        assert len({day.bucket for day in tx.workflows.executions.daily_stats(14) if day.total}) >= 13


def _assert_usage(store: Store, ids: dict[str, Any]) -> None:
    with store.read() as tx:
        passed = {standing.budget.key: standing.passed for standing in tx.usage.budgets.standings()}
        assert (passed[ids["warned_budget"]], passed[ids["exceeded_budget"]]) == (80, 100)
        assert len(tx.usage.by_day().items) >= 14
        for group in ("model", "agent", "owner", "workflow"):
            assert len(tx.usage.by_group(group).items) > 3


def _assert_chats(store: Store, ids: dict[str, Any]) -> None:
    with store.read() as tx:
        chat = tx.chat
        parts = chat.messages.get(ids["tools_answer"])["parts"]
        assert {part["state"] for part in parts if part["type"].startswith("tool-")} == {
            "input-streaming",
            "input-available",
            "approval-requested",
            "approval-responded",
            "output-available",
            "output-error",
            "output-denied",
        }
        kinds = {part["type"] for message in chat.messages.list(ids["chat"]) for part in message["parts"]}
        assert kinds >= {"text", "reasoning", "file", "source-url", "source-document", "data-plan", "tool-grep", "tool-bash"}
        assert [len(chat.sessions.children(id)) for id in (ids["forked_chat"], ids["forks"][0])] == [2, 1]
        assert len(chat.messages.queued(ids["compacted_chat"])) == 2
        shown, all_ = (chat.messages.list(ids["compacted_chat"], include_hidden=hidden) for hidden in (False, True))
        assert len(all_) == len(shown) + 1
        assert "data-compaction" in {part["type"] for message in shown for part in message["parts"]}
        assert chat.sessions.get(ids["archived_chat"]).archived_at is not None


def _assert_machines(store: Store, ids: dict[str, Any]) -> None:
    with store.read() as tx:
        resolve = tx.programs.bindings.resolve
        assert resolve(ids["program"], "topic").value == "queues"
        assert resolve(ids["program"], "topic", execution_id=ids["program_branches"]["papers"]).value == "queues in papers"
        assert len(tx.conversations.branches.list(ids["conversation"])) == 4
        assert [one.status for one in tx.conversations.sessions.transitions(ids["conversation"])][-1] == "completed"
        latest = {entry.instance_id: entry.new_status for entry in tx.telemetry.status.latest()}
        shown = [latest[ids[name]] for name in ("instance", "asking_instance", "crashed_instance")]
        assert shown == ["busy", "question", "crashed"]
        states = {task.state for task in tx.telemetry.tasks.list(workspace_id=ids["workspace"])}
        assert states == {"queued", "in_progress", "completed", "failed", "cancelled"}


def test_a_store_with_a_frozen_clock_is_filled_up_to_what_it_shows(sqlite_url: str, clock: FrozenClock, tmp_path: Path) -> None:
    """The first minute of a day, too, in which much has failed already; and the session logs belong to a run."""
    clock.set(datetime(2026, 3, 2, 0, 0, 1, tzinfo=UTC))
    with Store.open(sqlite_url, clock=clock) as store:
        ids = fill(store, session_logs_folder=tmp_path / "logs")
        assert clock() == datetime(2026, 3, 2, 0, 0, 1, tzinfo=UTC)
        with store.read() as tx:
            assert max(run.updated_at for run in tx.workflows.runs.list(limit=200).items) <= clock()
            assert tx.workflows.runs.get(ids["restarted_run"]).failure_kind == "restarts"
            named = {execution.session_id for execution in tx.workflows.executions.for_run(ids["finished_run"])}
    logs = {log.session_id: log for log in list_session_logs(tmp_path / "logs")}
    assert named & logs.keys()
    assert all(read_session_log(log.path) for log in logs.values())


def test_scenes_take_their_turns_by_their_instants(clock: FrozenClock) -> None:
    times, seen = Times(clock, clock()), []

    def scene(name: str, *days: float) -> Any:
        for day in days:
            yield times.ago(days=day)
            seen.append((name, times.now - clock()))

    times.play([scene("a", 3, 1), scene("b", 2, 0.5)])
    assert seen == [("a", timedelta(3)), ("b", timedelta(2)), ("a", timedelta(1)), ("b", timedelta(0.5))]
    assert clock() == times.now == times.later(60)


def run(*arguments: object) -> tuple[int, str]:
    """What it ends with, and the last line of what it says: on a busy machine a warning may come before that."""
    with Worker("examples.filled", *arguments, errors=True) as worker:
        said, _ = worker.communicate(timeout=120)
    return worker.wait(), said.splitlines()[-1]


def test_a_store_with_other_data_is_left_alone(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        store.chat.sessions.create(agent="mine", model={})
        before = _rows(store)
        assert run(sqlite_url, "--no-talk") == (
            1,
            f"{sqlite_url} holds other data and is left alone: name another file or database.",
        )
        assert _rows(store) == before


@pytest.mark.long
@pytest.mark.one_database
def test_two_answers_are_told_until_a_signal_comes_and_a_store_is_filled_once(database_url: str) -> None:
    for number, said in (
        (signal.SIGINT, "is filled: run-review-412 is a run to begin with, chat-checkout a chat."),
        (signal.SIGTERM, "is filled already, and nothing is added."),
    ):
        worker = Worker("examples.filled", database_url)
        try:
            lines = [worker.stdout.readline() for _ in range(2)]
            assert lines == [f"{database_url} {said}\n", "Two chats go on until Ctrl-C.\n"]
            with Store.open(database_url) as store:
                assert all(_grows(store, chat) for chat in LIVE)
                worker.send_signal(number)
                assert (worker.wait(60), worker.stdout.read()) == (0, "")
                assert [store.chat.sessions.turn(chat) for chat in LIVE] == [None, None]
        finally:
            worker.close()
    with Store.open(database_url) as store:
        assert {found.code for found in doctor(store)} == {"tool_call_orphaned"}
        before = _rows(store)
        assert run(database_url, "--no-talk") == (0, f"{database_url} is filled already, and nothing is added.")
        assert _rows(store) == before


def _rows(store: Store) -> dict[str, int]:
    return {name: facts["rows"] for name, facts in stats(store)["tables"].items()}


def _grows(store: Store, chat: str) -> bool:
    """Whether the text of an answer that is told in the chat becomes longer."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = _turn_after(store, chat, None)
        said = _said(store, message)
        time.sleep(0.2)
        if _said(store, message) > said:
            return True
    return False


def _said(store: Store, message: str) -> int:
    return sum(len(part.get("text", "")) for part in store.chat.messages.get(message)["parts"])


def test_a_stop_button_ends_an_answer_and_the_next_one_begins_while_a_worker_holds_its_run(sqlite_url: str) -> None:
    store, stop, chat = Store.open(sqlite_url), Event(), LIVE[0]
    with store.begin() as tx:
        for name in LIVE:
            tx.chat.sessions.create(agent="reviewer", model={}, id=name)
        tx.workflows.runs.create("support-inbox", trigger_id="inbox", current_phase="watch", status="queued", id=LEASED)
        tx.workflows.runs.claim(WORKER, lease=timedelta(minutes=10))

    def lease() -> tuple[Any, ...]:
        run = store.workflows.runs.get(LEASED)
        return run.status, run.lease_owner, run.restart_count, run.lease_token, run.lease_expires_at

    with store, ThreadPoolExecutor() as pool:
        before = lease()
        talking = pool.submit(talk, store, stop)
        try:
            stopped = _turn_after(store, chat, None)
            assert store.chat.sessions.request_stop(chat)
            _turn_after(store, chat, stopped)
            _until(lambda: lease() != before)
            assert lease()[:4] == before[:4] == ("running", WORKER, 0, 1)
        finally:
            stop.set()
        talking.result(60)
        assert "stopped_at" in store.chat.messages.get(stopped)["metadata"]
        assert lease()[:3] == ("queued", None, 0)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _turn_after(store: Store, chat: str, message: str | None) -> str:
    """The message of an answer that runs and is another one."""
    found: list[str] = []

    def another() -> bool:
        turn = store.chat.sessions.turn(chat)
        found.extend([turn.message_id] if turn is not None and turn.message_id not in (None, message) else [])
        return bool(found)

    _until(another)
    return found[0]


def test_a_chat_keeps_its_latest_questions(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        chat = store.chat.sessions.create(agent="build", model={}).id
        parts = [{"type": "text", "text": "?"}]
        with store.begin() as tx:
            said = [tx.chat.messages.append(chat, role="user", parts=parts).id for _ in range(2 * KEPT + 3)]
        forget(store, chat)
        assert [message["id"] for message in store.chat.messages.list(chat)] == said[3:]
