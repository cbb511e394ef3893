"""How often an event store of the MCP SDK waits for an answer of Postgres."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from mcp.types import JSONRPCNotification

from persist import Store
from persist.integrations.mcp import PersistEventStore
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, metered, require

ROWS = (Row("store_event", 1, goal=2), Row("replay_events_after", 2, goal=2))


@pytest.fixture
def meter(postgres_url: str) -> Iterator[Meter]:
    with metered(postgres_url) as meter:
        yield meter


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, do: Callable[[Awaitable[object]], object]) -> None:
    async def nothing(_: Any) -> None:
        pass

    message = JSONRPCNotification(jsonrpc="2.0", method="n")
    with Store.open(meter.url) as store:
        session = PersistEventStore(store).for_session("a")
        first = str(do(session.store_event("1", message)))
        do(session.store_event("1", message))
        methods: dict[str, Callable[[], object]] = {
            "store_event": lambda: do(session.store_event("1", message)),
            "replay_events_after": lambda: do(session.replay_events_after(first, nothing)),
        }
        methods[row.name]()
        require(complaint(row.name, row.bound, meter.flights(methods[row.name], bound=row.bound)))
