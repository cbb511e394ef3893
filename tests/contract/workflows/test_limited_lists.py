"""Lists that return everything unless they are given a limit, and then pages."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import InvalidValue
from tests.cases import each
from tests.contract.faces import every_way
from tests.contract.workflows.scenes import ask, make, queue, start

pytestmark = every_way

Ask = Callable[..., Any]


def pending(store: Any, **options: Any) -> Any:
    with store.read() as tx:
        return tx.workflows.approvals.pending(**options)


def running(store: Any, **options: Any) -> Any:
    with store.read() as tx:
        return tx.workflows.executions.running(**options)


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
        with store.begin() as tx:
            tx.workflows.approvals.request(run.id, gate="g", summary="s", id=f"apr_{number * 3 % 7}")


def paged(ask_for: Ask, store: Any, **options: Any) -> list[list[str]]:
    found, after = [], None
    while True:
        page = ask_for(store, after=after, **options)
        found.append([item.id for item in page])
        assert page.items == page
        after = page.cursor
        if after is None:
            return found


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
    with store.begin() as tx:
        tx.workflows.approvals.request(run.id, gate="g", summary="s")
    rest = ask_for(store, limit=100, after=first.cursor)
    assert [item.id for item in rest][: len(ids) - 3] == ids[3:]


def test_pending_is_paged_within_its_filters(store: Any, seven: None) -> None:
    ids = [item.id for item in pending(store, trigger_id="t1")]
    assert len(ids) == 3
    assert [id for page in paged(pending, store, trigger_id="t1", limit=2) for id in page] == ids
    cursor = pending(store, trigger_id="t1", limit=1).cursor
    with pytest.raises(InvalidValue) as refused:
        pending(store, trigger_id="t0", limit=1, after=cursor)
    assert refused.value.path == "after"


def test_active_pages_are_those_of_the_list_of_runs(store: Any, seven: None) -> None:
    first = ask(store, "list_active", limit=2)
    rest = ask(store, "list", status=["running", "paused"], after=first.cursor)
    assert [run.id for run in (*first, *rest.items)] == [run.id for run in ask(store, "list_active")]


@each("verb", VERBS)
def test_a_cursor_needs_a_limit_and_its_own_list(store: Any, seven: None, verb: str) -> None:
    ask_for = VERBS[verb]
    cursor = ask_for(store, limit=1).cursor
    others = [one for name, one in VERBS.items() if name != verb]
    given: list[tuple[Ask, dict[str, int]]] = [(ask_for, {}), *((one, {"limit": 1}) for one in others)]
    for list_of, options in given:
        with pytest.raises(InvalidValue) as refused:
            list_of(store, after=cursor, **options)
        assert refused.value.path == "after"
    for limit in (0, 1001, True, "5"):
        with pytest.raises(InvalidValue) as refused:
            ask_for(store, limit=limit)
        assert refused.value.path == "limit"
