"""`maintenance.doctor` on rows: what waits for nobody, what nobody folded, what refers to nothing."""

import json
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from persist import Store
from persist.errors import ReadOnlyTransaction, TransactionOpen
from persist.maintenance import doctor, erase, quarantined
from persist.maintenance.checkups import MAX_PER_CODE
from persist.maintenance.erasure_plans import ORPHANS
from persist.programs import create_run_file
from persist.single_owner_files import open_run_file
from persist.testing import FrozenClock
from persist.workflows.models import approvals, limits
from tests.maintenance.filled import by_code, codes, filled, opened
from tests.schema.filling import LONG
from tests.schema.places import Place

DAY = timedelta(hours=24)
TEXT: list[dict[str, Any]] = [
    {"type": "start"},
    {"type": "text-start", "id": "t"},
    {"type": "text-delta", "id": "t", "delta": "Once upon a time"},
]
CALL: list[dict[str, Any]] = [
    {"type": "start"},
    {"type": "tool-input-available", "toolCallId": "call-1", "toolName": "read", "input": {"path": "a"}},
]
GONE = "nowhere.example/1/0"


def _session(store: Store) -> str:
    with store.begin() as tx:
        return tx.chat.sessions.create(agent="build", model={}).id


def test_a_refused_input_that_is_no_text_is_no_damage(database_url: str) -> None:
    refused = {"type": "tool-input-error", "toolCallId": "c", "toolName": "w", "input": {"city": 7}, "errorText": "bad"}
    with Store.open(database_url) as store:
        session = _session(store)
        with store.record(session, ai_sdk=6) as recorder:
            recorder.feed_many([{"type": "start"}, refused, {"type": "finish"}])
        assert store.chat.messages.list(session)[0]["parts"][0]["rawInput"] == {"city": 7}
        assert doctor(store) == []


# ---------------------------------------------------------------- workflows


def test_a_run_that_nobody_works_on_is_stuck_after_a_day(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            run = tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
        clock.advance(delta=DAY)
        assert doctor(store) == []
        clock.advance(seconds=1)
        (found,) = doctor(store)
    assert (found.code, found.severity, found.subject) == ("run_stuck", "warning", f"run {run.id}")
    assert "2026-01-02 03:04 UTC" in found.message


def test_a_run_with_a_live_lease_is_not_stuck(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", status="queued")
            lease = tx.workflows.runs.claim("worker-1", lease=timedelta(hours=48))
            assert lease is not None
        clock.advance(delta=DAY * 1.5)
        assert doctor(store) == []
        clock.advance(delta=DAY)
        assert codes(doctor(store)) == ["run_stuck"]


def test_a_paused_run_waits_for_an_answer_as_long_as_it_takes(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            run = tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
            gate = tx.workflows.approvals.pause_for_approval(run.id, gate="merge", summary="?", marker=("merge", {}))
        clock.advance(delta=30 * DAY)
        assert doctor(store) == []
        with store.begin() as tx:
            assert tx.workflows.approvals.respond(gate.id, approved=True)
        (found,) = doctor(store)
    assert (found.code, found.severity, found.subject) == ("run_paused", "warning", f"run {run.id}")


def test_a_paused_run_waits_for_a_signal_as_long_as_it_takes(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            tx.workflows.runs.create("ship", trigger_id="order/1", current_phase="wait", status="queued")
            lease = tx.workflows.runs.claim("worker-1", lease=timedelta(hours=1))
            assert lease is not None
            tx.workflows.signals.wait(lease, "paid")
            tx.workflows.runs.complete(lease)
        clock.advance(delta=30 * DAY)
        assert doctor(store) == []


def test_a_gate_of_a_run_that_ended(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            run = tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan")
            gate = tx.workflows.approvals.request(run.id, gate="merge", summary="?")
        assert doctor(store) == []
        with store.begin() as tx:  # as releases before this one left it
            tx.workflows.runs.cancel(run.id)
            reopened = sqlalchemy.update(approvals).where(approvals.c.id == gate.id).values(status="pending")
            tx._work._core(reopened, None)
        (found,) = doctor(store)
    assert (found.code, found.severity, found.subject) == ("approval_moot", "warning", f"approval {gate.id}")


def test_a_schedule_that_nobody_fires(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            tx.workflows.schedules.set("off", workflow_name="report", cron="0 * * * *", enabled=False)
            due = tx.workflows.schedules.set("hourly", workflow_name="report", cron="0 * * * *").next_fire_at
        assert due is not None
        clock.set(due + DAY)
        assert doctor(store) == []
        clock.advance(seconds=1)
        (found,) = doctor(store)
        assert (found.code, found.severity, found.subject) == ("schedule_overdue", "warning", "schedule hourly")
        with store.begin() as tx:
            tx.workflows.schedules.fire_due()
        assert doctor(store) == []


def test_a_limit_under_which_nothing_can_start(database_url: str) -> None:
    with Store.open(database_url) as store:
        store.workflows.limits.set("acme", 1)
        assert doctor(store) == []
        with store.begin() as tx:
            tx._work._core(sqlalchemy.update(limits).values(concurrency=0), None)
        (found,) = doctor(store)
    assert (found.code, found.severity, found.subject) == ("limit_shut", "warning", "limit acme")


# ---------------------------------------------------------------- conversations


def test_a_conversation_that_runs_for_more_than_a_day(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            tx.conversations.sessions.create(id="conv-9", status="running", started_at=clock())
        clock.advance(delta=DAY)
        assert doctor(store) == []
        clock.advance(seconds=1)
        (found,) = doctor(store)
    assert (found.code, found.severity, found.subject) == ("session_stale", "warning", "conversation conv-9")


def test_progressions_that_lag_are_folded(database_url: str, clock: FrozenClock) -> None:
    place = filled(database_url, clock)
    place.run(f"UPDATE {place.named('progressions')} SET folded = 0, collection = '[]' WHERE folded > 0")
    members = place.rows("progression_members")
    with opened(place, clock) as store:
        assert [(finding.code, finding.severity) for finding in doctor(store)] == [("progressions_lagging", "info")]
        assert by_code(doctor(store, fix=True), "progressions_lagging").fixed
        assert doctor(store) == []
    assert place.rows("progression_members") == members
    named = place.named("progressions")
    assert place.ask(f"SELECT count(*) FROM {named} WHERE folded > 0")[0][0] > 0


# ---------------------------------------------------------------- chat


def test_a_turn_of_a_dead_process_is_dropped(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        session = _session(store)
        with store.record(session) as recorder:
            recorder.feed_many(TEXT)
            assert doctor(store, fix=True) == []
            place = Place(database_url)
            place.run(f"UPDATE {place.named('chat_turns')} SET owner = '{GONE}'")
            clock.advance(seconds=61)
            (found,) = doctor(store)
            assert (found.code, found.severity, found.subject) == ("turn_dead", "warning", f"session {session}")
            (found,) = doctor(store, fix=True)
            assert found.fixed
            assert doctor(store) == []
            assert place.ask(f"SELECT count(*) FROM {place.named('chat_turns')}") == [(0,)]


def test_text_that_a_dead_process_left_unfolded_is_folded(database_url: str, clock: FrozenClock) -> None:
    place = Place(database_url)
    with Store.open(database_url, clock=clock, settings=LONG) as store:
        session = _session(store)
        with store.record(session) as recorder:
            for chunk in TEXT:
                recorder.feed(chunk)
            clock.advance(seconds=61)
            assert doctor(store) == []  # its recorder is alive
            place.run(f"UPDATE {place.named('chat_turns')} SET owner = '{GONE}'")
            assert [(finding.code, finding.severity) for finding in doctor(store)] == [
                ("turn_dead", "warning"),
                ("tails_unfolded", "info"),
            ]
            assert all(finding.fixed for finding in doctor(store, fix=True))
            assert doctor(store) == []
        with store.read() as tx:
            (message,) = tx.chat.messages.list(session)
    assert message["parts"][0]["text"] == "Once upon a time"
    assert place.ask(f"SELECT count(*) FROM {place.named('chat_part_deltas')}") == [(0,)]


def test_a_tool_call_that_nobody_will_answer(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        session = _session(store)
        with store.record(session) as recorder:
            recorder.feed_many(CALL)
            clock.advance(seconds=600)
            assert doctor(store) == []  # a tool may take long
        (found,) = doctor(store, fix=True)
        assert (found.code, found.severity, found.subject) == ("tool_call_orphaned", "warning", f"session {session}")
        assert not found.fixed
        with store.begin() as tx:
            assert tx.chat.messages.repair_interrupted() == 1
        assert doctor(store) == []


def test_a_tool_call_that_waits_for_a_person_is_no_finding(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        session = _session(store)
        with store.record(session) as recorder:
            recorder.feed_many([*CALL, {"type": "tool-approval-request", "toolCallId": "call-1", "approvalId": "a"}])
        clock.advance(delta=DAY)
        assert doctor(store) == []


# ---------------------------------------------------------------- references and attachments


def test_rows_that_refer_to_nothing(sqlite_url: str, clock: FrozenClock) -> None:
    place = filled(sqlite_url, clock)
    place.run("DELETE FROM chat_sessions WHERE id IN (SELECT session_id FROM chat_messages)")  # by a program without foreign keys
    ((count,),) = place.ask("SELECT count(*) FROM chat_messages")
    with opened(place, clock) as store:
        assert erase(store, owner="nobody", dry_run=True).kept[ORPHANS] >= count
        found = {one.subject: one for one in doctor(store, fix=True) if one.code == "foreign_key"}
        moved = found["table chat_messages"]
        assert moved.severity == "error"
        assert moved.message.startswith(
            f"rows that refer to a row of chat_sessions that is not there: {count}. Moved to quarantine"
        )
        assert all(one.fixed for one in found.values())
        assert not [one for one in doctor(store) if one.code == "foreign_key"]
        assert ORPHANS not in erase(store, owner="nobody", dry_run=True).kept
        assert sum(one.table == "chat_messages" for one in quarantined(store, limit=1000)) == count
    assert place.ask("SELECT (SELECT count(*) FROM chat_messages), (SELECT count(*) FROM chat_parts)") == [(0, 0)]


def test_attachments_and_rows_that_miss_each_other(tmp_path: Path, clock: FrozenClock) -> None:
    with create_run_file(tmp_path, clock=clock) as store:
        assert store.run_id is not None
        assert store.path is not None
        with store.begin() as tx:
            tx.programs.bindings.bind(store.run_id, "large", "x" * 200_000)
        assert doctor(store) == []
        (attachment,) = (store.path.parent / "attachments").iterdir()
        attachment.rename(attachment.with_name("other.txt"))
        found = doctor(store, fix=True)
        assert [(finding.code, finding.severity, finding.fixed) for finding in found] == [
            ("program_attachment_missing", "error", False),
            ("program_attachment_unused", "info", False),
        ]
        path = store.path
        assert attachment.with_name("other.txt").exists()
    with open_run_file(path, read_only=True) as store:
        assert codes(doctor(store)) == ["program_attachment_missing", "program_attachment_unused"]


# ---------------------------------------------------------------- engines of others, and how it is called


@pytest.fixture
def plain_engine(sqlite_url: str) -> Callable[[], sqlalchemy.Engine]:
    """An engine as SQLAlchemy makes it: no foreign keys."""
    return lambda: sqlalchemy.create_engine(sqlite_url)


def test_an_engine_without_foreign_keys(
    sqlite_url: str, plain_engine: Callable[[], sqlalchemy.Engine], clock: FrozenClock
) -> None:
    filled(sqlite_url, clock)
    engine = plain_engine()
    with Store.from_engine(engine, clock=clock) as store:
        assert [(finding.code, finding.severity) for finding in doctor(store)] == [("foreign_keys_off", "warning")]
    engine.dispose()


def test_a_file_that_is_not_in_wal(sqlite_url: str, plain_engine: Callable[[], sqlalchemy.Engine], clock: FrozenClock) -> None:
    place = filled(sqlite_url, clock)
    place.ask("PRAGMA journal_mode=DELETE")
    with opened(place, clock, read_only=True) as store:
        assert [(finding.code, finding.severity) for finding in doctor(store)] == [("not_wal", "warning")]


def test_an_engine_of_a_host_on_a_server(postgres_url: str, clock: FrozenClock) -> None:
    place = filled(postgres_url, clock)
    engine = sqlalchemy.create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with Store.from_engine(engine, clock=clock) as store:
        assert doctor(store) == []
    engine.dispose()
    with closing(psycopg.connect(place.url)) as raw:
        query = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'persist%'"
        assert raw.execute(query).fetchone() == (1,)  # what it compared with is gone


def test_many_of_a_kind_are_counted(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            for number in range(MAX_PER_CODE + 7):
                tx.workflows.runs.create("triage", trigger_id=f"issue/{number}", current_phase="plan")
        clock.advance(delta=2 * DAY)
        found = doctor(store)
    assert len(found) == MAX_PER_CODE + 1
    assert found[-1].message == "and 7 more of this kind."


def test_a_read_only_store_is_not_mended(database_url: str, clock: FrozenClock) -> None:
    with opened(filled(database_url, clock), clock, read_only=True) as store, pytest.raises(ReadOnlyTransaction):
        doctor(store, fix=True)


def test_inside_a_transaction_there_is_no_doctor(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store, store.begin(), pytest.raises(TransactionOpen):
        doctor(store)


def test_every_dead_turn_is_dropped_however_many_there_are(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            sessions = [tx.chat.sessions.create(agent="build", model={}).id for _ in range(MAX_PER_CODE + 2)]
        place = Place(database_url)
        rows = ", ".join(f"('{session}', 'running', '{GONE}', 1, 1)" for session in sessions)
        place.run(f"INSERT INTO {place.named('chat_turns')} (session_id, state, owner, started_at, seen_at) VALUES {rows}")
        assert len(doctor(store)) == MAX_PER_CODE + 1
        assert all(finding.fixed for finding in doctor(store, fix=True))
        assert doctor(store) == []


# `maintenance.doctor` on links of instances: those that several rows tell of.


def test_a_link_that_several_rows_tell_of(database_url: str, clock: FrozenClock) -> None:
    place = Place(database_url)
    table, number = place.named("github_link_statuses"), "resource_number"
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            for issue in (1, 2):
                tx.telemetry.links.record_error(f"https://github.com/o/r/issues/{issue}", "502", instance_id="box")
        assert doctor(store) == []
        place.run(
            f"INSERT INTO {table} (instance_id, url, kind, host, owner, repo, {number}, fetched_at, refresh_after)"
            f" SELECT instance_id, 'https://github.com/o/r/issues/1', kind, host, owner, repo, {number}, 5, 5"
            f" FROM {table} WHERE {number} = 1"
        )
        (found,) = doctor(store)
        subject = "link https://github.com/o/r/issue/1 of instance box"
        assert (found.code, found.severity, found.subject) == ("link_repeated", "info", subject)
        with store.begin() as tx:
            tx.telemetry.links.upsert("https://github.com/o/r/issues/1", fetched_at=clock(), instance_id="box")
        assert doctor(store) == []


# `maintenance.doctor` on messages of replay streams that other programs wrote.


@pytest.mark.parametrize("text", ['{"cut', '{"a": 1]', '{"a": 1} and more', '{"a":' * 100_000], ids=lambda text: text[:8])
def test_messages_whose_json_is_damaged_are_named(database_url: str, clock: FrozenClock, text: str) -> None:
    with Store.open(database_url, clock=clock) as store:
        append: Any = store.replay_streams.messages.append
        for number in range(3):
            append("s", "1", json.dumps({"jsonrpc": "2.0", "id": number, "result": {}}))
        append("s", "1", None)
        append("s", "1", "Any text may be a message.")
        assert doctor(store) == []
        spoilt = append("s", "1", json.dumps({"jsonrpc": "2.0"}))
        place = Place(database_url)
        place.run(f"UPDATE {place.named('replay_messages')} SET message = '{text}' WHERE id = '{spoilt}'")
        (found,) = doctor(store)
        assert (found.code, found.severity, found.subject) == ("replay_message", "warning", f"replay message {spoilt}")
        assert "JSON is damaged" in found.message
        assert doctor(store, fix=True) == [found]


def test_every_page_of_messages_is_read(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        with store.begin() as tx:
            append = tx.replay_streams.messages.append
            for number in range(1_100):
                append(f"s{number % 3}", "1", "{no" if number % 10 == 0 else "{}")
        found = doctor(store)
        assert [one.code for one in found] == ["replay_message"] * len(found)
        assert found[-1].message == "and 10 more of this kind."
