"""What is stored, or refused, stands in no error of an event store and not in the log."""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import update

from persist import Store
from persist.errors import InvalidValue
from persist.framework_state.replay_streams.models import messages
from persist.integrations.mcp import PersistEventStore
from tests.integrations.mcp.test_events import note, replayed
from tests.integrations.telling import SECRET, require_silence


@pytest.mark.parametrize("bad", [f'["{SECRET}",', json.dumps({"jsonrpc": SECRET, "method": [SECRET]})])
def test_messages_that_cannot_be_read_or_stored_are_not_told(
    database_url: str, events: PersistEventStore, do: Callable[[Awaitable[Any]], Any], bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    session = events.for_session("a")
    first = do(session.store_event("1", None))
    for number in range(2):
        do(session.store_event("1", note(number)))
    with Store.open(database_url) as other, other.begin() as tx:
        tx._work.change(update(messages).where(messages.c.position == 2).values(message=bad))
    with caplog.at_level(logging.DEBUG):
        assert [event.message for event in do(replayed(session, first))[1]] == [note(1)]
    assert "left out" in caplog.text
    wrong: Any = note(0)
    wrong.method = [SECRET]
    with pytest.raises(InvalidValue, match="no JSON-RPC message") as caught:
        do(session.store_event("1", wrong))
    require_silence(caught, caplog)
