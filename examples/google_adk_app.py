"""A Google ADK application that can be killed at any moment, and goes on where it was when it is run again.

    pip install '.[google-adk]'                         # in a clone of persist; elsewhere agent-persist
    python examples/google_adk_app.py --crash-in Faro   # books two of three cities, and dies of SIGKILL
    python examples/google_adk_app.py                   # books the third, and answers
    persist ls app_sessions --url sqlite:///adk.db      # the session; `persist show` takes the id that stands first

It runs offline: the model is a script that asks for one booking after the other until it sees the results of all. What
persist adds are the two lines that make the services. Every event is durable when the framework goes on.
"""

import argparse
import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from typing import Any

try:
    from google.adk.agents import LlmAgent
    from google.adk.models import BaseLlm, LlmRequest, LlmResponse
    from google.adk.runners import Runner
    from google.adk.tools import ToolContext
    from google.genai import types

    from persist import AsyncStore
    from persist.integrations.google_adk import PersistArtifactService, PersistSessionService
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install '.[google-adk]'") from None

CITIES = ("Lisbon", "Porto", "Faro")
SESSION = {"user_id": "maria", "session_id": "trip"}
crash_in: str | None = None


async def book(city: str, tool_context: ToolContext) -> str:
    """Book a room; harmless to repeat, since the process may die before what it did is stored."""
    print(f"booking {city}", flush=True)
    if city == crash_in:
        os.kill(os.getpid(), signal.SIGKILL)
    await tool_context.save_artifact(f"user:{city}.txt", types.Part(text=f"One room in {city}"))
    tool_context.state["user:last_city"] = city
    tool_context.state["booked"] = [*tool_context.state.get("booked", []), city]
    return f"{city} is booked."


class Script(BaseLlm):
    """Asks for every city that has no result yet, one at a time; then answers."""

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        answers = [part.function_response.response or {} for part in parts if part.function_response]
        missing = [city for city in CITIES if f"{city} is booked." not in (answer.get("result") for answer in answers)]
        answer = types.Part(text=f"Booked: {', '.join(CITIES)}.")
        if missing:
            answer = types.Part(function_call=types.FunctionCall(name="book", args={"city": missing[0]}))
        yield LlmResponse(content=types.Content(role="model", parts=[answer]))


async def main(url: str) -> None:
    async with AsyncStore.open(url) as store:
        sessions, artifacts = PersistSessionService(store), PersistArtifactService(store)
        agent = LlmAgent(name="travel", model=Script(model="script"), tools=[book])
        runner = Runner(app_name="travel", agent=agent, session_service=sessions, artifact_service=artifacts)
        names: dict[str, Any] = {"app_name": "travel", **SESSION}
        stored = await sessions.get_session(**names)
        if stored is None:
            await sessions.create_session(**names)
        elif stored.events:
            print(f"going on after {len(stored.events)} events")
        said = types.Content(role="user", parts=[types.Part(text="Go on." if stored else "Book my trip.")])
        async for event in runner.run_async(**SESSION, new_message=said):
            if event.is_final_response() and event.content and event.content.parts:
                print(f"agent: {event.content.parts[0].text}")
        found = await sessions.get_session(**names)
        assert found is not None
        print(f"state: {found.state['booked']}, last {found.state['user:last_city']}")
        print(f"artifacts: {await artifacts.list_artifact_keys(app_name='travel', user_id='maria')}")
        await runner.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="sqlite:///adk.db")
    parser.add_argument("--crash-in", metavar="CITY", help="die of SIGKILL while the room in this city is booked")
    options = parser.parse_args()
    crash_in = options.crash_in
    asyncio.run(main(options.url))
