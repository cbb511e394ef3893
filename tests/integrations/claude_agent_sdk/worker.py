"""What the processes of these tests run: `python -m tests.integrations.claude_agent_sdk.worker COMMAND URL …`."""

import asyncio
import sys
from typing import Any

from persist import Store
from persist.integrations.claude_agent_sdk import PersistSessionStore

KEY: Any = {"project_key": "p", "session_id": "s"}


def batch(name: str, number: int) -> list[Any]:
    """A batch as the mirror sends it: entries with a uuid, and one without."""
    entries = [{"type": "user", "uuid": f"{name}-{number}-{place}", "of": [name, number, place]} for place in range(3)]
    return [*entries, {"type": "custom-title", "customTitle": f"{name}-{number}", "of": [name, number, 3]}]


async def append(url: str, name: str, count: str) -> None:
    """Appends so many batches, each to the session and to a subagent of it, and says each number once it is stored."""
    with Store.open(url) as store:
        sessions = PersistSessionStore(store)
        part: Any = {**KEY, "subpath": f"subagents/agent-{name}"}
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(int(count)):
            await sessions.append(KEY, batch(name, number))
            await sessions.append(part, batch(name, number))
            print(number, flush=True)


if __name__ == "__main__":
    asyncio.run({"append": append}[sys.argv[1]](*sys.argv[2:]))
