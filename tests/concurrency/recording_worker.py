"""What the processes of the tests of recorded conversations run: `python -m tests.concurrency.recording_worker COMMAND URL …`.

Each says on stdout, as JSON, what it did.
"""

import json
import sys
from typing import Any

from persist import Store


def message(id: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "created_at": 1.0, "content": id, "role": "user", **fields}


def record(store: Store, branch_id: str, name: str, count: str) -> list[str]:
    """The live write of so many messages -> their ids."""
    ids = [f"{name} {number:04}" for number in range(int(count))]
    for number, id in enumerate(ids):
        with store.begin() as tx:
            role = "system" if number % 7 == 0 else "user"
            tx.conversations.messages.record(branch_id, message(id, role=role, node_metadata={"lion_class": f"my.Class{number}"}))
    return ids


def overlap(store: Store, progression_id: str, name: str, count: str) -> int:
    """Put the same batch again and again, every other process in the opposite order -> how many messages in all."""
    ids = [f"m{number:02}" for number in range(40)]
    batch = [message(id, content=name) for id in (ids if int(name) % 2 else ids[::-1])]
    total = 0
    for _ in range(int(count)):
        with store.begin() as tx:
            total += tx.conversations.messages.put_many(batch, progression_ids=[progression_id])
    return total


COMMANDS = {"record": record, "overlap": overlap}

if __name__ == "__main__":
    _, command, url, *arguments = sys.argv
    with Store.open(url) as opened:
        print(json.dumps(COMMANDS[command](opened, *arguments)), flush=True)
