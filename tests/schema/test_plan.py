"""`persist upgrade --plan`: what an upgrade would do, step by step, with locks and sizes; and it does nothing."""

import json
from typing import Any

import pytest
from alembic import command
from click.testing import CliRunner

import persist
from persist import MigrationFailed
from persist.cli.root import main
from persist.db.dialects.postgres import upgrading
from persist.schema.metadata import HEAD
from tests.schema.conftest import Plant
from tests.schema.places import Place, repository_config

LANES = """
op.add_column("chat_sessions", sa.Column("lane", sa.Text()))
op.create_index("ix_chat_sessions_lane", "chat_sessions", ["lane", "id"])
"""


def said(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["upgrade", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def planned(url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said("--plan", "--json", "--url", url))
    return found


def test_the_plan_of_an_old_server(empty_postgres_url: str) -> None:
    command.upgrade(repository_config(empty_postgres_url), "0020")
    place = Place(empty_postgres_url)
    before = place.catalog(), place.rows("_meta", "persist_alembic_version")
    found = planned(empty_postgres_url)
    assert (place.catalog(), place.rows("_meta", "persist_alembic_version")) == before
    assert (found["from"], found["revision"]) == ("0020", HEAD)
    assert [step["phase"] for step in found["steps"]] == sorted(step["phase"] for step in found["steps"])
    by_name = {step["step"]: step for step in found["steps"]}
    column = by_name["add column workflow_runs.priority"]
    index = by_name["create index ix_workflow_runs_delayed on workflow_runs"]
    table = by_name["create table workflow_limits"]
    assert (column["phase"], column["lock"].partition(",")[0]) == (1, "ACCESS EXCLUSIVE")
    assert (index["phase"], index["lock"]) == (2, "SHARE UPDATE EXCLUSIVE: readers and writers go on")
    assert column["bytes"] == index["bytes"] > 0
    assert (table["phase"], table["bytes"], table["lock"].partition(":")[0]) == (1, None, "none")
    text = said("--plan", "--url", empty_postgres_url)
    assert "one by one, while others write" in text
    assert "locks SHARE UPDATE EXCLUSIVE" in text


def test_the_plan_of_a_new_database(empty_postgres_url: str) -> None:
    found = planned(empty_postgres_url)
    assert found["from"] is None
    assert {step["phase"] for step in found["steps"]} == {1}
    assert persist.current(empty_postgres_url) is None


def test_the_plan_of_a_file(empty_file: Place) -> None:
    command.upgrade(repository_config(empty_file.url), "0020")
    found = planned(empty_file.url)
    assert {(step["phase"], step["lock"]) for step in found["steps"]} == {(1, "the file, until all is done")}
    assert persist.current(empty_file.url) == "0020"


def test_nothing_is_planned_where_all_is_done(postgres_url: str) -> None:
    assert planned(postgres_url)["steps"] == []
    assert said("--plan", "--url", postgres_url) == f"Up to date already, at {HEAD}.\n"


def test_the_plan_of_an_upgrade_that_was_cut_short_is_what_is_left(
    empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    def steps() -> list[tuple[int, str]]:
        return [(step["phase"], step["step"]) for step in planned(empty_postgres_url)["steps"]]

    command.upgrade(repository_config(empty_postgres_url), "0020")
    late = [step for step in steps() if step[0] == 2]
    perform, done = upgrading.perform, 0

    def twice(*given: Any, **options: Any) -> None:
        nonlocal done
        done += 1
        if done > 2:
            raise ConnectionError("planted")
        perform(*given, **options)

    with monkeypatch.context() as patched:
        patched.setattr(upgrading, "perform", twice)
        with pytest.raises(MigrationFailed, match="planted"):
            persist.upgrade(empty_postgres_url)
    assert steps() == late[2:]
    assert "In one transaction" not in said("--plan", "--url", empty_postgres_url)
    plant(LANES)
    assert steps() == [
        (1, "add column chat_sessions.lane"),
        *late[2:],
        (2, "create index ix_chat_sessions_lane on chat_sessions"),
    ]
    persist.upgrade(empty_postgres_url)
    assert steps() == []
