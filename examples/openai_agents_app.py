"""An OpenAI Agents application that can be killed at any moment, and goes on where it was when it is run again.

    pip install '.[openai-agents]'                         # in a clone of persist; elsewhere agent-persist
    python examples/openai_agents_app.py --crash-in Faro   # books two of three cities, and dies of SIGKILL
    python examples/openai_agents_app.py                   # books the third, and answers
    persist show trip --url sqlite:///agents.db            # the conversation, tool calls included

It runs offline: the model is a script that asks for one booking after the other until it sees the results of all. What
persist adds is the one line that makes `session`. Everything the framework stores is durable when it goes on.
"""

import argparse
import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

try:
    from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from persist import AsyncStore
    from persist.integrations.openai_agents import PersistSession
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install '.[openai-agents]'") from None

CITIES = ("Lisbon", "Porto", "Faro")
WORLD = Path("agents-booked.txt")
crash_in: str | None = None


@function_tool
def book(city: str) -> str:
    """Book a room; harmless to repeat, since the process may die before what it did is stored."""
    booked = WORLD.read_text(encoding="utf-8").splitlines() if WORLD.exists() else []
    if city == crash_in:
        os.kill(os.getpid(), signal.SIGKILL)
    if city not in booked:
        with WORLD.open("a", encoding="utf-8") as world:
            world.write(f"{city}\n")
    return f"{city} is booked."


class Script(Model):
    """Asks for every city that has no result yet, one at a time; then answers."""

    async def get_response(self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        items = [] if isinstance(input, str) else input
        done = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
        missing = [city for city in CITIES if f"call_{city}" not in done]
        output: Any
        if missing:
            print(f"model: book {missing[0]}", flush=True)
            arguments = f'{{"city": "{missing[0]}"}}'
            output = ResponseFunctionToolCall(
                type="function_call", call_id=f"call_{missing[0]}", name="book", arguments=arguments, status="completed"
            )
        else:
            text = ResponseOutputText(type="output_text", text=f"Booked: {', '.join(CITIES)}.", annotations=[], logprobs=[])
            output = ResponseOutputMessage(id="msg_1", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def main(url: str) -> None:
    set_tracing_disabled(True)
    agent = Agent(name="travel", model=Script(), tools=[book])
    async with AsyncStore.open(url) as store:
        session = PersistSession("trip", store)
        stored = await session.get_items()
        if stored:
            print(f"going on after {len(stored)} items")
        result = await Runner.run(agent, [] if stored else "Book my trip.", session=session)
        print(f"agent: {result.final_output}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="sqlite:///agents.db")
    parser.add_argument("--crash-in", choices=CITIES)
    options = parser.parse_args()
    crash_in = options.crash_in
    asyncio.run(main(options.url))
