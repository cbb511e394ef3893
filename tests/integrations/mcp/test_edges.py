"""What the event store refuses, hides and costs: wrong kinds, secrets, round trips; and kills."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp.server.streamable_http import EventMessage
from mcp.shared.exceptions import MCPError
from mcp.types import JSONRPCNotification
from sqlalchemy import update

from persist import AsyncStore, Store
from persist.errors import InvalidValue
from persist.framework_state.replay_streams.models import messages
from persist.integrations.mcp import InvalidMessage, PersistEventStore, PersistSessionManager, current_session
from persist.schema.migrate import upgrade
from tests.integrations.kits import Do
from tests.integrations.mcp.test_events import note, replayed
from tests.integrations.telling import SECRET, require_silence
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, require
from tests.subprocesses import ROOT


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


# How often an event store of the MCP SDK waits for an answer of Postgres.


ROWS = (Row("store_event", 1, goal=2), Row("replay_events_after", 2, goal=2))


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


# What is stored, or refused, stands in no error of an event store and not in the log.


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


# A process that is killed in the middle of a call has stored its event whole or not at all, and every one that it told of.


@pytest.mark.long
@pytest.mark.parametrize("lines", [1, 7, 40])
def test_a_killed_writer_leaves_what_it_told_of(database_url: str, lines: int) -> None:
    upgrade(database_url)
    line = [sys.executable, "-m", "tests.integrations.mcp.worker", database_url]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=ROOT) as worker:
        assert worker.stdout is not None
        told = [worker.stdout.readline().strip() for _ in range(lines)]
        worker.kill()
        told += [one for one in worker.stdout.read().split("\n") if len(one) == len(told[0])]
    found: list[EventMessage] = []

    async def keep(event: EventMessage) -> None:
        found.append(event)

    with Store.open(database_url) as store:
        stream = asyncio.run(PersistEventStore(store).for_session("killed").replay_events_after(told[0], keep))
    assert stream == "1"
    assert [event.event_id for event in found][: len(told) - 1] == told[1:]
    assert len(found) in (len(told) - 1, len(told))  # what was stored when the kill came
    numbers = [event.message.model_dump()["params"]["n"] for event in found]
    assert numbers == list(range(1, len(found) + 1))
