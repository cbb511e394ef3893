"""What the processes of these tests run: `python -m tests.integrations.openai_agents.worker COMMAND URL …`."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from persist import Store
from persist.integrations.openai_agents import PersistSession
from persist.integrations.openai_agents.session import SessionItems
from tests.integrations.openai_agents.compacting import Client, compacting, talk


async def append(url: str, first: str) -> None:
    """Five workers, two pairs of items each."""
    with Store.open(url) as store:

        async def work(worker: int) -> None:
            for turn in (0, 1):
                items: list[Any] = [{"worker": worker, "turn": turn, "half": half} for half in (0, 1)]
                await PersistSession("user-1", store).add_items(items)

        await asyncio.gather(*[work(worker) for worker in range(int(first), int(first) + 5)])


async def compact(url: str, moment: str, way: str) -> None:
    """Compact a conversation of two questions, and die when the summary is asked for, or when half of it is stored."""

    async def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def deadly() -> None:
        if moment == "asked":
            await die()
        SessionItems._append = lambda *_: asyncio.run(die())  # type: ignore[assignment]  # dies in the transaction

    with Store.open(url) as store:
        outer = compacting(PersistSession("user-1", store), Client(deadly), encrypted=way if way in ("inside", "around") else "")
        if way == "by hand":
            outer.should_trigger_compaction = lambda _: False
        await talk(outer, 2)
        await outer.run_compaction({"force": True})


if __name__ == "__main__":
    commands: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"append": append, "compact": compact}
    asyncio.run(commands[sys.argv[1]](*sys.argv[2:]))
