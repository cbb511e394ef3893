"""Notes of what the sqlite3 command line wrote into a run file, beside a library that writes at the same time."""

import shutil
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.db.dialects.sqlite.row_guards import strict_guard_ddl
from persist.db.schema.row_guards import MAX_NOTES
from persist.maintenance import adopt, backup, doctor, erase, prune
from persist.programs import agents_file, audit, create_run_file, open_run_file
from persist.programs.models import STRICT_TABLES
from persist.programs.schemas import AuditFinding
from persist.testing import FrozenClock
from tests.command_line import Sqlite3
from tests.programs import published
from tests.programs.raw_rows import put
from tests.schema.databases.make import FOLDER


def noted(store: Store, run: str) -> list[AuditFinding]:
    return [one for one in audit(store, run) if one.code == "raw_write"]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (published.BIND.format(name="draft", frame="NULL", value="other"), [("replaced", "as it was")]),
        ("INSERT OR IGNORE INTO bindings (name, kind, value) VALUES ('draft', 'let', 'other')", []),
        ("INSERT OR IGNORE INTO bindings (name) VALUES ('draft'); INSERT INTO bindings (name) VALUES ('x')", ["x"]),
        (
            "INSERT INTO bindings (name, kind, value) VALUES ('draft', 'let', 'other')"
            " ON CONFLICT (run_id, name, coalesce(execution_id, -1)) DO UPDATE SET value = excluded.value",
            [("changed", "as it was")],
        ),
        (
            "UPDATE bindings SET value = x'00ff'; UPDATE bindings SET value = 1.5",
            [("changed", "as it was"), ("changed", "X'00FF'")],
        ),
        (
            "UPDATE bindings SET value = 'it''s' || char(10); DELETE FROM bindings",
            [("changed", "as it was"), ("deleted", "it's\n")],
        ),
        ("BEGIN; DELETE FROM bindings; ROLLBACK", []),
        ("UPDATE bindings SET value = value || char(0) || 'more'", [("changed", "as it was")]),
        ("UPDATE bindings SET value = char(0) || 'x'; DELETE FROM bindings", [("changed", "as it was"), ("deleted", "X'0078'")]),
        ("INSERT OR REPLACE INTO bindings (rowid, name) SELECT rowid, 'x' FROM bindings", [("replaced", "as it was"), "x"]),
        (
            "UPDATE bindings SET value = CAST(x'ff41' AS TEXT); DELETE FROM bindings",
            [("changed", "as it was"), ("deleted", "X'FF41'")],
        ),
        ("INSERT INTO bindings (name, value) VALUES (x'00', 9e999)", ["X'00'"]),
        ("PRAGMA recursive_triggers = ON; REPLACE INTO bindings (name) VALUES ('draft')", [("deleted", "as it was"), "draft"]),
    ],
)
def test_the_command_line_is_told_on(
    sqlite3_shell: Sqlite3, run_file: Store, run: str, file: Path, sql: str, told: list[Any]
) -> None:
    run_file.programs.bindings.bind(run, "draft", "as it was")
    done = sqlite3_shell.run(file, sql, "-bail")
    assert (done.returncode, done.stderr) == (0, "")
    found = noted(run_file, run)
    assert len(found) == len(told)
    for one, expected in zip(found, told, strict=True):
        if isinstance(expected, str):
            assert (one.subject, one.before) == (f"bindings name={expected!r}", None)
            continue
        word, value = expected
        assert word in one.message
        assert one.before is not None
        assert one.before["value"] == value
    assert all(problem.message.count("as it was") == 0 for problem in doctor(run_file))
    run_file.programs.bindings.bind(run, "draft", "by the library")
    assert noted(run_file, run) == found


def test_an_execution_that_is_replaced_from_another_run(run_file: Store, run: str, raw: sqlite3.Connection) -> None:
    """And a row of the number -1, which SQLite says before an INSERT that names no number, hides nothing."""
    frame = run_file.programs.executions.begin(run, statement_index=1, statement_text="x").id
    raw.execute("INSERT OR REPLACE INTO execution (id, run_id) VALUES (?, 'other')", (frame,))
    raw.execute("INSERT INTO execution (id) VALUES (-1)")
    raw.execute("INSERT INTO execution (statement_text) VALUES ('hidden')")
    raw.commit()
    assert [(one.subject, one.message.split()[2]) for one in noted(run_file, run)] == [
        (f"execution id={frame}", "replaced"),
        ("execution id=-1", "inserted"),
        (f"execution id={frame + 1}", "inserted"),
    ]
    assert raw.execute("SELECT operation FROM raw_writes WHERE run_id = 'other'").fetchall() == [("insert",)]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT OR REPLACE INTO bindings (rowid, name) SELECT rowid, 'x' FROM bindings WHERE name = 'rules'",
        "UPDATE OR REPLACE bindings SET name = 'rules' WHERE name = 'draft'",
        "UPDATE OR REPLACE bindings SET rowid = (SELECT rowid FROM bindings WHERE name = 'rules') WHERE name = 'draft'",
        "INSERT OR REPLACE INTO bindings (run_id, name, kind, value) VALUES (NULL, 'rules', 'let', 'evil')",
        "UPDATE OR REPLACE bindings SET run_id = NULL, name = 'rules', value = 'evil' WHERE name = 'draft'",
    ],
)
def test_nothing_takes_the_place_of_a_const(run_file: Store, run: str, raw: sqlite3.Connection, sql: str) -> None:
    """Nor does a NULL, for which REPLACE puts the default of the column, the file's own run, once the triggers were asked."""
    with run_file.begin() as tx:
        tx.programs.bindings.bind(run, "rules", "be brief", kind="const")
        tx.programs.bindings.bind(run, "draft", "x")
    with pytest.raises(sqlite3.IntegrityError, match="bound once"):
        raw.execute(sql)
    raw.rollback()
    assert [(one.name, one.kind) for one in run_file.programs.bindings.list(run)] == [("draft", "let"), ("rules", "const")]


def test_nothing_takes_the_place_of_a_const_at_the_rowid_that_stands_for_none(
    run_file: Store, run: str, raw: sqlite3.Connection
) -> None:
    run_file.programs.bindings.bind(run, "rules", "be brief", kind="const")
    raw.execute("UPDATE bindings SET rowid = -1")
    for verb in ("INSERT", "INSERT OR REPLACE"):
        with pytest.raises(sqlite3.IntegrityError, match=r"bindings\.rowid|UNIQUE"):
            raw.execute(f"{verb} INTO bindings (rowid, name, value) VALUES (-1, 'other', 'x')")
    raw.execute("INSERT INTO bindings (name, value) VALUES ('draft', 'x')")
    raw.commit()
    assert {one.name: one.value for one in run_file.programs.bindings.list(run)} == {"draft": "x", "rules": "be brief"}


def test_a_row_that_is_replaced_by_one_without_a_run_is_told(run_file: Store, run: str, raw: sqlite3.Connection) -> None:
    """REPLACE puts the default of the column for a NULL, which is the file's own run."""
    with run_file.begin() as tx:
        tx.programs.bindings.bind(run, "draft", "as it was")
        tx.programs.agents.start(run, "captain", resume=False)
        tx.programs.agents.remember(run, "captain", "what it knew")
    raw.execute("INSERT OR REPLACE INTO bindings (run_id, name, kind, value) VALUES (NULL, 'draft', 'let', 'evil')")
    raw.execute("INSERT OR REPLACE INTO agents (run_id, name, scope) VALUES (NULL, 'captain', 'execution')")
    raw.commit()
    draft, captain = noted(run_file, run)
    for one, column, said in ((draft, "value", "as it was"), (captain, "memory", "what it knew")):
        assert one.before is not None
        assert (one.before[column], one.message.split()[2]) == (said, "replaced")


@pytest.mark.parametrize("opened", [False, True], ids=["plainly", "with the row of a trigger that notes"])
def test_what_was_noted_stays_whatever_a_shell_writes(run_file: Store, run: str, raw: sqlite3.Connection, opened: bool) -> None:
    """Nor does a note get another instant than that at which it was made."""
    run_file.programs.bindings.bind(run, "draft", "as it was")
    raw.execute("UPDATE bindings SET value = 'evil'")
    raw.commit()
    (said,) = noted(run_file, run)
    (note,) = raw.execute("SELECT id FROM raw_writes").fetchone()
    if opened:
        raw.execute("INSERT INTO raw_writes (id, at, table_name, operation) VALUES (0, 0, '', '')")
    columns = "INTO raw_writes (id, run_id, at, table_name, operation)"
    for statement in (
        "DELETE FROM raw_writes WHERE id <> 0",
        "UPDATE raw_writes SET before_json = NULL WHERE id <> 0",
        "UPDATE raw_writes SET at = 0 WHERE id <> 0",
        f"UPDATE OR REPLACE raw_writes SET id = {note} WHERE id = 0",
        f"INSERT OR REPLACE {columns} VALUES ({note}, '', 1, 'bindings', 'insert')",
        f"INSERT {columns} VALUES ({note}, '', 1, 'bindings', 'insert') ON CONFLICT (id) DO UPDATE SET before_json = NULL",
        f"INSERT {columns} VALUES (77, '', 1700000000000, 'bindings', 'delete')",
        f"INSERT {columns} VALUES (77, '', '1.5', 'bindings', 'delete')",
        f"INSERT {columns} VALUES (77, '', x'00', 'bindings', 'delete')",
    ):
        if "id = 0" in statement and not opened:
            continue
        with pytest.raises(sqlite3.IntegrityError, match="only made by its triggers"):
            raw.execute(statement)
    raw.commit()
    assert noted(run_file, run) == [said]
    raw.execute("UPDATE bindings SET value = 'more'")
    raw.commit()
    assert [one.before for one in noted(run_file, run)] == [{"value": "as it was"}, {"value": "evil"}]


def test_runs_that_nobody_made_share_their_room(run_file: Store, run: str, raw: sqlite3.Connection) -> None:
    for number in range(600):
        raw.execute("INSERT INTO bindings (run_id, name) VALUES (?, 'n')", (f"invented {number}",))
        raw.execute("DELETE FROM bindings WHERE name = 'n'")
    raw.execute("INSERT INTO bindings (name) VALUES ('draft')")
    raw.commit()
    assert raw.execute("SELECT count(*) FROM raw_writes WHERE run_id <> ''").fetchone() == (MAX_NOTES,)
    assert [one.subject for one in noted(run_file, run)] == ["bindings name='draft'"]


def test_beside_a_library_that_writes(sqlite3_shell: Sqlite3, run_file: Store, run: str, file: Path) -> None:
    """Each note is of a shell's statement, and each statement has its note."""
    run_file.programs.bindings.bind(run, "shared", "0")
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            with run_file.begin() as tx:
                tx.programs.bindings.bind(run, f"mine {number % 5}", f"the library's {number}")
                tx.programs.executions.begin(run, statement_index=number, statement_text="x")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(1, 21):
            sql = f"UPDATE bindings SET value = '{number}' WHERE name = 'shared'"
            told = sqlite3_shell.run(file, sql, "-cmd", ".timeout 20000")
            assert (told.returncode, told.stderr) == (0, "")
    finally:
        over.set()
        writer.join()
    assert [one.before for one in noted(run_file, run)] == [{"value": str(number)} for number in range(20)]


def test_nothing_but_a_shell_leaves_notes(run_file: Store, run: str, raw: sqlite3.Connection, file: Path, tmp_path: Path) -> None:
    """Not the making of strict files, files of agents and adopted ones, nor what mends rows, copies them or upgrades a file."""
    put(raw, "spoilt", "../../secret.md")
    backup(run_file, tmp_path / "backup.db")
    with closing(sqlite3.connect(tmp_path / "published.db")) as other:
        for statement in (*published.SCHEMA[:2], "INSERT INTO run (id) VALUES ('r')"):
            other.execute(statement)
        other.commit()
    adopt(f"sqlite:///{(tmp_path / 'published.db').as_posix()}", backup=False)
    shutil.copyfile(FOLDER / "0028.db", tmp_path / "older.db")
    Store.open(f"sqlite:///{(tmp_path / 'older.db').as_posix()}").close()
    create_run_file(tmp_path, strict=True).close()
    agents_file("project", tmp_path).close()
    files = [path for path in tmp_path.rglob("*.db") if path.name != "x.db"]
    assert len(files) == 6
    for path in files:
        with closing(sqlite3.connect(path)) as look:
            assert look.execute("SELECT count(*) FROM raw_writes").fetchall() == [(0,)], path


def test_an_erased_runs_notes_leave_no_byte(tmp_path: Path, sqlite3_shell: Sqlite3, clock: FrozenClock) -> None:
    path = tmp_path / "many.db"
    with Store.open(f"sqlite:///{path.as_posix()}", clock=clock) as store:
        with store.begin() as tx:
            tx.programs.runs.create(id="theirs")
            tx.programs.bindings.bind("theirs", "draft", "a secret that a shell overwrote")
        assert sqlite3_shell.run(path, "UPDATE bindings SET value = 'nothing'").returncode == 0
        assert erase(store, session_id="theirs").tables["raw_writes"] == 1
    assert all(b"a secret that" not in found.read_bytes() for found in tmp_path.glob("many.db*"))


def test_the_notes_of_a_file_of_its_own_stay_whatever_a_shell_did_to_the_run(tmp_path: Path) -> None:
    with create_run_file(tmp_path, clock=lambda: datetime.now(UTC) + timedelta(hours=1)) as store:
        assert store.path is not None
        with closing(sqlite3.connect(store.path, isolation_level=None)) as raw:
            raw.execute("UPDATE run SET state_mode = 'other'")
            raw.execute("DELETE FROM run")
            raw.execute("INSERT INTO imports (alias) VALUES ('of its own')")
            raw.execute("INSERT INTO imports (run_id, alias) VALUES ('nobody', 'x')")
            assert prune(store, "programs", older_than=timedelta(0)).tables == {"raw_writes": 1}
            report = erase(store, session_id=store.run_id)
            assert (report.tables, len(report.kept)) == ({}, 1)
            assert raw.execute("SELECT count(*) FROM raw_writes").fetchall() == [(3,)]


def test_a_strict_file_of_revision_0028_is_written_as_ever(tmp_path: Path, clock: FrozenClock, sqlite3_shell: Sqlite3) -> None:
    """Its triggers look for a mark that is a row."""
    with create_run_file(tmp_path, strict=True, clock=clock) as store:
        path, run = store.path, store.run_id
    assert path is not None
    assert run is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        for statement in strict_guard_ddl(STRICT_TABLES, marked_rows=True):
            older.execute(f"DROP TRIGGER {statement.split()[2]}")
            older.execute(statement)
        older.execute("UPDATE _meta SET value = 'yes' WHERE key = 'strict'")
    with open_run_file(path) as store:
        store.programs.executions.begin(run, statement_index=1, statement_text="x")
        assert audit(store, run) == []
    assert sqlite3_shell.run(path, "UPDATE execution SET status = 'failed'").returncode != 0
