"""The lists of runs: newest started first, filtered, in pages, without blobs, with what each run used."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta, timezone
from itertools import combinations
from typing import Any

import apsw
import pytest

from persist import Store
from persist.workflows.schemas import RunRow, RunStatus, WorkflowRun, WorkflowRunSummary
from tests.cases import each
from tests.contract.conftest import Raw, ids_of_pages
from tests.contract.workflows.scenes import STATUSES, TRIGGER, ask, claim, do, end, make, queue, start
from tests.query_plans import Asked, plan, rows_read

BLOBS = ("context", "scratch", "node_statuses")


def pages(store: Any, **options: Any) -> Iterator[list[str]]:
    return ids_of_pages(ask, store, "list", **options)


def listed(store: Any, **options: Any) -> list[str]:
    return [id for page in pages(store, **options) for id in page]


def newest_first(runs: list[WorkflowRun]) -> list[str]:
    return [run.id for run in sorted(runs, key=lambda run: (run.started_at, run.id), reverse=True)]


@pytest.fixture
def dozen(store: Any, clock: Any) -> list[WorkflowRun]:
    """Two runs of every status, oldest first; three at a time share their instant, and ids do not follow the order of making."""
    made = []
    for number, status in enumerate([*STATUSES, *STATUSES]):
        clock.advance(seconds=number % 3 == 0)
        options = {"id": f"run_{(number * 5) % 12:02}", "trigger_id": f"t{number % 4}"}
        made.append(make(store, "build" if number % 3 else "triage", status=status, **options))
    return made


@pytest.mark.parametrize("limit", [1, 2, 5, 6, 11, 12])
def test_pages_neither_repeat_nor_skip_a_run(store: Any, dozen: list[WorkflowRun], limit: int) -> None:
    found = list(pages(store, limit=limit))
    assert [id for page in found for id in page] == newest_first(dozen)
    assert {len(page) for page in found[:-1]} <= {limit}
    assert 1 <= len(found[-1]) <= limit


def test_a_page_has_twenty_runs_unless_told_otherwise(store: Any) -> None:
    """The newest is first whatever its status."""
    with store.begin() as tx:
        create = tx.workflows.runs.create
        made = [create("build", trigger_id="t", current_phase="p", status="running" if n == 0 else "queued") for n in range(31)]
    assert [len(page) for page in pages(store)] == [20, 11]
    assert listed(store) == newest_first(made)
    assert [run.id for run in ask(store, "list_active")] == [made[0].id]


def test_no_runs_are_one_empty_page(store: Any) -> None:
    assert list(pages(store)) == [[]]
    assert ask(store, "count") == 0
    assert (ask(store, "list_active"), ask(store, "list_queued"), ask(store, "distinct_names")) == ([], [], [])


def test_what_happens_while_paging_neither_repeats_nor_hides_a_run(store: Any, clock: Any, dozen: list[WorkflowRun]) -> None:
    seen = []
    for number, page in enumerate(pages(store, limit=4)):
        seen += page
        if number == 0:
            clock.advance(seconds=60)
            make(store, id="run_new")
            do(store, "append_phase", dozen[1].id, "code")
    assert seen == newest_first(dozen)


def expected(dozen: list[WorkflowRun], **filters: Any) -> list[str]:
    wanted = filters.get("status", ())
    wanted = {wanted} if isinstance(wanted, str) else set(wanted)
    return newest_first(
        [
            run
            for run in dozen
            if (not wanted or run.status in wanted)
            and filters.get("workflow_name", run.workflow_name) == run.workflow_name
            and filters.get("trigger_id", run.trigger_id) == run.trigger_id
            and filters.get("since", run.started_at) <= run.started_at
        ]
    )


def test_every_combination_of_filters_in_pages(store: Any, dozen: list[WorkflowRun]) -> None:
    since = dozen[5].started_at
    choices: list[tuple[str, Any]] = [
        ("status", RunStatus.QUEUED),
        ("status", {"failed", "queued"}),
        ("status", ("running", "paused", "cancelled", "running")),
        ("workflow_name", "triage"),
        ("workflow_name", "unheard of"),
        ("trigger_id", "t1"),
        ("since", since),
    ]
    for count in range(5):
        for chosen in combinations(choices, count):
            filters = dict(chosen)
            if len(filters) < count:
                continue
            want = expected(dozen, **filters)
            for limit in (1, 3, 20):
                assert listed(store, limit=limit, **filters) == want, filters
            if "trigger_id" not in filters:
                assert ask(store, "count", **filters) == len(want), filters


def test_no_status_is_every_status(store: Any, dozen: list[WorkflowRun]) -> None:
    for status in (None, [], (), STATUSES, [*STATUSES, "queued"]):
        assert listed(store, status=status) == newest_first(dozen)
        assert ask(store, "count", status=status) == 12


def test_since_is_inclusive_and_of_any_zone(store: Any, clock: Any) -> None:
    made = [make(store, id="run_0")]
    clock.advance(delta=timedelta(milliseconds=1))
    made.append(make(store, id="run_1"))
    for since, want in [
        (made[0].started_at, ["run_1", "run_0"]),
        (made[1].started_at, ["run_1"]),
        (made[1].started_at.astimezone(timezone(timedelta(hours=5, minutes=30))), ["run_1"]),
        (made[1].started_at + timedelta(milliseconds=1), []),
    ]:
        assert listed(store, since=since) == want
        assert ask(store, "count", since=since) == len(want)


def test_a_cursor_goes_on_however_its_statuses_are_said(store: Any, dozen: list[WorkflowRun]) -> None:
    cursor = ask(store, "list", limit=1, status="queued").cursor
    for status in ("queued", ["queued", "queued"]):
        assert len(ask(store, "list", limit=5, status=status, after=cursor).items) == 1


def test_active_runs_are_the_running_and_paused_ones_newest_first(store: Any, dozen: list[WorkflowRun]) -> None:
    found = ask(store, "list_active")
    assert [run.id for run in found] == expected(dozen, status=["running", "paused"])
    assert found == [run for run in ask(store, "list").items if run.status in ("running", "paused")]


def test_queued_runs_are_listed_oldest_first(store: Any, clock: Any, dozen: list[WorkflowRun]) -> None:
    queue(store, id="run_b")
    queue(store, id="run_a")  # of one instant the lower id is first
    found = ask(store, "list_queued")
    assert [run.id for run in found] == [*expected(dozen, status="queued")[::-1], "run_a", "run_b"]
    do(store, "requeue", found[0].id)  # its place in the queue is when it started
    assert [run.id for run in ask(store, "list_queued")] == [run.id for run in found]


def test_every_name_is_given_once_in_order(store: Any) -> None:
    for name in ("b", "a", "b", "Z", "é", "😀", "\ufffd", "a b", "a"):
        make(store, name)
    assert ask(store, "distinct_names") == ["Z", "a", "a b", "b", "é", "\ufffd", "😀"]


def test_a_listed_run_is_the_run_without_its_blobs(store: Any, clock: Any) -> None:
    made = make(store, repo="shop", issue_number=7, context={"big": "x" * 60_000})
    clock.advance(seconds=1)
    do(store, "append_phase", made.id, "code", {"success": True})
    do(store, "increment_restart_count", made.id)
    run = do(store, "finish", made.id, "failed", error="boom")
    (listed_run,) = ask(store, "list").items
    names = set(WorkflowRunSummary.model_fields) - {"total_tokens", "cost_usd"}
    assert listed_run == WorkflowRunSummary(**{name: getattr(run, name) for name in names}, total_tokens=0, cost_usd=0.0)
    assert not {*BLOBS} & set(WorkflowRunSummary.model_fields)


def test_a_run_shows_what_its_executions_used(store: Any) -> None:
    run, without = make(store), make(store)
    for tokens, cost in [((100, 20, 5), 0.25), ((200, 30, 0), 0.5), ((None, None, None), None)]:
        id = start(store, run)
        used: dict[str, Any] = dict(zip(("input_tokens", "output_tokens", "cache_read_input_tokens"), tokens, strict=True))
        end(store, id, cost_usd=cost, cache_creation_input_tokens=1000, **used)
    start(store, run)  # one that runs used nothing so far
    end(store, start(store), input_tokens=7, cost_usd=1.0)  # of the trigger, not of the run
    for found in (ask(store, "list").items, ask(store, "list_active")):
        used_by = {item.id: (item.total_tokens, item.cost_usd) for item in found}
        assert used_by == {run.id: (355, 0.75), without.id: (0, 0.0)}
        assert {(type(tokens), type(cost)) for tokens, cost in used_by.values()} == {(int, float)}


def test_a_queued_run_shows_what_it_used_before(store: Any) -> None:
    run = make(store)
    end(store, start(store, run), input_tokens=2**40, output_tokens=1, cost_usd=0.5)
    do(store, "requeue", run.id)
    (found,) = ask(store, "list_queued")
    assert (found.total_tokens, found.cost_usd) == (2**40 + 1, 0.5)


def test_rows_are_the_same_list_as_plain_tuples(store: Any, dozen: list[WorkflowRun]) -> None:
    assert RunRow._fields == tuple(WorkflowRunSummary.model_fields)
    start(store, workflow_run_id=dozen[3].id)
    for filters in ({}, {"status": "queued"}, {"workflow_name": "build", "status": ["failed", "queued"]}, {"trigger_id": "t1"}):
        values, rows = (ask(store, verb, **filters, limit=3) for verb in ("list", "list_rows"))
        assert [row._asdict() for row in rows.items] == [dict(value) for value in values.items]
        assert {type(row) for row in rows.items} == {RunRow}
        assert rows.cursor == values.cursor


def test_a_cursor_of_values_goes_on_in_rows(store: Any, dozen: list[WorkflowRun]) -> None:
    first = ask(store, "list", limit=5)
    rest = ask(store, "list_rows", limit=20, after=first.cursor)
    assert [run.id for run in [*first.items, *rest.items]] == newest_first(dozen)
    assert rest.cursor is None


# How the lists of runs are read: one statement that names no blob, and on SQLite an index in the order of the page.


def selects(statements: list[str]) -> list[str]:
    return [statement for statement in statements if statement.lstrip().upper().startswith(("SELECT", "WITH"))]


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


def test_a_page_reads_an_index_in_its_order_on_sqlite(
    sqlite_url: str, statements: list[str], open_raw: Callable[[str], Raw], clock: Any
) -> None:
    """No page scans the table or sorts what it reads there; only a page, or the pages of several statuses, are sorted."""
    raw = open_raw(sqlite_url)
    with Store.open(sqlite_url, clock=clock) as store:
        for status in ("queued", "failed", "paused") * 2:
            make(store, status=status)

        @each("filters", FILTERS)
        @each("since", [False, True])
        @each("further", [False, True])
        def look(filters: dict[str, Any], since: bool, further: bool) -> None:
            options = {**filters, **({"since": clock()} if since else {})}
            after = ask(store, "list", limit=1, **options).cursor
            statements.clear()
            ask(store, "list", **options, after=after if further else None)
            (statement,) = selects(statements)
            plan = raw.rows(f"EXPLAIN QUERY PLAN {statement}")
            read = [(parent, step) for _, parent, _, step in plan if "workflow_runs" in step]
            by_id = [step for _, step in read if step.endswith("(id=?)")]  # the runs of the page itself
            reads = [(parent, step) for parent, step in read if step not in by_id]
            assert len(by_id) == (1 if filters else 0), plan  # without a filter the runs are read as the index comes to them
            sorting = {parent for _, parent, _, step in plan if "USE TEMP B-TREE" in step}
            assert len(reads) == (len(filters["status"]) if isinstance(filters.get("status"), list) else 1), plan
            for parent, step in reads:
                if filters and not (
                    "trigger_id" in filters and len(filters) > 1
                ):  # a trigger's runs are few: the rest is looked up
                    assert "USING COVERING INDEX" in step, plan
                assert parent not in sorting, plan
                assert "USING" in step, plan
                if filters or since or further:
                    assert step.startswith("SEARCH"), plan

        look()


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
        found = store.workflows.executions.running()
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
