"""Lists that return everything unless they are given a limit, and counts that need not be exact."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.db.values.arguments import Count
from persist.errors import InvalidValue
from persist.workflows.verbs.executions import MOST_OF_GROUP
from persist.workflows.verbs.run_reads import MOST_COUNTED
from tests.cases import each
from tests.contract.conftest import ids_of_pages
from tests.contract.faces import every_way
from tests.contract.workflows.scenes import ask, do, end, make, queue, start
from tests.distributed_server import takes_triggers

pytestmark = every_way

Ask = Callable[..., Any]


def pending(store: Any, **options: Any) -> Any:
    return store.workflows.approvals.pending(**options)


def running(store: Any, **options: Any) -> Any:
    return store.workflows.executions.running(**options)


VERBS: dict[str, Ask] = {
    "list_active": lambda store, **options: ask(store, "list_active", **options),
    "list_queued": lambda store, **options: ask(store, "list_queued", **options),
    "pending": pending,
    "running": running,
}


@pytest.fixture
def seven(store: Any, clock: Any) -> None:
    """Seven of each kind, of which two at a time share their instant."""
    for number in range(7):
        clock.advance(seconds=number % 2)
        run = make(store, id=f"run_{number * 3 % 7}", trigger_id=f"t{number % 2}")
        queue(store, id=f"queued_{number * 3 % 7}")
        start(store, run, id=f"exe_{number * 3 % 7}")
        store.workflows.approvals.request(run.id, gate="g", summary="s", id=f"apr_{number * 3 % 7}")


def paged(ask_for: Ask, store: Any, **options: Any) -> list[list[str]]:
    return [*ids_of_pages(ask_for, store, **options)]


@each("verb", VERBS)
def test_pages_hold_what_the_whole_list_holds_in_its_order(store: Any, seven: None, verb: str) -> None:
    ask_for = VERBS[verb]
    whole = ask_for(store)
    assert (issubclass(type(whole), list), len(whole), whole.cursor) == (True, 7, None)
    ids = [item.id for item in whole]
    for limit in (1, 2, 3, 6, 7, 8):
        pages = paged(ask_for, store, limit=limit)
        assert [id for page in pages for id in page] == ids
        assert {len(page) for page in pages[:-1]} <= {limit}


@each("verb", VERBS)
def test_a_page_ends_where_the_next_one_begins_whatever_was_added(store: Any, seven: None, verb: str) -> None:
    ask_for = VERBS[verb]
    ids = [item.id for item in ask_for(store)]
    first = ask_for(store, limit=3)
    run = make(store)
    queue(store)
    start(store, run)
    store.workflows.approvals.request(run.id, gate="g", summary="s")
    rest = ask_for(store, limit=100, after=first.cursor)
    assert [item.id for item in rest][: len(ids) - 3] == ids[3:]


def test_pending_is_paged_within_its_filters(store: Any, seven: None) -> None:
    ids = [item.id for item in pending(store, trigger_id="t1")]
    assert len(ids) == 3
    assert [id for page in paged(pending, store, trigger_id="t1", limit=2) for id in page] == ids


def test_active_pages_are_those_of_the_list_of_runs(store: Any, seven: None) -> None:
    first = ask(store, "list_active", limit=2)
    rest = ask(store, "list", status=["running", "paused"], after=first.cursor)
    assert [run.id for run in (*first, *rest.items)] == [run.id for run in ask(store, "list_active")]


@each("verb", VERBS)
def test_a_cursor_needs_a_limit(store: Any, seven: None, verb: str) -> None:
    cursor = VERBS[verb](store, limit=1).cursor
    with pytest.raises(InvalidValue) as refused:
        VERBS[verb](store, after=cursor)
    assert refused.value.path == "after"


# Counts that need not be exact: exact as long as they are small, and then they say what they are.


_NUMBERS = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {})"
_AT = "'2025-01-01T00:00:00.000Z'"


@pytest.fixture
def estimates(backend: str, database_url: str) -> bool:
    """Whether the planner expects numbers of rows: neither that of a file does, nor that of a cluster."""
    return backend == "postgres" and takes_triggers(database_url)


def stats(store: Any, **options: Any) -> Any:
    return store.workflows.executions.stats(**options)


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
    shown = (ask(store, "count", status="queued", exact=False), ask(store, "count", status=["queued", "failed"], exact=False))
    assert shown == (1, 1)
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


def test_requeueing_changes_the_count_of_the_same_snapshot_only(store: Any) -> None:
    run = make(store)
    with store.begin() as tx:
        assert tx.workflows.runs.count(status="queued", exact=False) == 0
        tx.workflows.runs.requeue(run.id)
        assert tx.workflows.runs.count(status="queued", exact=False) == 1
    do(store, "cancel", run.id)
    assert ask(store, "count", status="queued", exact=False) == 0
