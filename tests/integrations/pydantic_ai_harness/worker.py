"""What the processes of these tests run: `python -m tests.integrations.pydantic_ai_harness.worker COMMAND URL …`."""

import asyncio
import sys

from persist import Store
from persist.integrations.pydantic_ai import PersistStepStore
from tests.integrations.pydantic_ai_harness.scenes import effect, event, grown


async def steps(url: str, run: str, begin: int, end: int) -> None:
    """Some steps of a run: an event, a tool's effect and a snapshot each; told line by line."""
    with Store.open(url) as store:
        kept = PersistStepStore(store, max_snapshots_per_run=3)
        for number in range(begin, end):
            await kept.append_event(event(run, number))
            await kept.record_tool_effect(effect(run, number))
            await kept.save_snapshot(grown(run, number))
            await kept.record_tool_effect(effect(run, number, "completed"))
            print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(steps(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
