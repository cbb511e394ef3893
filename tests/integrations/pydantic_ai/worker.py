"""What the processes of these tests run: `python -m tests.integrations.pydantic_ai.worker COMMAND URL …`."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict

from persist import Store
from persist.integrations.pydantic_ai import PersistConversationStore
from tests.integrations.pydantic_ai.scenes import turns


async def turn(conversations: PersistConversationStore, id: str, word: str) -> None:
    """Add a turn to a conversation that others write to, as the framework says: load it again after a conflict."""
    while True:
        loaded = await conversations.load(id) or Conversation(conversation_id=id)
        loaded.messages += turns(word)
        try:
            await conversations.save(loaded)
            return
        except ConversationConflict:
            await asyncio.sleep(0)


async def append(url: str, name: str, count: str) -> None:
    """Many turns of one process."""
    with Store.open(url) as store:
        for number in range(int(count)):
            await turn(PersistConversationStore(store), "c", f"{name}{number}")


async def forever(url: str) -> None:
    """Turns of four messages and forks that are deleted, until somebody kills the process."""
    with Store.open(url) as store:
        conversations = PersistConversationStore(store)
        number = 0
        while True:
            loaded = await conversations.load("c") or Conversation(conversation_id="c")
            loaded.messages += turns(f"{number}a", f"{number}b")
            await conversations.save(loaded)
            fork = await conversations.fork("c", at=2, new_conversation_id=f"fork{number}")
            fork.messages += turns("x")
            await conversations.save(fork)
            await conversations.delete(f"fork{number}")
            number += 1
            print(number, flush=True)


if __name__ == "__main__":
    commands: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"append": append, "forever": forever}
    asyncio.run(commands[sys.argv[1]](*sys.argv[2:]))
