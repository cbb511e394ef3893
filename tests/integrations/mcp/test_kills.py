"""A process that is killed in the middle of a call has stored its event whole or not at all, and every one that it told of."""

import asyncio
import subprocess
import sys

import pytest
from mcp.server.streamable_http import EventMessage

from persist import Store
from persist.integrations.mcp import PersistEventStore
from persist.schema.migrate import upgrade
from tests.subprocesses import ROOT


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
