"""`persist histories` and `persist show` of runs that took steps and were never registered."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from persist import Store
from persist.cli import main

pytestmark = pytest.mark.one_database

AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def url(database_url: str) -> str:
    with Store.open(database_url) as store, store.begin() as tx:
        tx.histories.run_events.append("silent", "run_started", step_index=0, at=AT)
    return database_url


def printed(url: str, *words: str) -> Any:
    done = CliRunner().invoke(main, [*words, "--url", url])
    assert done.exit_code == 0, done.output
    return done


def test_a_run_that_was_never_registered_is_shown(url: str) -> None:
    for words in (["show", "silent"], ["histories", "show", "silent"]):
        lines = [line.split(maxsplit=1) for line in printed(url, *words).stdout.splitlines() if line]
        assert ["run", "silent"] in lines
        assert ["started", "never registered"] in lines
        assert lines[-1][0] == "0"
    told = json.loads(printed(url, "show", "silent", "--json").stdout)
    assert (told["run"]["id"], told["run"]["started_at"], len(told["events"])) == ("silent", None, 1)


def test_a_run_that_was_never_registered_is_listed(url: str) -> None:
    _, row = printed(url, "histories", "runs").stdout.splitlines()
    assert row.startswith("silent ")
    assert "never registered" in row
    assert printed(url, "histories", "runs", "-q").stdout == "silent\n"
    assert "persist histories runs" in printed(url, "ls", "histories").stderr
