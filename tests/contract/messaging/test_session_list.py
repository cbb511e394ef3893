"""The list of sessions: latest activity first, filtered, in pages that neither repeat nor skip a session nobody touched."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from persist import Store
from tests.cases import each
from tests.contract.conftest import Raw, ids_of_pages
from tests.contract.messaging.scenes import end, plant, talk, touch


def pages(store: Any, **options: Any) -> Iterator[list[str]]:
    return ids_of_pages(store.messaging.sessions.list, **options)


@pytest.fixture
def ten(store: Any, clock: Any) -> list[str]:
    """Ten sessions, oldest first; pairs of them share their instant, every third is on another platform or has ended."""
    made = []
    for number in range(10):
        clock.advance(seconds=number % 2)
        made.append(talk(store, user_id=f"U{number}", platform="discord" if number % 3 == 0 else "slack").id)
        if number % 3 == 1:
            end(store, made[-1])
    return made


def test_latest_activity_first_and_ids_break_ties(store: Any, clock: Any, ten: list[str]) -> None:
    assert list(pages(store)) == [ten[::-1]]
    clock.advance(seconds=1)
    touch(store, ten[3])
    assert list(pages(store)) == [[ten[3], *(id for id in ten[::-1] if id != ten[3])]]


def test_there_are_twenty_on_a_page_unless_asked(store: Any) -> None:
    for number in range(21):
        talk(store, user_id=f"U{number}")
    assert [len(page) for page in pages(store)] == [20, 1]


@each(("limit", "sizes"), [(5, [5, 5]), (4, [4, 4, 2]), (1, [1] * 10), (10, [10]), (1000, [10])])
def test_pages_are_the_list_in_pieces(store: Any, ten: list[str], limit: int, sizes: list[int]) -> None:
    found = list(pages(store, limit=limit))
    assert [len(page) for page in found] == sizes
    assert [id for page in found for id in page] == ten[::-1]


@each("limit", [1, 100])
def test_platform_and_active_filter(store: Any, ten: list[str], limit: int) -> None:
    def listed(**filters: Any) -> list[str]:
        return [id for page in pages(store, limit=limit, **filters) for id in page]

    newest = list(enumerate(ten))[::-1]
    assert listed(platform="discord") == [id for number, id in newest if number % 3 == 0]
    assert listed(active=False) == [id for number, id in newest if number % 3 == 1]
    assert listed(active=True) == [id for number, id in newest if number % 3 != 1]
    assert listed(platform="slack", active=True) == [id for number, id in newest if number % 3 == 2]
    assert listed(platform="discord", active=False) == []
    assert listed(platform="matrix") == []


def test_a_row_that_is_neither_active_nor_inactive_is_in_the_whole_list_only(store: Any, clock: Any, raw: Raw) -> None:
    plant(raw, "mse_unknown", at=clock(), active=None)
    assert list(pages(store)) == [["mse_unknown"]]
    assert list(pages(store, active=True)) == [[]]
    assert list(pages(store, active=False)) == [[]]


def test_a_session_touched_while_paging_neither_repeats_nor_hides_another(store: Any, clock: Any, ten: list[str]) -> None:
    seen = []
    for number, page in enumerate(pages(store, limit=3)):
        seen += page
        if number == 0:
            clock.advance(seconds=60)
            touch(store, ten[0])
    untouched = [id for id in ten[::-1] if id != ten[0]]
    assert [id for id in seen if id != ten[0]] == untouched


def test_pages_are_read_along_an_index(sqlite_url: str, statements: list[str], open_raw: Callable[[str], Raw]) -> None:
    with Store.open(sqlite_url) as store:
        for number in range(3):
            talk(store, user_id=f"U{number}")
        statements.clear()
        assert len(list(pages(store, limit=2))) == 2
    asked = [statement for statement in statements if statement.startswith("SELECT")]
    assert len(asked) == 2
    raw = open_raw(sqlite_url)
    for statement in asked:
        plan = str(raw.rows(f"EXPLAIN QUERY PLAN {statement}"))
        assert "ix_messaging_sessions_latest" in plan
        assert "TEMP B-TREE" not in plan
