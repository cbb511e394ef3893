"""What the processes of these tests run: `python -m tests.integrations.openai_agents.worker COMMAND URL …`."""

import asyncio
import sys
from typing import Any

from persist import Store
from persist.integrations.openai_agents import PersistSession


async def append(url: str, first: str) -> None:
    """Five workers, two pairs of items each."""
    with Store.open(url) as store:

        async def work(worker: int) -> None:
            for turn in (0, 1):
                items: list[Any] = [{"worker": worker, "turn": turn, "half": half} for half in (0, 1)]
                await PersistSession("user-1", store).add_items(items)

        await asyncio.gather(*[work(worker) for worker in range(int(first), int(first) + 5)])


if __name__ == "__main__":
    asyncio.run({"append": append}[sys.argv[1]](*sys.argv[2:]))
