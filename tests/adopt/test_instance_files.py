"""Files of agent instances whose tables know nothing of other instances."""

from collections.abc import Callable
from datetime import UTC, datetime

from persist.schema.adopt import Settled
from persist.schema.metadata import HEAD
from persist.single_owner_files import open_instance
from tests.adopt.files import Foreign
from tests.adopt.shapes import INSTANCE

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
