"""Conversations that the framework compacts and encrypts, without a network."""

from collections.abc import Awaitable, Callable
from typing import Any

from agents import Agent, RunConfig, Runner
from agents.extensions.memory import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession

from tests.integrations.openai_agents.scripts import Scripted, message

KEY = "k" * 32
QUIET = RunConfig(tracing_disabled=True)


class Client:
    """Answers a request to compact with one item that counts the given ones, and lets others write meanwhile."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        self.responses, self.meanwhile, self.asked = self, meanwhile, 0

    async def compact(self, **given: Any) -> Any:
        self.asked += 1
        if self.meanwhile is not None:
            await self.meanwhile()
        summary = {"type": "compaction", "id": f"cmp_{self.asked}", "encrypted_content": f"{len(given.get('input', ()))} items"}
        return type("Answer", (), {"output": [summary], "usage": None})


def compacting(inner: Any, client: Client, *, encrypted: str = "", ttl: int = 600) -> Any:
    """The session of a user: compacted, and encrypted around or inside of it."""
    any_client: Any = client
    if encrypted == "inside":
        inner = EncryptedSession("user-1", inner, KEY, ttl)
    outer: Any = OpenAIResponsesCompactionSession(
        "user-1",
        inner,
        client=any_client,
        compaction_mode="input",
        should_trigger_compaction=lambda context: len(context["session_items"]) > 2,
    )
    return EncryptedSession("user-1", outer, KEY, ttl) if encrypted == "around" else outer


async def talk(outer: Any, questions: int) -> list[Any]:
    """The items of the session after each of some questions, which are answered in two items."""
    model = Scripted(lambda items: [message(f"{len(items)} seen", f"msg_{len(model.seen)}")], response_id="resp_1")
    agent: Agent[Any] = Agent(name="chat", model=model)
    after = []
    for number in range(questions):
        await Runner.run(agent, f"question {number}", session=outer, run_config=QUIET)
        after.append(await outer.get_items(50))
    return after
