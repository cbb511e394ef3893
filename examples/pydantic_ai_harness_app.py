"""An agent of Pydantic AI whose steps its harness keeps in a store: killed in the middle of its work, it goes on where it was.

    pip install '.[pydantic-ai-harness]'                                # in a clone of persist; elsewhere agent-persist
    python examples/pydantic_ai_harness_app.py --crash-in Faro          # books two of three cities, and dies of SIGKILL
    python examples/pydantic_ai_harness_app.py                          # books the third, and answers
    persist histories runs --url sqlite:///steps.db                     # the runs; `persist show ID` prints one

The model is a function of this file: no network, no key. What persist adds is the line that makes `steps`.
"""

import argparse
import asyncio
import os
import signal

try:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai_harness.step_persistence import StepPersistence, continue_run

    from persist import Store
    from persist.integrations.pydantic_ai import PersistStepStore
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install '.[pydantic-ai-harness]'") from None

CITIES = ("Lisbon", "Porto", "Faro")
crash_in: str | None = None


def book(city: str) -> str:
    """Book a room; harmless to repeat, since the process may die before what it did is stored."""
    if city == crash_in:
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"booking {city}", flush=True)
    return f"{city} is booked."


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for the next city, or answers."""
    done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    if done == len(CITIES):
        return ModelResponse(parts=[TextPart(f"All {done} are booked.")])
    return ModelResponse(parts=[ToolCallPart("book", {"city": CITIES[done]}, tool_call_id=f"call-{done}")])


async def main(url: str) -> None:
    """Book the trip, or what is left of it."""
    with Store.open(url) as store:
        steps = PersistStepStore(store, max_snapshots_per_run=5)
        agent = Agent(FunctionModel(model), tools=[book], capabilities=[StepPersistence(store=steps)])
        runs = await steps.list_runs()
        stored = await continue_run(steps, run_id=runs[-1].run_id) if runs else []
        if stored:
            print(f"going on after {len(stored)} messages", flush=True)
        result = await agent.run(None if stored else "Book my trip.", message_history=stored or None)
        print(f"agent: {result.output}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="sqlite:///steps.db", help="sqlite:///FILE or postgresql://…")
    parser.add_argument("--crash-in", choices=CITIES, help="die while this city is booked")
    options = parser.parse_args()
    crash_in = options.crash_in
    asyncio.run(main(options.url))
