"""Arguments of a wrong kind are refused by the framework's error."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import JSONRPCNotification

from persist import AsyncStore, Store
from persist.integrations.mcp import InvalidMessage, PersistEventStore, PersistSessionManager, current_session
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors

Do = Callable[[Awaitable[Any]], Any]


async def ignore(event: Any) -> None:
    pass


@pytest.mark.parametrize("bound", [True, False], ids=["session", "context"])
def test_arguments_of_an_event_store(store: Store | AsyncStore, database_url: str, do: Do, bound: bool) -> None:
    events = PersistEventStore(store)
    of_session = events.for_session("s")
    message = JSONRPCNotification(jsonrpc="2.0", method="m")
    id = do(of_session.store_event("1", message))
    valid: dict[str, dict[str, Any]] = {
        "store_event": {"stream_id": "1", "message": message},
        "replay_events_after": {"last_event_id": id, "send_callback": ignore},
        **({"delete": {}} if bound else {"for_session": {"session_id": "s"}}),
    }
    token = current_session.set("s")
    require_typed_errors(
        lambda: of_session if bound else events,
        valid,
        do=do,
        database_url=database_url,
        error=MCPError,
        accepted=["replay_events_after.last_event_id"],  # what is no id gives nothing
    )
    current_session.reset(token)


@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(wrong: Any) -> None:
    with pytest.raises(InvalidMessage, match="expected a Store or an AsyncStore"):
        PersistEventStore(wrong)
    with pytest.raises(InvalidMessage, match="expected a PersistEventStore"):
        PersistSessionManager(None, wrong)
