"""How the lists of runs are read: one statement that names no blob, and on SQLite an index in the order of the page."""

import re
from collections.abc import Callable
from typing import Any

import apsw
import pytest

from persist import Store
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.contract.workflows.scenes import EVERY_COLUMN, TRIGGER, ask, claim, do, end, make, start, stored
from tests.query_plans import Asked, plan, rows_read

BLOBS = ("context", "scratch", "node_statuses")


def selects(statements: list[str]) -> list[str]:
    return [statement for statement in statements if statement.lstrip().upper().startswith(("SELECT", "WITH"))]


LISTS: list[tuple[str, dict[str, Any]]] = [
    ("list", {}),
    ("list", {"status": "queued"}),
    ("list", {"status": ["running", "queued"], "workflow_name": "build"}),
    ("list", {"trigger_id": TRIGGER}),
    ("list_active", {}),
    ("list_queued", {}),
    ("count", {"status": ["running", "queued"]}),
    ("distinct_names", {}),
]


@on_one_face
@pytest.mark.parametrize(("verb", "options"), LISTS)
def test_a_list_is_one_statement_that_names_no_blob(
    counted_store: Any, statements: list[str], verb: str, options: dict[str, Any]
) -> None:
    """(d) 14"""
    for status in ("running", "running", "queued"):
        made = make(counted_store, status=status, context={str(n): "x" * 60_000 for n in range(5)})
        do(counted_store, "merge_scratch", made.id, {"a": "x" * 60_000})
        end(counted_store, start(counted_store, made), input_tokens=1)
    cursor = ask(counted_store, "list", limit=1, **options).cursor if verb == "list" else None
    for more in [{}, {"after": cursor}] if cursor else [{}]:
        statements.clear()
        ask(counted_store, verb, **options, **more)
        (statement,) = selects(statements)
        assert not [blob for blob in (*BLOBS, "output_text") if blob in statement]
        assert not EVERY_COLUMN.search(statement)
    statements.clear()
    assert stored(counted_store, made.id).scratch == {"a": "x" * 60_000}
    (detail,) = selects(statements)
    assert all(blob in detail for blob in BLOBS)


FILTERS: list[dict[str, Any]] = [
    {},
    {"status": "queued"},
    {"status": ["queued", "failed"]},
    {"workflow_name": "build"},
    {"workflow_name": "build", "status": "queued"},
    {"workflow_name": "build", "status": ["queued", "failed", "paused"]},
    {"trigger_id": TRIGGER},
    {"trigger_id": TRIGGER, "workflow_name": "build"},
    {"trigger_id": TRIGGER, "status": "queued"},
    {"trigger_id": TRIGGER, "status": ["queued", "failed"]},
]


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("since", [False, True])
@pytest.mark.parametrize("further", [False, True])
def test_a_page_reads_an_index_in_its_order_on_sqlite(
    sqlite_url: str,
    statements: list[str],
    open_raw: Callable[[str], Raw],
    clock: Any,
    filters: dict[str, Any],
    since: bool,
    further: bool,
) -> None:
    """No page scans the table or sorts what it reads there; only a page, or the pages of several statuses, are sorted."""
    with Store.open(sqlite_url, clock=clock) as store:
        for status in ("queued", "failed", "paused") * 2:
            make(store, status=status)
        options = {**filters, **({"since": clock()} if since else {})}
        after = ask(store, "list", limit=1, **options).cursor
        statements.clear()
        ask(store, "list", **options, after=after if further else None)
    (statement,) = selects(statements)
    plan = open_raw(sqlite_url).rows(f"EXPLAIN QUERY PLAN {statement}")
    read = [(parent, step) for _, parent, _, step in plan if "workflow_runs" in step]
    by_id = [step for _, step in read if step.endswith("(id=?)")]  # the runs of the page itself
    reads = [(parent, step) for parent, step in read if step not in by_id]
    assert len(by_id) == (1 if filters else 0), plan  # without a filter the runs are read as the index comes to them
    sorting = {parent for _, parent, _, step in plan if "USE TEMP B-TREE" in step}
    assert len(reads) == (len(filters["status"]) if isinstance(filters.get("status"), list) else 1), plan
    for parent, step in reads:
        if filters and not ("trigger_id" in filters and len(filters) > 1):  # a trigger's runs are few: the rest is looked up
            assert "USING COVERING INDEX" in step, plan
        assert parent not in sorting, plan
        assert "USING" in step, plan
        if filters or since or further:
            assert step.startswith("SEARCH"), plan


def test_a_name_not_seen_lately_is_found_without_looking_at_the_others_on_postgres(
    postgres_url: str, asked: list[Asked], open_raw: Callable[[str], Raw]
) -> None:
    """Also where the statistics promise one run of the name among every few of the newest ones."""
    with Store.open(postgres_url) as store:
        open_raw(postgres_url).rows(
            "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, status, started_at, updated_at,"
            " phase_history) SELECT 'run_' || n, CASE WHEN n < 2500 THEN 'nightly' ELSE 'other' || mod(n, 7) END,"
            " 't', 'p', 'succeeded',"
            " timestamptz '2025-01-01' + n * interval '1 minute', timestamptz '2025-01-01', '[]'::jsonb"
            " FROM generate_series(1, 20000) AS s(n)"
        )
        open_raw(postgres_url).rows("ANALYZE workflow_runs")
        asked.clear()
        assert len(ask(store, "list", workflow_name="nightly", limit=20).items) == 20
    (statement,) = [statement for statement in asked if "workflow_runs" in statement[0]]
    assert rows_read(postgres_url, statement) <= 100, plan(postgres_url, statement)


def test_names_skip_from_one_to_the_next_on_sqlite(
    sqlite_url: str, statements: list[str], open_raw: Callable[[str], Raw]
) -> None:
    with Store.open(sqlite_url) as store:
        make(store)
        statements.clear()
        ask(store, "distinct_names")
    (statement,) = selects(statements)
    plan = [str(row[3]) for row in open_raw(sqlite_url).rows(f"EXPLAIN QUERY PLAN {statement}")]
    reads = [step for step in plan if "workflow_runs" in step]
    assert len(reads) == 2
    assert all(step.startswith("SEARCH") and "USING COVERING INDEX" in step for step in reads), plan


@pytest.mark.parametrize("options", [{}, {"workflow_name": "build"}])
def test_looking_for_work_passes_no_run_that_is_over_on_sqlite(
    sqlite_url: str, statements: list[str], open_raw: Callable[[str], Raw], options: dict[str, Any]
) -> None:
    """A worker asks every few seconds: the runs of dead workers and the queue have each an index that leads to the first."""
    with Store.open(sqlite_url) as store:
        make(store, status="succeeded")
        statements.clear()
        assert claim(store, **options) is None
    raw = open_raw(sqlite_url)
    for asked in selects(statements):
        plan = [str(row[3]) for row in raw.rows(f"EXPLAIN QUERY PLAN {asked}")]
        reads = [step for step in plan if "INDEX" in step and "autoindex" not in step and "usage_" not in step]
        assert all(re.search(r"ix_workflow_runs_(leased|delayed|(workflow_name_)?ready)", step) for step in reads), "\n".join(
            plan
        )


def test_the_unfinished_are_found_without_looking_at_what_ended_on_sqlite(
    sqlite_url: str, statements: list[str], open_raw: Callable[[str], Raw]
) -> None:
    """By every SQLite: older ones go along the index of an order, if one is asked for, through all that ever ran."""
    with Store.open(sqlite_url) as store:
        with store.begin() as tx:
            for number in range(3):
                tx.workflows.executions.start(skill="s", trigger_type="t", trigger_id=f"{number % 2}")
        statements.clear()
        with store.read() as tx:
            found = tx.workflows.executions.running()
    assert found == sorted(found, key=lambda one: (one.started_at, one.id), reverse=True)
    (statement,) = selects(statements)
    raw, other = open_raw(sqlite_url), apsw.Connection(sqlite_url.removeprefix("sqlite:///"))  # with a SQLite of its own
    for known in ("nothing of the rows", "all of them"):
        if known == "all of them":
            raw.rows(
                "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at, finished_at)"
                " WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000)"
                " SELECT 'old' || n, 't', n, 's', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z' FROM s"
            )
            raw.rows("ANALYZE")
        for rows in (raw.rows(f"EXPLAIN QUERY PLAN {statement}"), list(other.execute(f"EXPLAIN QUERY PLAN {statement}"))):
            assert [str(row[3]).rpartition(" ")[2] for row in rows] == ["ix_executions_unfinished"], (known, rows)
    other.close()
