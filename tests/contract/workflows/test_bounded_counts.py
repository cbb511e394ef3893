"""Counts that need not be exact: exact as long as they are small, and then they say what they are."""

from typing import Any

import pytest

from persist.db.values.arguments import Count
from persist.errors import InvalidValue
from persist.workflows.verbs.run_reads import MOST_COUNTED
from persist.workflows.verbs.statistics import MOST_OF_GROUP
from tests.contract.faces import every_way
from tests.contract.workflows.scenes import ask, do, end, make, queue, start
from tests.distributed_server import takes_triggers

pytestmark = every_way

_NUMBERS = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {})"
_AT = "'2025-01-01T00:00:00.000Z'"


@pytest.fixture
def estimates(backend: str, database_url: str) -> bool:
    """Whether the planner expects numbers of rows: neither that of a file does, nor that of a cluster."""
    return backend == "postgres" and takes_triggers(database_url)


def stats(store: Any, **options: Any) -> Any:
    with store.read() as tx:
        return tx.workflows.executions.stats(**options)


def ended_runs(raw: Any, number: int) -> None:
    """So many runs that have succeeded, as one statement."""
    at = _AT if raw.is_sqlite else f"{_AT}::timestamptz"
    columns = "id, workflow_name, trigger_id, current_phase, status, started_at, updated_at"
    numbers = _NUMBERS.format(number)
    values = f"'run_' || n, 'build', 'bulk', 'plan', 'succeeded', {at}, {at}"
    raw.rows(f"INSERT INTO workflow_runs ({columns}) {numbers} SELECT {values} FROM n")


def ended_executions(raw: Any, number: int, skill: str) -> None:
    at = _AT if raw.is_sqlite else f"{_AT}::timestamptz"
    columns = "id, trigger_type, trigger_id, skill, started_at, finished_at"
    numbers = _NUMBERS.format(number)
    values = f"'exe_' || n, 'cron', 'bulk', '{skill}', {at}, {at}"
    raw.rows(f"INSERT INTO executions ({columns}) {numbers} SELECT {values} FROM n")


def test_a_small_count_is_exact(store: Any) -> None:
    make(store)
    queue(store)
    found = ask(store, "count", exact=False)
    assert (found, found.exact, found.basis) == (2, True, "exact")
    assert (ask(store, "count", status="queued", exact=False), ask(store, "count", status=["queued", "failed"], exact=False)) == (
        1,
        1,
    )
    assert ask(store, "count", workflow_name="other", exact=False) == 0
    assert type(ask(store, "count")) is int


def test_a_large_count_says_what_it_is(store: Any, raw: Any, estimates: bool) -> None:
    """Rare statuses are counted among many runs of another one."""
    ended_runs(raw, MOST_COUNTED + 5)
    queue(store)
    assert ask(store, "count") == MOST_COUNTED + 6
    for found in (ask(store, "count", exact=False), ask(store, "count", status="succeeded", exact=False)):
        assert not found.exact
        if estimates:
            assert (found > MOST_COUNTED, found.basis) == (True, "estimate")
        else:
            assert (found, found.basis) == (MOST_COUNTED, "at_least")
    assert ask(store, "count", status=["queued", "running", "paused"], exact=False) == Count(1)
    assert ask(store, "count", status="queued", exact=False).exact


def test_a_count_of_exactly_the_bound_is_exact(store: Any, raw: Any) -> None:
    ended_runs(raw, MOST_COUNTED)
    found = ask(store, "count", exact=False)
    assert (found, found.exact) == (MOST_COUNTED, True)


def test_small_statistics_are_those_that_are_exact(store: Any) -> None:
    end(store, start(store, skill="build:plan"))
    start(store, skill="build:write")
    start(store, skill="chat", trigger_type="slack")
    assert stats(store, exact=False) == stats(store)
    assert stats(store).exact


def test_large_statistics_say_what_they_are(store: Any, raw: Any, estimates: bool) -> None:
    ended_executions(raw, MOST_OF_GROUP + 3, "build:plan")
    start(store, skill="chat", trigger_type="slack")
    exact, found = stats(store), stats(store, exact=False)
    assert (exact.exact, found.exact) == (True, False)
    assert (found.total, found.running, found.today) == (exact.total, exact.running, exact.today)
    assert (found.by_skill["chat"], found.by_trigger["slack"]) == (1, 1)
    for numbers, name in ((found.by_skill, "build:plan"), (found.by_trigger, "cron")):
        assert numbers[name].basis == ("estimate" if estimates else "at_least")
        assert numbers[name] >= MOST_OF_GROUP


def test_no_execution_no_name(store: Any) -> None:
    found = stats(store, exact=False)
    assert (found.total, found.by_skill, found.by_trigger, found.exact) == (0, {}, {}, True)


def test_only_a_flag_says_whether_a_count_is_exact(store: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        ask(store, "count", exact="no")
    assert refused.value.path == "exact"
    with pytest.raises(InvalidValue) as refused:
        stats(store, exact=1)
    assert refused.value.path == "exact"


def test_requeueing_changes_the_count_of_the_same_snapshot_only(store: Any) -> None:
    run = make(store)
    with store.begin() as tx:
        assert tx.workflows.runs.count(status="queued", exact=False) == 0
        tx.workflows.runs.requeue(run.id)
        assert tx.workflows.runs.count(status="queued", exact=False) == 1
    do(store, "cancel", run.id)
    assert ask(store, "count", status="queued", exact=False) == 0
