"""Run files and files of agents that a machine made at the command line."""

from collections.abc import Callable

from persist import Store, Transaction
from persist.schema.adopt import Settled
from persist.single_owner_files import agents_file, open_run_file
from tests.adopt.files import Foreign
from tests.adopt.shapes import PROGRAMS
from tests.command_line import Sqlite3

Make = Callable[..., Foreign]

RUN = "INSERT INTO run (id, program_path, status) VALUES ('20260116-143052-a7b3c9', 'p.prose', 'running');"
ROWS = """
INSERT INTO execution (id, statement_index, statement_text, status, started_at, completed_at, parent_id, metadata) VALUES
    (42, 1, 'do x:', 'executing', '2026-01-16 14:30:52', NULL, NULL, NULL),
    (43, 2, 'session', 'completed', '2026-01-16 14:30:53', '2026-01-16 14:31:00', 42, '{"branch": "a"}');
INSERT INTO bindings (name, execution_id, kind, value, updated_at) VALUES
    ('research', NULL, 'let', 'first', '2026-01-16 14:30:52'), ('research', NULL, 'let', 'third', '2026-01-16 14:32:52'),
    ('research', NULL, 'let', 'second', '2026-01-16 14:31:52'), ('research', 42, 'let', 'inner', '2026-01-16 14:30:52');
INSERT INTO agents (name, scope, memory) VALUES ('scout', 'project', 'remembers');
INSERT INTO agent_segments (agent_name, segment_number, prompt) VALUES ('scout', 1, 'go');
INSERT INTO imports (alias, source_url) VALUES ('lib', 'https://example.org/lib.prose');
INSERT INTO x_metrics VALUES ('m', 1.5);
"""


def recalled(tx: Transaction, run_id: str, name: str) -> str | None:
    agent = tx.programs.agents.recall(run_id, name)
    assert agent is not None
    return agent.memory


def test_a_run_file_knows_its_run_and_lives_on(foreign: Make) -> None:
    file = foreign(PROGRAMS + RUN + ROWS, "state.db")
    report = file.adopt()
    file.assert_kept(report, but=["bindings"])
    assert report.run_id == "20260116-143052-a7b3c9"
    with open_run_file(file.path) as store:
        run_id = store.run_id
        assert run_id == report.run_id
        with store.begin() as tx:
            assert [execution.id for execution in tx.programs.executions.list(run_id)] == [42, 43]
            assert tx.programs.bindings.resolve(run_id, "research").value == "third"
            assert tx.programs.bindings.resolve(run_id, "research", execution_id=43).value == "inner"
            tx.programs.bindings.bind(run_id, "research", "fourth")
            assert tx.programs.bindings.resolve(run_id, "research").value == "fourth"
            assert recalled(tx, run_id, "scout") == "remembers"
            assert tx.programs.executions.begin(run_id, statement_index=3, statement_text="next").id == 44
            assert tx.programs.runs.get(run_id).status == "running"


def test_older_values_of_one_name_are_moved_and_not_lost(foreign: Make) -> None:
    file = foreign(PROGRAMS + RUN + ROWS)
    report = file.adopt()
    assert report.settled == (Settled("bindings", "older values of one name in one frame were moved to x_replaced_bindings", 2),)
    assert file.rows("SELECT value FROM bindings ORDER BY value") == [("inner",), ("third",)]
    assert file.rows("SELECT name, value FROM x_replaced_bindings ORDER BY value") == [
        ("research", "first"),
        ("research", "second"),
    ]


def test_the_command_line_writes_on(foreign: Make, sqlite3_shell: Sqlite3) -> None:
    file = foreign(PROGRAMS + RUN + ROWS)
    file.adopt()
    for statement in (
        "INSERT OR REPLACE INTO bindings (name, execution_id, kind, value) VALUES ('research', NULL, 'let', 'by hand')",
        "INSERT INTO agents (name, scope, memory) VALUES ('other', 'project', 'm')",
        "INSERT INTO imports (alias) VALUES ('more')",
    ):
        assert sqlite3_shell.run(file.path, statement).returncode == 0
    assert file.rows("SELECT value FROM bindings WHERE execution_id IS NULL") == [("by hand",)]
    with open_run_file(file.path, read_only=True) as store, store.read() as tx:
        assert recalled(tx, store.run_id or "", "other") == "m"


def test_a_file_with_several_runs_says_so(foreign: Make) -> None:
    report = foreign(PROGRAMS + "INSERT INTO run (id) VALUES ('a'), ('b')").adopt()
    assert report.run_id is None
    assert [(notice.subject, notice.count) for notice in report.notices] == [("run", 2)]


def test_a_file_of_agents_alone(foreign: Make) -> None:
    tables = PROGRAMS[PROGRAMS.index("CREATE TABLE agents") : PROGRAMS.index("CREATE TABLE imports")]
    file = foreign(tables + "INSERT INTO agents (name, memory) VALUES ('scout', 'remembers')", "agents.db")
    file.assert_kept(file.adopt())
    with agents_file("project", file.path.parent, path=file.path) as store, store.begin() as tx:
        assert recalled(tx, "project", "scout") == "remembers"


def test_bindings_without_any_key(foreign: Make) -> None:
    script = PROGRAMS.replace("attachment_path TEXT,\n    PRIMARY KEY (name, execution_id)", "attachment_path TEXT")
    file = foreign(script + RUN + ROWS + ROWS[ROWS.index("INSERT INTO bindings") : ROWS.index("INSERT INTO agents")])
    report = file.adopt()
    assert [settled.count for settled in report.settled] == [6]
    with Store.open(file.url, read_only=True) as store, store.read() as tx:
        assert tx.programs.bindings.resolve(report.run_id or "", "research").value == "third"
