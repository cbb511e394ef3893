"""A claim finds its run at the same cost however many runs have finished."""

from contextlib import closing
from datetime import timedelta

import pytest

from persist import Store
from tests.contract.conftest import Raw
from tests.contract.workflows.scenes import make, queue
from tests.query_plans import Asked, plan, rows_read, scans, steps

FINISHED = 3000
IN_ORDER = {
    "SCAN CONSTANT ROW",
    "SCAN main.workflow_overrides",
    "SCAN main.workflow_limits USING COVERING INDEX sqlite_autoindex_workflow_limits_1",
    "SEARCH main.usage_spending USING COVERING INDEX ix_usage_spending_used_up (passed=?)",
    "SCAN each_0",
    "SCAN each_1",
    "SCAN waiting USING INDEX ix_workflow_runs_ready",
    "SCAN main.workflow_runs USING INDEX ix_workflow_runs_ready",
    "USE TEMP B-TREE FOR ORDER BY",
}
"""What SQLite may do from the first row to the last: the index ends with the queue, and what is sorted is due.

Whether there are limits the first entry of their index says. `each_…` are the first runs of one of several workflows.
"""


def plant(url: str, status: str, count: int, *, analyze: bool = True) -> None:
    """So many runs of the status, all older than those that a store makes now."""
    with closing(Raw(url)) as raw:
        series, day, history = "generate_series(1, ?) AS s(n)", "timestamptz '2025-01-01'", "'[]'::jsonb"
        if raw.is_sqlite:
            series = "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < ?) SELECT n FROM s) AS s"
            day, history = "'2025-01-01T00:00:00.000Z'", "'[]'"
        raw.rows(
            "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, status, started_at, updated_at,"
            f" phase_history) SELECT '{status}_' || n, 'build', 't', 'p', '{status}', {day}, {day}, {history} FROM {series}",
            count,
        )
        if analyze:
            raw.rows("ANALYZE")


@pytest.mark.parametrize("name", [None, "build"])
@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "statistics of an hour ago"])
def test_a_claim_reads_no_finished_run(database_url: str, asked: list[Asked], analyzed: bool, name: str | None) -> None:
    """Also while the statistics of the table say that every run is queued."""
    with Store.open(database_url) as store:
        ids = [queue(store) for _ in range(50)]
        with closing(Raw(database_url)) as raw:
            raw.rows("ANALYZE")
        plant(database_url, "succeeded", FINISHED, analyze=analyzed)
        asked.clear()
        lease = store.workflows.runs.claim("w", lease=timedelta(hours=1), workflow_name=name)
        assert lease is not None
        assert lease.run_id == min(ids)
    statements = [statement for statement in asked if "workflow_runs" in statement[0]]
    assert statements
    for statement in statements:
        if database_url.startswith("sqlite"):
            assert set(scans(database_url, statement)) <= IN_ORDER
            assert not any("newest" in step for step in plan(database_url, statement))
        else:
            assert rows_read(database_url, statement) <= 60, plan(database_url, statement)


@pytest.mark.parametrize("names", [None, ["build"], ["build", "label"]])
def test_a_claim_passes_no_delayed_run(database_url: str, asked: list[Asked], names: list[str] | None) -> None:
    with Store.open(database_url) as store:
        plant(database_url, "queued", FINISHED)
        with closing(Raw(database_url)) as raw:
            raw.rows("UPDATE workflow_runs SET not_before = ?, priority = 1", "2999-01-01T00:00:00.000Z")
            raw.rows("ANALYZE")
        ids = [queue(store), queue(store)]
        asked.clear()
        leases = store.workflows.runs.claim("w", lease=timedelta(hours=1), workflow_names=names, limit=2)
        assert [lease.run_id for lease in leases] == sorted(ids)
    for statement in [statement for statement in asked if "workflow_runs" in statement[0]]:
        if database_url.startswith("sqlite"):
            assert set(scans(database_url, statement)) <= IN_ORDER
            assert not any("newest" in step for step in plan(database_url, statement))
        else:
            assert rows_read(database_url, statement) <= 20, plan(database_url, statement)


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_claim_looks_at_few_queued_runs(database_url: str, asked: list[Asked]) -> None:
    plant(database_url, "queued", FINISHED)
    with Store.open(database_url) as store:
        asked.clear()
        assert store.workflows.runs.claim("w", lease=timedelta(hours=1)) is not None
    looked = {rows_read(database_url, statement) for statement in asked if "workflow_runs" in statement[0]}
    assert max(looked) <= 4


@pytest.mark.parametrize("names", [None, ["build"], ["build", "label"]])
@pytest.mark.parametrize("delayed", [False, True], ids=["ready", "delayed"])
def test_a_claim_passes_no_run_of_a_full_key(
    database_url: str, asked: list[Asked], names: list[str] | None, delayed: bool
) -> None:
    """However many there are ahead of the run that is claimed: what is read is counted in groups."""
    with Store.open(database_url) as store:
        store.workflows.limits.set("full", 1)
        plant(database_url, "queued", FINISHED)
        with closing(Raw(database_url)) as raw:
            due = "'2025-01-01T00:00:00.000Z'" if delayed else "NULL"
            raw.rows(f"UPDATE workflow_runs SET concurrency_key = 'full', priority = 1, not_before = {due}")
            raw.rows("ANALYZE")
        make(store, concurrency_key="full")
        behind = queue(store, concurrency_key="other")
        assert store.workflows.runs.claim("w", lease=timedelta(hours=1), workflow_name="nobody") is None
        asked.clear()
        leases = store.workflows.runs.claim("w", lease=timedelta(hours=1), workflow_names=names, limit=1)
        assert [lease.run_id for lease in leases] == [behind]
    statements = [statement for statement in asked if "workflow_runs" in statement[0]]
    assert statements
    for statement in statements:
        if database_url.startswith("sqlite"):
            assert steps(database_url, statement) < FINISHED * 5
        else:
            assert rows_read(database_url, statement) <= FINISHED / 2, plan(database_url, statement)


@pytest.mark.parametrize("limited", [False, True])
def test_a_claim_of_several_workflows_passes_no_run_of_another(database_url: str, asked: list[Asked], limited: bool) -> None:
    with Store.open(database_url) as store:
        plant(database_url, "queued", FINISHED)
        if limited:
            store.workflows.limits.set("workflow:label", 5)
        ids = [queue(store, workflow_name="label"), queue(store, workflow_name="check")]
        assert store.workflows.runs.claim("w", lease=timedelta(hours=1), workflow_name="nobody") is None
        asked.clear()
        names = ["label", "check", "deploy"]
        leases = store.workflows.runs.claim("w", lease=timedelta(hours=1), workflow_names=names, limit=2)
        assert [lease.run_id for lease in leases] == sorted(ids)
    for statement in [statement for statement in asked if "workflow_runs" in statement[0]]:
        if database_url.startswith("sqlite"):
            assert steps(database_url, statement) < FINISHED
        else:
            assert rows_read(database_url, statement) <= 60, plan(database_url, statement)


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "statistics of an empty table"])
def test_a_claim_looks_up_each_used_up_budget_once(database_url: str, asked: list[Asked], analyzed: bool) -> None:
    """What is read grows with the keys of the queue: no key is looked for in the budgets of all others.

    Of a few hundred keys Postgres reads the few pages with their budgets from end to end, which costs less than an index.
    """
    keys = 1000
    with Store.open(database_url) as store:
        plant(database_url, "queued", keys, analyze=False)
        with closing(Raw(database_url)) as raw:
            raw.rows("ANALYZE usage_spending")
            raw.rows("UPDATE workflow_runs SET concurrency_key = 'owner:' || id, priority = 1")
            about = "INSERT INTO usage_budgets (key, period, max_tokens, timezone, updated_at)"
            raw.rows(f"{about} SELECT concurrency_key, 'day', 1, 'UTC', updated_at FROM workflow_runs")
            about = "INSERT INTO usage_spending (key, period, starts_at, ends_at, tokens, passed)"
            raw.rows(f"{about} SELECT key, period, 0, 99999999999999, 1, 100 FROM usage_budgets")
            if analyzed:
                raw.rows("ANALYZE")
        behind = queue(store, concurrency_key="owner:tom")
        assert store.workflows.runs.claim("w", lease=timedelta(hours=1), workflow_name="nobody") is None
        asked.clear()
        lease = store.workflows.runs.claim("w", lease=timedelta(hours=1))
        assert lease is not None
        assert lease.run_id == behind
    statements = [statement for statement in asked if "workflow_runs" in statement[0]]
    assert len(statements) <= 9
    for statement in statements:
        if database_url.startswith("sqlite"):
            lookups = {step for step in plan(database_url, statement) if "used_up" in step and "key=?" in step}
            assert lookups <= {"SEARCH used_up USING COVERING INDEX ix_usage_spending_used_up (passed=? AND key=? AND ends_at>?)"}
            assert steps(database_url, statement) < keys * 100
        else:
            assert rows_read(database_url, statement) <= keys * 4, plan(database_url, statement)
