"""How often a session of the OpenAI Agents SDK waits for an answer of Postgres."""

from collections.abc import Awaitable, Callable, Iterator

import pytest

from persist import Store
from persist.integrations.openai_agents import PersistSession
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, metered, require

ROWS = (Row("add_items", 2, goal=2), Row("get_items", 1, goal=1), Row("pop_item", 2, goal=2), Row("clear_session", 2, goal=2))


@pytest.fixture
def meter(postgres_url: str) -> Iterator[Meter]:
    with metered(postgres_url) as meter:
        yield meter


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, do: Callable[[Awaitable[object]], object]) -> None:
    with Store.open(meter.url) as store:
        session = PersistSession("user-1", store)
        methods: dict[str, Callable[[], object]] = {
            "add_items": lambda: do(session.add_items([{"role": "user", "content": "hi"}])),
            "get_items": lambda: do(session.get_items()),
            "pop_item": lambda: do(session.pop_item()),
            "clear_session": lambda: do(session.clear_session()),
        }
        methods["add_items"]()
        require(complaint(row.name, row.bound, meter.flights(methods[row.name], bound=row.bound)))
