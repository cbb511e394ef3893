"""What a program that is not persist writes is noted by triggers, on either database; what persist writes is not."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, func, select

from persist import Store
from persist.errors import PersistError
from persist.maintenance import copy, erase, prune
from persist.programs import audit
from persist.programs.models import raw_writes
from persist.programs.schemas import AuditFinding
from persist.store.transaction import work_of
from persist.testing import FrozenClock
from tests.contract.programs.scenes import OTHER, RUN, begin, bind, do, given, make
from tests.statemachines.scene import arguments, verbs
from tests.statemachines.scene import make as make_one_of_everything

pytestmark = pytest.mark.one_server


def noted(store: Any, run: str = RUN) -> list[AuditFinding]:
    return [one for one in given(store, audit, run) if one.code == "raw_write"]


def test_a_shells_changes_are_told_with_what_was_there_before(store: Any, raw: Any) -> None:
    make(store)
    frame = begin(store)
    bind(store, "draft", "as it was", execution_id=frame)
    bind(store, "gone", "kept for long")
    do(store, "agents", "start", RUN, "captain", resume=False)
    do(store, "agents", "remember", RUN, "captain", "x" * 20_000)
    assert noted(store) == []
    raw.rows("UPDATE bindings SET value = 'other' WHERE name = 'draft'")
    raw.rows("UPDATE bindings SET value = value")
    raw.rows("UPDATE agents SET memory = NULL")
    raw.rows("DELETE FROM bindings WHERE name = 'gone'")
    raw.rows("INSERT INTO imports (run_id, alias) VALUES (?, 'x')", RUN)
    raw.rows("UPDATE run SET status = 'failed'")
    changed, forgot, deleted, added, ended = noted(store)
    assert changed.subject == f"bindings name='draft', execution_id={frame}"
    assert changed.before == {"value": "as it was"}
    assert "changed by a raw writer" in changed.message
    assert "as it was" not in changed.message  # operators' commands print messages
    assert forgot.before == {"memory": "x" * 10_000 + " ... (20000 characters)"}
    assert deleted.before is not None
    assert (deleted.before["value"], deleted.before["kind"]) == ("kept for long", "let")
    assert (added.subject, added.before) == ("imports alias='x'", None)
    assert (ended.subject, ended.before) == (f"run id={RUN!r}", {"status": "running"})
    for one in (changed, forgot, deleted, added, ended):
        assert one.at is not None
        if raw.is_sqlite:
            assert one.writer is None
        else:
            assert one.writer is not None
            assert {"role", "application", "pid", "address"} == set(one.writer)


def test_a_row_that_moves_between_runs_is_told_in_both(store: Any, raw: Any) -> None:
    make(store)
    make(store, OTHER)
    bind(store, "planted", "x", run=OTHER)
    raw.rows("UPDATE bindings SET run_id = ?, value = 'y' WHERE name = 'planted'", RUN)
    (left,), (came,) = noted(store, OTHER), noted(store)
    assert (left.subject, left.before) == ("bindings name='planted'", {"run_id": OTHER, "value": "x"})
    assert (came.subject, came.before) == ("bindings name='planted'", None)
    assert "it was inserted by a raw writer" in came.message


def test_what_is_undone_and_what_changes_nothing_is_not_told(store: Any, raw: Any) -> None:
    make(store)
    bind(store, "draft", "as it was")
    raw.rows("UPDATE bindings SET value = 'as it was'")
    with pytest.raises(Exception, match=r"bindings\.attachment_path"):
        raw.rows("UPDATE bindings SET attachment_path = '../x'")
    assert noted(store) == []


def test_a_shell_does_not_change_the_notes_and_does_not_fill_the_disk(store: Any, raw: Any) -> None:
    make(store)
    make(store, OTHER)
    bind(store, "draft", "as it was")
    raw.rows("UPDATE bindings SET value = 'the first'")
    forged = "INSERT INTO raw_writes (id, run_id, at, table_name, operation) VALUES"
    for statement in (
        "DELETE FROM raw_writes",
        "UPDATE raw_writes SET before_json = NULL",
        "UPDATE raw_writes SET at = 0",
        "UPDATE raw_writes SET id = 0",
        f"{forged} (77, '{RUN}', 1, 'bindings', 'insert')",
        f"{forged} (77, '{RUN}', 0, 'bindings', 'insert')",
        f"{forged} (1, '{RUN}', 1, 'bindings', 'insert')".replace("INSERT", "INSERT OR REPLACE" if raw.is_sqlite else "INSERT"),
    ):
        with pytest.raises(Exception, match="notes of raw writes are only deleted by persist"):
            raw.rows(statement)
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1100)"
    raw.rows(f"{many} INSERT INTO imports (run_id, alias) SELECT ?, CAST(i AS text) FROM n", RUN)
    assert raw.count("raw_writes") == 1000
    found = noted(store)
    assert len(found) == 1001
    assert found[0].before == {"value": "as it was"}
    assert "a run has room for 1,000" in found[-1].message
    raw.rows("INSERT INTO imports (run_id, alias) VALUES (?, 'x')", OTHER)
    assert len(noted(store, OTHER)) == 1


def test_triggers_that_others_changed_or_made_are_told(store: Any, raw: Any) -> None:
    make(store)
    assert given(store, audit, RUN) == []
    if raw.is_sqlite:
        raw.rows("CREATE TRIGGER theirs AFTER INSERT ON raw_writes BEGIN SELECT 1; END")
        raw.rows("DROP TRIGGER persist_row_guard_log_agents_updated")
        raw.rows("CREATE TRIGGER persist_row_guard_log_agents_updated AFTER UPDATE ON agents BEGIN SELECT 1; END")
        changed = ["persist_row_guard_log_agents_updated"]
    else:
        made = "FOR EACH ROW WHEN (false) EXECUTE FUNCTION"
        raw.rows("CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
        raw.rows("CREATE TRIGGER theirs AFTER INSERT ON raw_writes FOR EACH ROW EXECUTE FUNCTION theirs()")
        raw.rows("DROP TRIGGER persist_row_guard_log_agents_rows ON agents")
        rows = "persist_row_guard_log_agents_rows AFTER INSERT OR UPDATE OR DELETE ON agents"
        raw.rows(f"CREATE TRIGGER {rows} {made} persist_row_guard_log_agents('run_id', 'run_id,name')")
        same = "CREATE OR REPLACE FUNCTION persist_row_guard_log_raw_writes() RETURNS trigger LANGUAGE plpgsql"
        raw.rows(f"{same} AS 'BEGIN RETURN NEW; END'")
        changed = [f"persist_row_guard_log_{name}" for name in ("agents_rows", "raw_writes", "raw_writes_made")]
    shown = [(one.code, one.subject) for one in given(store, audit, RUN)]
    assert shown == [*(("guard_missing", f"trigger {name}") for name in changed), ("trigger_unknown", "trigger theirs")]


def test_emptied_tables_have_their_own_room(store: Any, raw: Any) -> None:
    make(store)
    bind(store, "draft", "as it was")
    if raw.is_sqlite:
        return  # it has no TRUNCATE
    raw.rows("DO $$ BEGIN FOR n IN 1..102 LOOP TRUNCATE agent_segments; END LOOP; END $$")
    raw.rows("UPDATE bindings SET value = 'other'")
    found = noted(store)
    assert len(found) == 102
    assert "what is of no run has room for 100" in found[-1].message
    assert found[-2].before == {"value": "as it was"}


def test_no_verb_of_the_library_leaves_a_note(database_url: str, open_raw: Any) -> None:
    """Every verb of programs, in a transaction, outside of one, and in a transaction of a host."""
    with Store.open(database_url) as store:
        ids = make_one_of_everything(store)
        store.switch_events(False)
        raw = open_raw(database_url)
        of_programs = [one for one in verbs() if one.domain == "programs"]
        assert len(of_programs) > 25
        for verb in of_programs:
            with suppress(UndoneError), store.begin() as tx:
                verb.call(tx, arguments(verb, ids))
                assert work_of(tx).select(select(func.count()).select_from(raw_writes)).scalar_one() == 0, verb.name
                raise UndoneError
        for verb in of_programs:
            with suppress(PersistError):  # what another verb did before may refuse it
                verb.call(store, arguments(verb, ids))
            assert raw.count("raw_writes") == 0, verb.name


class UndoneError(Exception):
    pass


def test_a_hosts_transaction_is_marked_while_a_verb_runs_and_no_longer(database_url: str, open_raw: Any) -> None:
    with Store.open(database_url) as made:
        make(made)
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    raw = open_raw(database_url)
    with Store.from_engine(engine) as store:
        bind(store, "draft", "as it was")
        for change in ("execute", "again"):
            with engine.begin() as connection:
                if not raw.is_sqlite:
                    connection.exec_driver_sql("SET LOCAL search_path = persist")
                store.join(connection).programs.bindings.bind(RUN, "draft", f"by the verb, to {change}")
                connection.exec_driver_sql(f"UPDATE bindings SET value = 'by the host, to {change}'")
                store.join(connection).programs.bindings.bind(RUN, "draft", "by the verb")
        found = [one.before for one in noted(store)]
        assert found == [{"value": "by the verb, to execute"}, {"value": "by the verb, to again"}]
        assert raw.value("SELECT count(*) FROM _meta WHERE key = 'writer'") == 0
    engine.dispose()


def test_notes_are_copied_and_go_with_their_run(database_url: str, open_raw: Any, tmp_path: Path) -> None:
    clock = FrozenClock()
    with Store.open(database_url, clock=clock) as store, Store.open(f"sqlite:///{(tmp_path / 'copy.db').as_posix()}") as target:
        raw = open_raw(database_url)
        for run in (RUN, OTHER):
            make(store, run)
            bind(store, "draft", f"the secret of {run}", run=run)
            raw.rows("UPDATE bindings SET value = 'other' WHERE run_id = ?", run)
            do(store, "runs", "finish", run, "completed")
        copy(store, target)
        assert [one.before for one in noted(target)] == [{"value": f"the secret of {RUN}"}]
        assert erase(store, session_id=RUN).tables["raw_writes"] == 1
        assert raw.rows("SELECT run_id FROM raw_writes") == [(OTHER,)]
        clock.advance(seconds=2)
        assert prune(store, "programs", older_than=timedelta(0)).tables["raw_writes"] == 1
        assert raw.count("raw_writes") == 0
        assert [one.before for one in noted(target, OTHER)] == [{"value": f"the secret of {OTHER}"}]


def test_what_is_left_of_runs_that_a_shell_deleted_or_made_up_goes_too(database_url: str, open_raw: Any) -> None:
    with Store.open(database_url, clock=lambda: datetime.now(UTC) + timedelta(hours=1)) as store:
        raw = open_raw(database_url)
        for run in (RUN, OTHER):
            make(store, run)
            bind(store, "draft", f"the secret of {run}", run=run)
        for table in ("bindings", "run"):
            raw.rows(f"DELETE FROM {table}")
        raw.rows("INSERT INTO bindings (run_id, name, kind, value) VALUES ('ghost', 'n', 'let', 'a secret')")
        raw.rows("INSERT INTO imports (run_id, alias) VALUES ('', 'of no run')")
        assert erase(store, session_id=RUN).tables == {"raw_writes": 2}
        assert erase(store, session_id="ghost").tables == {"bindings": 1, "raw_writes": 1}
        make(store, "alive")
        raw.rows("UPDATE run SET state_mode = 'other'")
        assert sorted(raw.rows("SELECT run_id FROM raw_writes")) == [("",), (OTHER,), (OTHER,), ("alive",)]
        assert prune(store, "programs", older_than=2 * timedelta(hours=1)).tables == {}
        for trial in (True, False):
            assert prune(store, "programs", older_than=timedelta(0), dry_run=trial).tables == {"raw_writes": 3}
        assert raw.rows("SELECT run_id FROM raw_writes") == [("alive",)]
