"""How often a saver of LangGraph waits for an answer of Postgres."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from persist import Store
from persist.integrations.langgraph import PersistSaver, PersistStore
from tests.integrations.langgraph.scenes import checkpoint, config, messages, metadata
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, metered, require

ROWS = (
    Row("put", 1, goal=1),
    Row("put_writes", 1, goal=1),
    Row("list", 2, goal=2),
    Row("delete_thread", 1, goal=2),
    Row("prune", 2, goal=2),
    Row("store.put", 2, goal=2),
    Row("store.get", 1, goal=1),
    Row("store.search", 1, goal=1),
    Row("store.delete", 2, goal=2),
    Row("store.list_namespaces", 1, goal=1),
    Row("get_tuple", 2, goal=2),
)


@pytest.fixture
def meter(postgres_url: str) -> Iterator[Meter]:
    with metered(postgres_url) as meter:
        yield meter


@pytest.fixture
def calls(meter: Meter) -> Iterator[dict[str, Callable[[], object]]]:
    """Each method on a thread whose list of messages grows by one in every checkpoint."""
    with Store.open(meter.url) as store:
        saver, items = PersistSaver(store), PersistStore(store)
        numbers, tasks = count(3), count()

        def put() -> None:
            number = next(numbers)
            given = {"messages": messages(number)}
            saver.put(config(), checkpoint(f"{number:03}", given, {"messages": number}), metadata(), {"messages": number})

        put()
        yield {
            "put": put,
            "put_writes": lambda: saver.put_writes(config(id="003"), [("messages", 1)], f"task {next(tasks)}"),
            "get_tuple": lambda: saver.get_tuple(config()),
            "list": lambda: list(saver.list(config(), limit=5)),
            "delete_thread": lambda: saver.delete_thread("t"),
            "prune": lambda: saver.prune(["t"]),
            "store.put": lambda: items.put(("a",), "k", {"n": 1}),
            "store.get": lambda: items.get(("a",), "k"),
            "store.search": lambda: items.search(("a",)),
            "store.delete": lambda: items.delete(("a",), "k"),
            "store.list_namespaces": lambda: items.list_namespaces(),
        }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, calls: dict[str, Callable[[], object]]) -> None:
    require(complaint(row.name, row.bound, meter.flights(calls[row.name], bound=row.bound)))
