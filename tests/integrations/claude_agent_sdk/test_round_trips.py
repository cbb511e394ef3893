"""How often a session store of the Claude Agent SDK waits for an answer of Postgres."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from persist import Store
from persist.integrations.claude_agent_sdk import PersistSessionStore
from tests.integrations.claude_agent_sdk.conftest import Do
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, metered, require

ROWS = (
    Row("append", 2, goal=2),
    Row("append to a subpath", 2, goal=2),
    Row("delete", 2, goal=2),
    Row("list_session_summaries", 2, goal=1),
    Row("list_sessions", 2, goal=1),
    Row("list_subkeys", 2, goal=1),
    Row("load", 2, goal=1),
    Row("tail", 2, goal=1),
)
KEY: Any = {"project_key": "p", "session_id": "s"}
SUB: Any = {**KEY, "subpath": "subagents/agent-1"}
BATCH: Any = [{"type": "user", "uuid": str(number)} for number in range(50)] + [{"type": "tag", "tag": "t"}]


@pytest.fixture
def meter(postgres_url: str) -> Iterator[Meter]:
    with metered(postgres_url) as meter:
        yield meter


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, do: Do) -> None:
    with Store.open(meter.url) as store:
        sessions = PersistSessionStore(store)
        methods: dict[str, Callable[[], object]] = {
            "append": lambda: do(sessions.append(KEY, BATCH)),
            "append to a subpath": lambda: do(sessions.append(SUB, BATCH)),
            "delete": lambda: do(sessions.delete(KEY)),
            "list_session_summaries": lambda: do(sessions.list_session_summaries("p")),
            "list_sessions": lambda: do(sessions.list_sessions("p")),
            "list_subkeys": lambda: do(sessions.list_subkeys(KEY)),
            "load": lambda: do(sessions.load(KEY)),
            "tail": lambda: do(sessions.tail(KEY, 5)),
        }
        methods["append"]()
        methods["append to a subpath"]()
        require(complaint(row.name, row.bound, meter.flights(methods[row.name], bound=row.bound)))
