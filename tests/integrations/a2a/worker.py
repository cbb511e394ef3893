"""What the processes of these tests run: `python -m tests.integrations.a2a.worker COMMAND URL …`."""

import asyncio
import sys

from a2a.types.a2a_pb2 import Part, TaskPushNotificationConfig, TaskState

from persist import Store
from persist.integrations.a2a import PersistPushNotificationConfigStore, PersistTaskStore, TaskEnded
from tests.integrations.a2a.scenes import of, task


async def work(url: str, name: str, end: str) -> None:
    """Go on with tasks that others end, end them, and tell of each whether it was this process that did."""
    with Store.open(url) as store:
        tasks = PersistTaskStore(store)
        for number in range(12):
            try:
                for parts in range(1, 4):
                    await tasks.save(task(f"t{number}", parts=parts), of("ann"))
                await tasks.save(task(f"t{number}", state=TaskState.Value(end), parts=3), of("ann"))
                print(f"{number} {end}", flush=True)
            except TaskEnded:
                print(f"{number} ended", flush=True)


async def forever(url: str, name: str, end: str) -> None:
    """Grow a task and set webhooks until somebody kills the process."""
    with Store.open(url) as store:
        tasks, hooks, growing = PersistTaskStore(store), PersistPushNotificationConfigStore(store), task(parts=1)
        number = 0
        while True:
            number += 1
            growing.artifacts[0].parts.append(Part(text=f"part {number}"))
            growing.history[0].parts[0].text = f"after {number}"
            growing.metadata.update({"parts": number})
            await tasks.save(growing, of("ann"))
            hook = TaskPushNotificationConfig(id=f"{number % 3}", url="https://example.org")
            await hooks.set_info("t", hook, of("ann"))
            print(number, flush=True)


if __name__ == "__main__":
    asyncio.run({"work": work, "forever": forever}[sys.argv[1]](*sys.argv[2:]))
