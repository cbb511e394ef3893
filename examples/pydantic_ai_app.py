"""An agent of Pydantic AI whose conversation is in a store: killed in the middle, it goes on where it was.

    pip install '.[pydantic-ai]'                           # in a clone of persist; elsewhere agent-persist
    python examples/pydantic_ai_app.py state.db --crash-after 2     # dies after two turns
    python examples/pydantic_ai_app.py state.db                     # goes on with the third one

The model is a function of this file: no network, no key.
"""

import argparse
import asyncio
import os

try:
    from pydantic_ai import Agent
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from persist import Store
    from persist.integrations.pydantic_ai import PersistConversationStore
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install '.[pydantic-ai]'") from None

QUESTIONS = ("Where were we?", "And then?", "What is left?", "Are we done?")


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What a model would say; this one counts what it was asked."""
    asked = sum(isinstance(message, ModelRequest) for message in messages)
    return ModelResponse(parts=[TextPart(f"That was question {asked}.")])


async def talk(path: str, crash_after: int | None) -> None:
    """Ask what was not asked yet, and save after every answer."""
    agent = Agent(FunctionModel(answer))
    with Store.open(f"sqlite:///{path}") as store:
        conversations = PersistConversationStore(store)
        conversation = await conversations.load("example") or Conversation(conversation_id="example")
        for number in range(len(conversation.messages) // 2, len(QUESTIONS)):
            result = await agent.run(QUESTIONS[number], conversation=conversation)
            await conversations.save(result)
            conversation = result.conversation
            print(f"{QUESTIONS[number]} {result.output}", flush=True)
            if number + 1 == crash_after:
                os._exit(9)  # as kill -9 would


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--crash-after", type=int)
    given = parser.parse_args()
    asyncio.run(talk(given.path, given.crash_after))
