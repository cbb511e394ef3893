"""Fixtures: a store on both databases, and visitors of its pages.

state      a Store with a frozen clock, on each database
visitor    who looks at its pages, which only look
changer    who may change something there
statements every statement of the store, for a test that names it before the store
visit      makes a visitor of an application with other options: visit(allow_changes=True, authorize=…)
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from persist import Store
from persist.testing import FrozenClock
from persist.ui import create_app
from tests.statement_log import seen_statements
from tests.ui.visitor import Visitor


@pytest.fixture
def state(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    with Store.open(database_url, clock=clock) as store:
        yield store


@pytest.fixture
def visit(state: Store) -> Iterator[Callable[..., Visitor]]:
    with ExitStack() as stack:

        def make(store: Any = None, mounted: str = "", **options: Any) -> Visitor:
            made = Visitor(create_app(store or state, **options), mounted)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement of every connection that is opened after this fixture."""
    return seen_statements(monkeypatch)


@pytest.fixture
def visitor(visit: Callable[..., Visitor]) -> Visitor:
    return visit()


@pytest.fixture
def changer(visit: Callable[..., Visitor]) -> Visitor:
    return visit(allow_changes=True)
