"""One cell of another program's, which a verb need not read or cannot name again, stops that verb for nobody."""

import logging
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import SingletonThreadPool, StaticPool, create_engine, text

import persist
from persist import InvalidValue, Store, StoreCorrupt, UnreadableRow
from persist.conversations import end_stale, stale_sessions
from persist.maintenance import doctor, maintain, prune
from tests.cases import each
from tests.contract.chat.scenes import create
from tests.contract.conftest import Raw
from tests.statemachines.valid_arguments import REMARK

LONG = "k" * 700
UNBINDABLE = [pytest.param("x\0y", id="a NUL"), pytest.param(LONG, id="700 bytes")]


@pytest.fixture
def exchanged(sqlite_url: str) -> str:
    """Three messages that were sent, and three running runs."""
    with Store.open(sqlite_url) as store, store.begin() as tx:
        for number in range(3):
            tx.conversations.exchange.send(sender="a", recipient="b", content={}, id=f"m{number}")
            tx.workflows.runs.create("w", trigger_id=f"t{number}", current_phase="p", id=f"r{number}")
    return sqlite_url


def change(url: str, statement: str, *values: Any) -> None:
    with closing(Raw(url)) as raw:
        if raw.is_sqlite:
            raw.rows("PRAGMA foreign_keys = OFF")
            raw.rows("PRAGMA ignore_check_constraints = ON")
        raw.rows(statement, *values)


@pytest.mark.parametrize("value", UNBINDABLE)
def test_a_run_whose_trigger_cannot_be_named_keeps_no_other_from_recovering(
    exchanged: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    change(exchanged, "UPDATE workflow_runs SET trigger_id = ? WHERE id = 'r1'", value)
    with Store.open(exchanged) as store:
        with caplog.at_level(logging.WARNING, "persist"), store.begin() as tx:
            again, failed = tx.workflows.runs.recover_interrupted()
        assert ([run.id for run in again], failed) == (["r0", "r2"], [])
        assert "'r1' is left as it is" in caplog.text
        assert [finding.subject for finding in doctor(store, fix=True)] == ["workflow_runs r1"]
        if "\0" in value:
            assert doctor(store) == []
        else:  # verbs read it
            assert [finding.subject for finding in doctor(store)] == ["workflow_runs r1"]
            assert store.workflows.runs.get("r1").trigger_id == value


@pytest.mark.parametrize("value", UNBINDABLE)
def test_a_message_that_cannot_be_named_keeps_no_other_from_being_pruned(exchanged: str, value: str) -> None:
    change(exchanged, "DELETE FROM exchange_items")
    change(exchanged, "UPDATE messages SET created_at = 1, stored_at = 1")
    change(exchanged, "UPDATE messages SET id = ? WHERE id = 'm1'", value)
    with Store.open(exchanged) as store:
        prune(store, "conversations", older_than=timedelta(days=1))
        assert "unreadable" in [finding.code for finding in doctor(store)]
    with closing(Raw(exchanged)) as raw:
        assert raw.count("messages") <= 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sessions SET ended_at = 'soon' WHERE id = ?",
        "UPDATE progressions SET folded = 'soon' WHERE id = (SELECT progression_id FROM sessions WHERE id = ?)",
        "UPDATE status_transitions SET created_at = 'soon' WHERE entity_id = ?",
    ],
)
def test_a_session_ends_whatever_it_ended_with_before(sqlite_url: str, statement: str) -> None:
    with Store.open(sqlite_url) as store:
        with store.begin() as tx:
            spoilt, good = (tx.conversations.sessions.create(status="running").id for _ in range(2))
            tx.conversations.exchange.send(sender="x", recipient="y", content={}, session_id=spoilt)
        change(sqlite_url, statement, spoilt)
        with store.begin() as tx:
            stale = stale_sessions(tx.conversations, now=datetime.now(UTC) + timedelta(days=3))
            assert good in end_stale(tx.conversations, stale)
        ended = store.conversations.sessions.set_status(spoilt, "completed", actor="me", override="it is over")
        with closing(Raw(sqlite_url)) as raw:
            assert ended
            assert raw.value("SELECT status FROM sessions WHERE id = ?", spoilt) == "completed"


def test_an_older_trigger_is_not_needed_to_skip(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        store.workflows.executions.start(trigger_type="gh", trigger_id="t", skill="w:p", id="e1")
        change(sqlite_url, "UPDATE executions SET trigger_type = CAST(x'fffe' AS TEXT)")
        assert store.workflows.executions.skip("w:q", "t", reason="r").trigger_type == "api"


def test_a_place_that_is_no_number_keeps_no_progression_from_being_folded(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store, store.begin() as tx:
        pools = [tx.conversations.sessions.create().progression_id for _ in range(3)]
        for number, pool in enumerate(pools):
            tx.conversations.messages.put({"id": f"m{number}", "created_at": 1.0, "content": {}, "role": "user"})
            tx.conversations.progressions.append(pool, f"m{number}")
    change(sqlite_url, "UPDATE progressions SET folded = 0, collection = '[]'")
    change(sqlite_url, "UPDATE progression_members SET ord = 9e999 WHERE progression_id = ?", min(pools))
    with Store.open(sqlite_url) as store:
        assert not maintain(store).failed
    with closing(Raw(sqlite_url)) as raw:
        assert sorted(raw.rows("SELECT folded FROM progressions")) == [(0,), (1,), (1,)]


def test_a_message_that_is_nested_too_deep_to_read_hides_nothing(store: Any, database_url: str) -> None:
    session = create(store)
    with store.begin() as tx:
        deep, flat = (tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "hi"}]).id for _ in range(2))
    nested = '{"a":' + "[" * 3000 + "]" * 3000 + "}"
    change(
        database_url,
        f"UPDATE chat_messages SET metadata_json = {'?' if 'sqlite' in database_url else 'CAST(? AS jsonb)'} WHERE id = ?",
        nested,
        deep,
    )
    assert flat in [message["id"] for message in store.chat.messages.list(session)]
    assert len(store.chat.messages.model_view(session)) >= 1
    store.chat.sessions.get(session)
    store.chat.sessions.fork(session, flat)


def fork_of_a_talk(store: Store) -> None:
    with store.begin() as tx:
        tx.conversations.sessions.create(id="talk")
        tx.conversations.branches.create("talk", id="main")
        tx.conversations.messages.record("main", {**REMARK, "id": "said"})
        tx.conversations.branches.fork("main", new_id="fork")
        tx.conversations.messages.record("fork", {**REMARK, "id": "answered"})


@each(
    "change_of",
    [
        *(
            f"progression_id = {value} WHERE id = '{id}'"
            for value in ("CAST(x'fffe' AS TEXT)", "x'ff'")
            for id in ("main", "fork")
        ),
        *(f"forked_at_ord = {value} WHERE id = 'fork'" for value in ("'soon'", "x'ff'", "1.5")),
        "parent_branch_id = CAST(x'fffe' AS TEXT) WHERE id = 'fork'",
    ],
)
def test_a_branch_that_says_what_cannot_be_read_is_no_shorter_one(tmp_path: Path, change_of: str) -> None:
    url = f"sqlite:///{tmp_path / str(abs(hash(change_of)))}.db"
    with Store.open(url) as store:
        fork_of_a_talk(store)
        assert [message.id for message in store.conversations.branches.history("fork")] == ["said", "answered"]
        change(url, f"UPDATE branches SET {change_of}")
        with pytest.raises(UnreadableRow) as caught:
            store.conversations.branches.history("fork")
        assert (caught.value.table, caught.value.column) == ("branches", change_of.split()[0])
        if change_of.endswith("'fork'") and not change_of.startswith("parent"):
            with pytest.raises(UnreadableRow):
                store.conversations.branches.fork("fork")
            with pytest.raises(UnreadableRow):
                store.conversations.vectors.search([1.0, 0.5], branch_id="fork")


def test_a_branch_without_its_progression_or_with_a_place_that_is_none_is_no_shorter_one(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        fork_of_a_talk(store)
        for place in (-1, 2**63 - 1, "NULL"):
            change(sqlite_url, f"UPDATE branches SET forked_at_ord = {place} WHERE id = 'fork'")
            with pytest.raises(StoreCorrupt, match=f"forked at {place}"):
                store.conversations.branches.history("fork")
            (found,) = [one for one in doctor(store) if one.code == "branch_pointers"]
            assert f"forked at {place}" in found.message
        change(sqlite_url, "UPDATE branches SET forked_at_ord = 1 WHERE id = 'fork'")
        for id, gone in (("main", "nowhere"), ("main", ""), ("fork", "nowhere")):
            was = store.conversations.branches.get(id).progression_id
            change(sqlite_url, f"UPDATE branches SET progression_id = '{gone}' WHERE id = '{id}'")
            for read in ("main", "fork") if id == "main" else ("fork",):
                with pytest.raises(StoreCorrupt, match=f"progression '{gone}' is not there"):
                    store.conversations.branches.history(read)
            change(sqlite_url, f"UPDATE branches SET progression_id = '{was}' WHERE id = '{id}'")
        assert [message.id for message in store.conversations.branches.history("fork")] == ["said", "answered"]


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("value", ["CAST(x'fffe' AS TEXT)", "x'ff'"])
def test_a_message_that_cannot_be_named_hides_no_other_from_a_search(sqlite_url: str, value: str, joined: bool) -> None:
    with Store.open(sqlite_url) as store:
        for id in ("m0", "m1", "m2"):
            store.conversations.messages.put({**REMARK, "id": id})
        change(sqlite_url, f"UPDATE messages SET id = {value} WHERE id = 'm1'")
        assert [message.id for message, _ in store.conversations.vectors.search([1.0, 0.5])] == ["m0", "m2"]
    if joined:
        engine = create_engine(sqlite_url)
        with Store.from_engine(engine) as store, engine.begin() as connection:
            found = store.join(connection).conversations.vectors.search([1.0, 0.5])
            assert [message.id for message, _ in found] == ["m0", "m2"]
        engine.dispose()


def test_what_readers_refuse_doctor_finds(store: Any, database_url: str) -> None:
    """JSON of another shape than its column's: a task, a chat, a branch."""
    with store.begin() as tx:
        tx.telemetry.tasks.poll([{"id": "t", "source_id": "s", "kind": "k", "title": "t"}], workspace_id="w")
        tx.chat.sessions.create(agent="a", model={}, id="chat")
        tx.conversations.sessions.create(id="talk")
    spoilt = {("tasks", "links"), ("tasks", "labels"), ("chat_sessions", "model_json"), ("sessions", "node_metadata")}
    with closing(Raw(database_url)) as raw:
        for table, column in spoilt:
            raw.rows(f"UPDATE {table} SET {column} = '7'")
    with Store.open(database_url) as opened:
        found = [(finding.code, finding.subject.split()[0], finding.message.split()[0]) for finding in doctor(opened)]
        assert {*found} == {("unreadable", *cell) for cell in spoilt}
        doctor(opened, fix=True)
        assert doctor(opened) == []


def test_whose_file_it_is_must_be_readable(sqlite_url: str) -> None:
    Store.open(sqlite_url).close()
    change(sqlite_url, "INSERT INTO _meta (key, value) VALUES ('run_id', CAST(x'ff' AS BLOB))")
    with pytest.raises(persist.StoreCorrupt, match="correct it, or restore a backup"):
        Store.open(sqlite_url)


@pytest.mark.parametrize("pool", [StaticPool, SingletonThreadPool])
def test_a_pool_that_shares_a_connection_has_none_for_recorders(postgres_url: str, pool: Any) -> None:
    with psycopg.connect(postgres_url) as connection:
        engine = create_engine("postgresql+psycopg://", creator=lambda: connection, poolclass=pool)
        with Store.from_engine(engine) as store:
            session = create(store)
            with pytest.raises(InvalidValue, match=pool.__name__), store.record(session) as recorder:
                recorder.feed({"type": "start", "messageId": "m"})
        engine.dispose()


def test_a_hosts_map_of_schemas_is_its_own(database_url: str, store: Any) -> None:
    url = database_url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url)
    with Store.from_engine(engine) as mine:
        with engine.connect() as plain, plain.begin():
            create_in(mine, plain)
        mapped = engine.execution_options(schema_translate_map={None: "tenant"})
        with mapped.connect() as theirs, theirs.begin():
            create_in(mine, theirs)
            assert theirs.get_execution_options()["schema_translate_map"][None] == "tenant"
            assert theirs.scalar(text("SELECT 1")) == 1
        persist.upgrade(mapped)
        assert len(mine.chat.sessions.list().items) == 2
    engine.dispose()


def create_in(store: Store, connection: Any) -> None:
    store.join(connection).chat.sessions.create(agent="a", model={})


def queued_pair(url: str) -> tuple[str, str]:
    """A run in front of the queue that tests spoil, and a sound one behind it."""
    with Store.open(url) as store, store.begin() as tx:
        queued: Any = {"trigger_id": "t", "current_phase": "p", "status": "queued"}
        return tx.workflows.runs.create("w", priority=5, **queued).id, tx.workflows.runs.create("w", **queued).id


ROOM = [{}, {"limit": 5}, {"workflow_names": ["w", "other"], "limit": 5}]
"""Ways to claim: each is another statement."""


@pytest.mark.parametrize("value", UNBINDABLE)
@pytest.mark.parametrize("wanted", ROOM)
def test_a_queued_run_that_cannot_be_named_is_passed_by(sqlite_url: str, value: str, wanted: Any) -> None:
    spoilt, sound = queued_pair(sqlite_url)
    change(sqlite_url, "UPDATE workflow_runs SET id = ? WHERE id = ?", value, spoilt)
    with Store.open(sqlite_url) as store:
        claimed = store.workflows.runs.claim("me", lease=timedelta(minutes=1), **wanted)
        assert [lease.run_id for lease in (claimed if wanted else [claimed])] == [sound]
        assert store.workflows.runs.claim("me", lease=timedelta(minutes=1), **wanted) in (None, [])


@pytest.mark.parametrize("wanted", ROOM)
def test_a_queued_run_after_whose_token_no_number_follows_is_passed_by(database_url: str, wanted: Any) -> None:
    spoilt, sound = queued_pair(database_url)
    change(database_url, "UPDATE workflow_runs SET lease_token = 9223372036854775807 WHERE id = ?", spoilt)
    with Store.open(database_url) as store:
        claimed = store.workflows.runs.claim("me", lease=timedelta(minutes=1), **wanted)
        assert [lease.run_id for lease in (claimed if wanted else [claimed])] == [sound]
        assert store.workflows.runs.cancel(spoilt)
        assert store.workflows.runs.get(spoilt).status == "cancelled"


@pytest.mark.parametrize("number", ["NaN", "1e400", "1" + "0" * 400 + ".5"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_run_ends_though_its_context_has_a_number_that_json_lacks(database_url: str, number: str, alone: bool) -> None:
    parent, child = queued_pair(database_url)
    spoilt = f'{{"a":{number}}}'
    if number == "NaN" and not database_url.startswith("sqlite"):
        spoilt = '{"a":1e401}'  # a server takes no NaN as JSON
    change(database_url, "UPDATE workflow_runs SET parent_run_id = ? WHERE id = ?", parent, child)
    change(database_url, "UPDATE workflow_runs SET context = ? WHERE id = ?", spoilt, child)
    with Store.open(database_url) as store:
        before = store.workflows.runs.get(child).context
        lease = store.workflows.runs.claim("me", lease=timedelta(minutes=1), workflow_name="w", limit=2)[1]
        if alone:
            store.workflows.runs.finish(child, "failed", error="it broke", lease=lease)
        else:
            store.workflows.runs.cancel(parent, reason="not wanted", cascade=True)
        ended = [store.workflows.runs.get(id) for id in (parent, child)]
        assert [run.status for run in ended] == (["running", "failed"] if alone else ["cancelled", "cancelled"])
        assert str(ended[1].context) == str(before)


@pytest.mark.parametrize(
    ("column", "value"),
    [("context", '{"a":NaN}'), ("context", '{"a":1e999}'), ("current_phase", "a\0b"), ("current_phase", LONG)],
)
def test_a_gate_of_a_run_with_an_odd_cell_keeps_no_other_from_expiring(sqlite_url: str, column: str, value: str) -> None:
    now = datetime.now(UTC)
    with Store.open(sqlite_url) as store:
        gates = []
        for number in range(3):
            with store.begin() as tx:
                run = tx.workflows.runs.create("w", trigger_id=f"t{number}", current_phase="p")
                tx.workflows.approvals.wait(run.id, "go", summary="?", expires_at=now)
                gates.append(run.id)
        change(sqlite_url, f"UPDATE workflow_runs SET {column} = ? WHERE id = ?", value, gates[1])
        closed = {gate.workflow_run_id for gate in store.workflows.approvals.expire_due(now + timedelta(days=1))}
        assert closed >= {gates[0], gates[2]}


@pytest.mark.parametrize("value", UNBINDABLE)
def test_a_task_that_cannot_be_named_keeps_no_other_from_being_claimed(sqlite_url: str, value: str) -> None:
    with Store.open(sqlite_url) as store:
        found = [{"id": name, "source_id": name, "kind": "issue", "title": name} for name in ("first", "second")]
        store.telemetry.tasks.poll(found)
        change(sqlite_url, "UPDATE tasks SET id = ?, discovered_at = 1 WHERE id = 'first'", value)
        claimed = store.telemetry.tasks.claim("box")
        assert claimed is not None
        assert claimed.id == "second"
