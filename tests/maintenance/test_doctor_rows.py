"""`maintenance.doctor` on rows: what waits for nobody, what nobody folded, what refers to nothing."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

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
from persist.workflows.models import approvals, limits, runs
from tests.cases import each
from tests.maintenance.filled import by_code, codes, filled, opened
from tests.schema.filling import LONG
from tests.schema.places import Place
from tests.seeded_databases import with_file

pytestmark = pytest.mark.one_database

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
    return store.chat.sessions.create(agent="build", model={}).id


def test_doctor_ends_when_its_time_is_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (left_out,) = doctor(store, seconds=0.0)
    assert (left_out.code, left_out.severity) == ("not_examined", "info")
    assert "the file, the schema's version, the catalog" in left_out.message
    forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    slow = {"nothing": lambda work: iter(()), "what never ends": lambda work: iter(work.select(sqlalchemy.text(forever)).all())}
    monkeypatch.setattr("persist.maintenance.checkups.CHECKUPS", slow)
    (left_out,) = doctor(store, seconds=0.5)
    assert left_out.message == "the time was over before these were looked at: what never ends."
    assert store.workflows.runs.count() == 0


def test_a_refused_input_that_is_no_text_is_no_damage(store: Store) -> None:
    refused = {"type": "tool-input-error", "toolCallId": "c", "toolName": "w", "input": {"city": 7}, "errorText": "bad"}
    session = _session(store)
    with store.record(session, ai_sdk=6) as recorder:
        recorder.feed_many([{"type": "start"}, refused, {"type": "finish"}])
    assert store.chat.messages.list(session)[0]["parts"][0]["rawInput"] == {"city": 7}
    assert doctor(store) == []


def run(tx: Any, status: str = "running", **about: Any) -> str:
    return str(tx.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", status=status, **about).id)


def claimed(tx: Any, lease: timedelta = timedelta(hours=1)) -> Any:
    run(tx, "queued")
    return tx.workflows.runs.claim("worker-1", lease=lease)


def paused(tx: Any, **until: Any) -> Any:
    return tx.workflows.approvals.pause_for_approval(run(tx), gate="merge", summary="?", marker=("merge", {}), **until)


def answered(tx: Any) -> str:
    gate = paused(tx)
    assert tx.workflows.approvals.respond(gate.id, approved=True)
    return f"run {gate.workflow_run_id}"


def signalled(tx: Any) -> None:
    lease = claimed(tx)
    tx.workflows.signals.wait(lease, "paid")
    tx.workflows.runs.complete(lease)


def joined(tx: Any, until: Any = "all", ended: int = 0) -> str:
    """A run that waits for its two children, of which so many have failed, as another program leaves them."""
    lease = claimed(tx)
    children = [run(tx, "queued", parent_run_id=lease.run_id) for _ in range(2)]
    assert tx.workflows.runs.join(lease, until) is None
    values = {"status": "failed", "finished_at": sqlalchemy.literal(FrozenClock()(), runs.c.finished_at.type)}
    tx._work._core(sqlalchemy.update(runs).where(runs.c.id.in_(children[:ended])).values(values), None)
    return f"run {lease.run_id}"


def moot(tx: Any) -> str:
    """A gate of a run that ended, as older releases left it."""
    id = run(tx)
    gate = tx.workflows.approvals.request(id, gate="merge", summary="?")
    tx.workflows.runs.cancel(id)
    tx._work._core(sqlalchemy.update(approvals).where(approvals.c.id == gate.id).values(status="pending"), None)
    return f"approval {gate.id}"


def scheduled(tx: Any) -> str:
    tx.workflows.schedules.set("off", workflow_name="report", cron="0 * * * *", enabled=False)
    tx.workflows.schedules.set("hourly", workflow_name="report", cron="0 * * * *")
    return "schedule hourly"


def shut(tx: Any) -> str:
    tx.workflows.limits.set("acme", 1)
    tx._work._core(sqlalchemy.update(limits).values(concurrency=0), None)
    return "limit acme"


def conversation(tx: Any) -> str:
    started = FrozenClock()()
    return f"conversation {tx.conversations.sessions.create(id='conv-9', status='running', started_at=started).id}"


LEASE, HOUR, NOW = 2 * DAY, timedelta(hours=1), timedelta(0)
MONTH, DUE = 30 * DAY, timedelta(minutes=55, seconds=54, milliseconds=322)
Scene = Callable[[Any], object]
CASES: list[tuple[str, Scene, timedelta | None]] = [
    ("run_stuck", lambda tx: f"run {run(tx)}", DAY),
    ("run_stuck", lambda tx: f"run {claimed(tx, LEASE).run_id}", LEASE - timedelta(seconds=1)),
    ("run_paused", lambda tx: paused(tx), None),
    ("run_paused", answered, DAY),
    ("run_paused", signalled, None),
    ("run_joined", joined, None),
    ("run_joined", lambda tx: joined(tx, "all", 2), NOW),
    ("run_joined", lambda tx: joined(tx, "first_failure", 1), NOW),
    ("approval_moot", moot, NOW),
    ("approval_overdue", lambda tx: f"approval {paused(tx, expires_at=FrozenClock()() + HOUR).id}", HOUR + DAY),
    ("schedule_overdue", scheduled, DUE + DAY),
    ("limit_shut", shut, NOW),
    ("session_stale", conversation, DAY),
]
"""What waits, whom it names, and how long it is no finding; None: it may wait as long as it takes."""
MENDED: dict[str, Callable[[Store], object]] = {
    "run_joined": lambda store: [store.workflows.runs.resume(run.id) for run in store.workflows.runs.list(status="paused").items],
    "approval_overdue": lambda store: store.workflows.approvals.expire_due(),
    "schedule_overdue": lambda store: store.workflows.schedules.fire_due(),
}


@each(("code", "make", "within"), CASES)
def test_what_waits_for_nobody(
    url: str, new_database: Callable[[], str], code: str, make: Scene, within: timedelta | None
) -> None:
    clock = FrozenClock()
    with Store.open(with_file(new_database()), clock=clock) as store:
        with store.begin() as tx:
            subject = make(tx)
        clock.advance(delta=MONTH if within is None else within)
        assert within == NOW or doctor(store) == []
        clock.advance(delta=timedelta(milliseconds=1001))
        if within is None:
            assert doctor(store) == []
            return
        (found,) = doctor(store)
        assert (found.code, found.severity, found.subject) == (code, "warning", subject)
        if code in MENDED:
            MENDED[code](store)
            assert doctor(store) == []


def test_progressions_that_lag_are_folded(url: str, clock: FrozenClock) -> None:
    place = filled(url, clock)
    named = place.named("progressions")
    place.run(f"UPDATE {named} SET folded = 0, collection = '[]' WHERE folded > 0")
    members = place.rows("progression_members")
    with opened(place, clock) as store:
        assert [(one.code, one.severity, one.fixed) for one in doctor(store)] == [("progressions_lagging", "info", False)]
        assert by_code(doctor(store, fix=True), "progressions_lagging").fixed
        assert doctor(store) == []
    assert place.rows("progression_members") == members
    assert place.ask(f"SELECT count(*) FROM {named} WHERE folded > 0")[0][0] > 0


def test_what_a_dead_recorder_left(url: str, clock: FrozenClock) -> None:
    """Its turn is dropped, and its text is folded; as long as it lives neither is."""
    place = Place(url)
    with Store.open(with_file(url), clock=clock, settings=LONG) as store:
        session = _session(store)
        with store.record(session) as recorder:
            for chunk in TEXT:
                recorder.feed(chunk)
            clock.advance(seconds=61)
            assert doctor(store, fix=True) == []
            place.run(f"UPDATE {place.named('chat_turns')} SET owner = '{GONE}'")
            for fix in (False, True):
                turn, tail = doctor(store, fix=fix)
                assert (turn.code, turn.severity, turn.subject) == ("turn_dead", "warning", f"session {session}")
                assert (tail.code, tail.severity, turn.fixed, tail.fixed) == ("tails_unfolded", "info", fix, fix)
            assert doctor(store) == []
        assert store.chat.messages.list(session)[0]["parts"][0]["text"] == "Once upon a time"
    for table in ("chat_turns", "chat_part_deltas"):
        assert place.ask(f"SELECT count(*) FROM {place.named(table)}") == [(0,)]


def test_tool_calls_that_nobody_will_answer(store: Store, clock: FrozenClock) -> None:
    waiting, session = _session(store), _session(store)
    with store.record(waiting) as recorder:  # for a person
        recorder.feed_many([*CALL, {"type": "tool-approval-request", "toolCallId": "call-1", "approvalId": "a"}])
    with store.record(session) as recorder:
        recorder.feed_many(CALL)
        clock.advance(seconds=600)
        assert doctor(store) == []  # a tool may take long
    clock.advance(delta=DAY)
    (found,) = doctor(store, fix=True)
    assert (found.code, found.severity, found.subject) == ("tool_call_orphaned", "warning", f"session {session}")
    assert not found.fixed
    assert store.chat.messages.repair_interrupted() == 1
    assert doctor(store) == []


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
        store.programs.bindings.bind(store.run_id, "large", "x" * 200_000)
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


def test_engines_of_hosts(sqlite_url: str, postgres_url: str, clock: FrozenClock) -> None:
    """One as SQLAlchemy makes it knows no foreign keys; another one does not keep the file in WAL."""
    for url, findings in ((sqlite_url, [("foreign_keys_off", "warning")]), (postgres_url, [])):
        filled(url, clock)
        engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        with Store.from_engine(engine, clock=clock) as store:
            assert [(finding.code, finding.severity) for finding in doctor(store)] == findings
        engine.dispose()
    query = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'persist%'"
    assert Place(postgres_url).ask(query) == [(1,)]  # what it compared with is gone
    Place(sqlite_url).ask("PRAGMA journal_mode=DELETE")
    with opened(Place(sqlite_url), clock, read_only=True) as store:
        assert [(finding.code, finding.severity) for finding in doctor(store)] == [("not_wal", "warning")]


def test_no_row_is_moved_that_verbs_read(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        session = store.conversations.sessions.create()
        branch = store.conversations.branches.create(session.id).id
        for number in range(3):
            message = {
                "id": f"m{number}",
                "created_at": 1.0 + number,
                "role": "user",
                "content": {},
                "embedding": [float(number)],
            }
            store.conversations.messages.record(branch, message)
        chat = _session(store)
        Place(sqlite_url).run(
            "UPDATE messages SET stored_at = 'nope' WHERE id = 'm0'",
            f"UPDATE messages SET sender = '{'z' * 700}' WHERE id = 'm1'",
            f"UPDATE chat_sessions SET agent = '{'z' * 700}', owner = '{'y' * 700}'",
        )
        for fixed in ({False}, {False, True}, {False}):
            assert {one.fixed for one in doctor(store, fix=True in fixed)} == fixed
            assert [message.id for message in store.conversations.branches.history(branch)] == ["m0", "m1", "m2"]
            assert len(store.conversations.vectors.search([1.0])) == 3
            assert (store.chat.sessions.get(chat).agent, len(store.chat.sessions.list().items)) == ("z" * 700, 1)


def test_many_of_a_kind_are_counted_and_all_are_mended(store: Store, url: str, clock: FrozenClock) -> None:
    sessions = [store.chat.sessions.create(agent="build", model={}).id for _ in range(MAX_PER_CODE + 7)]
    place = Place(url)
    rows = ", ".join(f"('{session}', 'running', '{GONE}', 1, 1)" for session in sessions)
    place.run(f"INSERT INTO {place.named('chat_turns')} (session_id, state, owner, started_at, seen_at) VALUES {rows}")
    found = doctor(store)
    assert len(found) == MAX_PER_CODE + 1
    assert found[-1].message == "and 7 more of this kind."
    assert all(finding.fixed for finding in doctor(store, fix=True))
    assert doctor(store) == []
    with Store.open(url, clock=clock, read_only=True) as reader, pytest.raises(ReadOnlyTransaction):
        doctor(reader, fix=True)
    with store.begin(), pytest.raises(TransactionOpen):
        doctor(store)


def test_a_link_that_several_rows_tell_of(store: Store, url: str, clock: FrozenClock) -> None:
    place, number = Place(url), "resource_number"
    table = place.named("github_link_statuses")
    for issue in (1, 2):
        store.telemetry.links.record_error(f"https://github.com/o/r/issues/{issue}", "502", instance_id="box")
    place.run(
        f"INSERT INTO {table} (instance_id, url, kind, host, owner, repo, {number}, fetched_at, refresh_after)"
        f" SELECT instance_id, 'https://github.com/o/r/issues/1', kind, host, owner, repo, {number}, 5, 5"
        f" FROM {table} WHERE {number} = 1"
    )
    (found,) = doctor(store)
    subject = "link https://github.com/o/r/issue/1 of instance box"
    assert (found.code, found.severity, found.subject) == ("link_repeated", "info", subject)
    store.telemetry.links.upsert("https://github.com/o/r/issues/1", fetched_at=clock(), instance_id="box")
    assert doctor(store) == []


SPOILT = ['{"cut', '{"a": 1]', '{"a": 1} and more', '{"a":' * 100_000]


def test_messages_of_replay_streams_whose_json_is_damaged_are_named(store: Store, url: str) -> None:
    """On every page of messages."""
    with store.begin() as tx:
        append: Any = tx.replay_streams.messages.append
        for number in range(1_100):
            append(f"s{number % 3}", "1", json.dumps({"jsonrpc": "2.0", "id": number, "result": {}}) if number % 2 else None)
        append("s", "1", "Any text may be a message.")
        spoilt = [append("s", "1", "{}") for _ in SPOILT]
    assert doctor(store) == []
    place = Place(url)
    for id, text in zip(spoilt, SPOILT, strict=True):
        place.run(f"UPDATE {place.named('replay_messages')} SET message = '{text}' WHERE id = '{id}'")
    found = doctor(store)
    assert [(one.code, one.severity) for one in found] == [("replay_message", "warning")] * len(SPOILT)
    assert {one.subject for one in found} == {f"replay message {id}" for id in spoilt}
    assert all("JSON is damaged" in one.message for one in found)
    assert doctor(store, fix=True) == found
