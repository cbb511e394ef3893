"""Files of agent instances whose tables know nothing of other instances."""

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from persist import PersistError, Store
from persist.schema.adopt import Settled
from persist.schema.metadata import HEAD
from persist.single_owner_files import open_instance
from tests.adopt.files import Foreign
from tests.adopt.shapes import FIRST_WORKFLOWS, INSTANCE, WORKFLOWS

Make = Callable[..., Foreign]

ROWS = """
INSERT INTO status_log VALUES (1, 1700000000, 'busy', NULL), (2, 1700000060, 'question', '{"prompt": "y?"}');
INSERT INTO agent_tags VALUES ('repo', 'o/r', 1700000000, 1700000050);
INSERT INTO github_link_statuses VALUES ('https://github.com/o/r/issue/1', 'issue', 'github.com', 'o', 'r', 1, 'open', NULL, NULL,
    NULL, 0, 1700000000, 1700000600, NULL);
INSERT INTO usage_samples VALUES (1700000000, 10, NULL, 1, 2, 300);
INSERT INTO tool_history VALUES (1, 1700000000, 'bash', 0, 12);
INSERT INTO account_snapshots VALUES (1, 1700000000);
"""
AT = datetime.fromtimestamp(1_700_000_000, UTC)


def test_rows_stay_and_the_version_of_the_other_program_is_kept(foreign: Make) -> None:
    file = foreign(INSTANCE + ROWS)
    report = file.adopt()
    file.assert_kept(report)
    assert report.settled == (Settled("_meta", "the file's own schema_version, '3', is now adopted_schema_version", 1),)
    assert dict(file.rows("SELECT key, value FROM _meta")) == {"schema_version": HEAD, "adopted_schema_version": "3"}


def test_every_upsert_finds_the_rows_that_are_there(foreign: Make) -> None:
    file = foreign(INSTANCE + ROWS)
    folder = file.path.parent / "box"
    folder.mkdir()
    file.path = file.path.rename(folder / "jackin.db")
    file.adopt()
    with open_instance(folder.parent, "box") as store, store.begin() as tx:
        telemetry = tx.telemetry
        current = telemetry.status.current()
        assert current is not None
        assert (current.new_status, current.instance_id) == ("question", "box")
        telemetry.status.record("idle")
        sample = telemetry.usage.sample(at=AT, token_input=5, token_output=7)
        assert (sample.token_input, sample.token_output, sample.cost_usd_micros) == (15, 7, 300)
        tag = telemetry.tags.record("repo", "o/r")
        assert tag.first_seen == AT
        telemetry.tools.record("bash", exit_code=1, duration_ms=2)
        links = telemetry.links.list()
        assert [link.resource_number for link in links] == [1]
        assert telemetry.links.record_error(links[0].url, "timeout").last_error == "timeout"
    assert file.rows("SELECT count(*) FROM usage_samples") == [(1,)]
    assert file.rows("SELECT count(*) FROM agent_tags") == [(1,)]
    assert file.rows("SELECT count(*) FROM github_link_statuses") == [(1,)]
    assert file.rows("SELECT max(id) FROM status_log") == [(3,)]


LINKS = """
INSERT INTO github_link_statuses VALUES
    ('https://github.com/o/r/issues/1', 'issue', 'github.com', 'o', 'r', 1, 'closed', NULL, NULL, NULL, 0, 1700000000,
    1700000600, NULL),
    ('https://github.com/o/r/issue/1', 'issue', 'github.com', 'o', 'r', 1, 'open', NULL, NULL, NULL, 0, 1600000000,
    1600000600, NULL),
    ('http://WWW.github.com/o/r/pulls/2/files', 'pr', 'www.github.com', 'o', 'r', 2, NULL, 'open', NULL, NULL, 0, 0, 300, 'x'),
    ('https://github.com/o/r/pull/3', 'pr', 'github.com', 'o', 'r', 3, NULL, 'open', NULL, NULL, 0, 1700000000, 1700000300, NULL),
    ('not a link', 'pr', '', '', '', 0, NULL, NULL, NULL, NULL, 0, 0, 0, NULL);
ALTER TABLE github_link_statuses ADD COLUMN x_seen INTEGER;
UPDATE github_link_statuses SET x_seen = 5;
"""


def test_links_are_written_in_their_canonical_form(foreign: Make) -> None:
    file = foreign(INSTANCE + LINKS)
    report = file.adopt()
    assert report.settled[:2] == (
        Settled("github_link_statuses", "of several rows of one link all but the one fetched last went", 1),
        Settled("github_link_statuses", "URLs were written in their canonical form", 2),
    )
    assert file.rows("SELECT url, host, issue_state, last_error, x_seen FROM github_link_statuses ORDER BY url") == [
        ("https://github.com/o/r/issue/1", "github.com", "closed", None, 5),
        ("https://github.com/o/r/pull/2", "github.com", None, "x", 5),
        ("https://github.com/o/r/pull/3", "github.com", None, None, 5),
        ("not a link", "", None, None, 5),
    ]


# Files of a workflow engine: its first release, with the UNIQUE that had to go, and a later one.


RUNS = """
INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, phase_history, context, started_at, finished_at)
VALUES ('r1', 'triage', 'o/r#1', 'plan', '[{"phase": "plan"}]', '{"a": {"b": "é"}}', '2025-01-02T03:04:05.678Z', NULL),
    ('r2', 'triage', 'o/r#2', 'done', '[]', NULL, '2025-01-02T03:04:05.678Z', '2025-01-03T00:00:00.000Z');
INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, success)
VALUES ('e1', 'webhook', 'o/r#1', 'triage:plan', '2025-01-02T03:04:05.678Z', 0),
    ('e2', 'webhook', 'o/r#1', 'triage:work', '2025-01-02T03:05:05.678Z', NULL);
"""
CHATS = """
INSERT INTO messaging_sessions (id, platform, channel_id, thread_id, user_id, created_at, last_activity_at, active)
VALUES ('s1', 'slack', 'C', 'T', 'U', '2025-01-01T00:00:00.000Z', '2025-01-01T00:00:00.000Z', 1),
    ('s2', 'slack', 'C', NULL, 'U', '2025-01-01T00:00:00.000Z', '2025-01-03T00:00:00.000Z', 1),
    ('s3', 'slack', 'C', NULL, 'U', '2025-01-01T00:00:00.000Z', '2025-01-02T00:00:00.000Z', 1),
    ('s4', 'slack', 'C', NULL, 'U', '2025-01-01T00:00:00.000Z', '2025-01-04T00:00:00.000Z', 0);
INSERT INTO messaging_messages (session_id, role, content, timestamp)
VALUES ('s1', 'user', 'one', '2025-01-01T00:00:00.000Z'), ('s1', 'assistant', 'two', '2025-01-01T00:00:01.000Z');
"""


@pytest.mark.parametrize("script", [FIRST_WORKFLOWS, WORKFLOWS], ids=["first", "later"])
def test_rows_stay_and_only_the_newest_session_of_a_key_is_active(foreign: Make, script: str) -> None:
    columns = ", updated_at) SELECT *, '2025-01-05T00:00:00.000Z' FROM (" if script is WORKFLOWS else ""
    runs = RUNS.replace(", finished_at)\nVALUES", f", finished_at{columns}VALUES", 1) if columns else RUNS
    runs = runs.replace("'2025-01-03T00:00:00.000Z');", "'2025-01-03T00:00:00.000Z'));", 1) if columns else runs
    file = foreign(script + runs + CHATS)
    report = file.adopt()
    assert report.settled == (
        Settled("messaging_sessions", "of several active sessions of one key all but the newest became inactive", 1),
    )
    unknown = [("messaging_sessions.extra, (column)", 4), ("notes", 1)] if script is FIRST_WORKFLOWS else []
    assert [(notice.subject, notice.count) for notice in report.notices] == unknown
    file.assert_kept(report, but=["messaging_sessions", "notes"])
    assert file.rows("SELECT id, active FROM messaging_sessions ORDER BY id") == [("s1", 1), ("s2", 1), ("s3", 0), ("s4", 0)]


def test_a_missing_instant_is_taken_from_the_others(foreign: Make) -> None:
    file = foreign(FIRST_WORKFLOWS + RUNS)
    file.adopt()
    assert file.rows("SELECT id, updated_at FROM workflow_runs ORDER BY id") == [
        ("r1", "2025-01-02T03:04:05.678Z"),
        ("r2", "2025-01-03T00:00:00.000Z"),
    ]


def test_the_unique_of_the_first_release_goes_and_everything_else_of_its_table_stays(foreign: Make) -> None:
    file = foreign(FIRST_WORKFLOWS + CHATS)
    report = file.adopt()
    assert report.rebuilt == ("messaging_sessions",)
    file.assert_kept(report, but=["messaging_sessions", "notes"])
    assert file.rows('SELECT DISTINCT "extra, (column)" FROM messaging_sessions') == [("a,b)",)]
    assert file.rows("SELECT content FROM messaging_messages ORDER BY id") == [("one",), ("two",)]
    assert file.rows("SELECT count(*) FROM pragma_foreign_key_list('messaging_messages')") == [(1,)]
    file.run("UPDATE messaging_sessions SET agent_session_id = 'x' WHERE id = 's1'")
    assert file.rows("SELECT session_id FROM notes")[-1] == ("s1",)  # the trigger is there
    assert file.rows("SELECT id FROM active_sessions ORDER BY id") == [("s1",), ("s2",)]
    with Store.open(file.url) as store, store.begin() as tx:
        tx.messaging.sessions.deactivate("s1")
        session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C", user_id="U", thread_id="T")
        assert session.id != "s1"


def test_a_message_of_no_session_is_refused_from_then_on(foreign: Make) -> None:
    file = foreign(FIRST_WORKFLOWS)
    file.adopt()
    orphan = "INSERT INTO messaging_messages (session_id, role, content, timestamp) VALUES ('nobody', 'user', '', '')"
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        file.run(f"PRAGMA foreign_keys = ON; {orphan}")
    with Store.open(file.url) as store, store.begin() as tx, pytest.raises(PersistError):
        tx.messaging.messages.add("nobody", role="user", content="x")


def test_a_run_that_was_interrupted_goes_on(foreign: Make) -> None:
    file = foreign(FIRST_WORKFLOWS + RUNS)
    file.adopt()
    with Store.open(file.url) as store, store.begin() as tx:
        assert tx.workflows.runs.get("r1").context == {"a": {"b": "é"}}
        tx.workflows.runs.append_phase("r1", "build", {"ok": True})
        assert [entry["phase"] for entry in tx.workflows.runs.get("r1").phase_history] == ["plan", "build"]
        assert tx.workflows.executions.get("e2").success is None


def test_rows_whose_parent_is_gone_are_kept_and_noted(foreign: Make) -> None:
    orphan = "INSERT INTO messaging_messages (session_id, role, content, timestamp) VALUES ('gone', 'user', 'x', '2025')"
    file = foreign(WORKFLOWS + orphan)
    report = file.adopt()
    file.assert_kept(report)
    assert ("messaging_messages", 1) in [(notice.subject, notice.count) for notice in report.notices]


def test_instants_that_cannot_be_read_or_sort_otherwise_are_noted(foreign: Make) -> None:
    rows = RUNS.replace("'2025-01-02T03:04:05.678Z', NULL),", "'yesterday', '2025-01-02T03:04:05Z'),").replace('{"a"', "{a", 1)
    report = foreign(FIRST_WORKFLOWS + rows).adopt()
    assert {(notice.subject, notice.count) for notice in report.notices} == {
        ("workflow_runs.started_at", 1),
        ("workflow_runs.finished_at", 1),
        ("workflow_runs.updated_at", 1),
        ("workflow_runs.context", 1),
    }


def test_an_index_of_the_same_name_for_less_is_not_taken_for_ours(foreign: Make) -> None:
    report = foreign(WORKFLOWS).adopt()
    assert "executions.idx_executions_workflow_run_2" in report.added_indexes
    assert "executions.idx_executions_skill" not in report.added_indexes
