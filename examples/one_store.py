"""Four frameworks that plan one trip and share one database: killed at any moment, they go on, and the costs are added up.

    pip install '.[openai-agents,langgraph,pydantic-ai,mcp]'    # in a clone of persist; elsewhere agent-persist
    python examples/one_store.py --crash-after 6                # dies of SIGKILL after the sixth call of a model
    python examples/one_store.py                                # goes on, and prints tokens and cost of both runs
    persist telemetry usage --instance mcp --url sqlite:///one.db
    python examples/one_store.py sqlite:///one.db postgresql://127.0.0.1/agents      # in both

An agent of OpenAI Agents compares cities, a graph of LangGraph books them, an agent of Pydantic AI writes to the guests, and a
server of MCP sends the guide. The models are scripts: no network, no key. What a call uses is noted as soon as it is paid for, by
one instance of `tx.telemetry` for each framework; a call that has to be repeated after a kill is counted twice, as it is billed.
"""

import argparse
import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from operator import add
from typing import Annotated, Any, TypedDict

try:
    import httpx
    from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
    from langchain_core.runnables import RunnableConfig
    from langgraph.graph import END, START, StateGraph
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.streamable_http import EventMessage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.messages import ModelMessage, TextPart
    from pydantic_ai.messages import ModelResponse as PydanticResponse
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from persist import Store
    from persist.integrations.langgraph import PersistSaver
    from persist.integrations.mcp import PersistEventStore, PersistSessionManager
    from persist.integrations.openai_agents import PersistSession
    from persist.integrations.pydantic_ai import PersistConversationStore
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install '.[openai-agents,langgraph,pydantic-ai,mcp]'") from None

CITIES = ("Lisbon", "Porto", "Faro")
LETTERS = ("Invite the guests.", "Now in Portuguese.")
FRAMEWORKS = ("openai-agents", "langgraph", "pydantic-ai", "mcp")
CALL = "2"
"""The stream of MCP in which the call of the tool is answered: the id of its request."""
MICROS_PER_TOKEN_IN, MICROS_PER_TOKEN_OUT = 3, 15


class Bill:
    """What the calls of models use, in the database before their answers are."""

    def __init__(self, store: Store, crash_after: int | None) -> None:
        self.store, self.left = store, crash_after

    def pay(self, framework: str, tokens_in: int, tokens_out: int) -> None:
        """Note a call."""
        cost = tokens_in * MICROS_PER_TOKEN_IN + tokens_out * MICROS_PER_TOKEN_OUT
        self.store.telemetry.usage.sample(
            at=datetime.now(UTC), instance_id=framework, token_input=tokens_in, token_output=tokens_out, cost_usd_micros=cost
        )
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def show(self) -> None:
        """Print what each framework used, in this run and in all before it, and the sums."""
        with self.store.read() as tx:
            used = {name: tx.telemetry.usage.totals(instance_id=name) for name in FRAMEWORKS}
        rows = [(name, one.token_input or 0, one.token_output or 0, one.cost_usd_micros or 0) for name, one in used.items()]
        for name, *numbers in [*rows, ("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:]))]:
            print(f"{name:14}{numbers[0]:6} tokens in {numbers[1]:5} out  ${numbers[2] / 1_000_000:.6f}", flush=True)


class Comparing(Model):
    """A model that looks up one city after the other, and then answers."""

    def __init__(self, bill: Bill) -> None:
        self.bill = bill

    async def get_response(self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        items = [] if isinstance(input, str) else input
        done = sum(item.get("type") == "function_call_output" for item in items)
        self.bill.pay("openai-agents", 100 + 10 * done, 10)
        output: Any
        if done < len(CITIES):
            output = ResponseFunctionToolCall(
                type="function_call", call_id=f"call_{done}", name="look_up", arguments=json.dumps({"city": CITIES[done]})
            )
        else:
            text = ResponseOutputText(type="output_text", text="All three are worth it.", annotations=[], logprobs=[])
            output = ResponseOutputMessage(id="msg_1", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


@function_tool
def look_up(city: str) -> str:
    """Look up a city."""
    return f"{city} is sunny."


async def compare(store: Store, bill: Bill) -> None:
    """OpenAI Agents: a session."""
    session = PersistSession("trip", store)
    stored = await session.get_items()
    if not any(item.get("type") == "message" for item in stored):
        agent = Agent(name="planner", model=Comparing(bill), tools=[look_up])
        result = await Runner.run(agent, [] if stored else "Compare the cities.", session=session)
        print(f"openai-agents: {result.final_output}", flush=True)


class Trip(TypedDict):
    """What the thread of the graph keeps."""

    booked: Annotated[list[str], add]


async def book(store: Store, bill: Bill) -> None:
    """LangGraph: a thread, a step for each city."""

    def step(state: Trip) -> dict[str, Any]:
        bill.pay("langgraph", 50, 5)
        city = CITIES[len(state["booked"])]
        print(f"langgraph: {city} is booked.", flush=True)
        return {"booked": [city]}

    builder = StateGraph(Trip)
    builder.add_node("book", step)
    builder.add_edge(START, "book")
    builder.add_conditional_edges("book", lambda state: "book" if len(state["booked"]) < len(CITIES) else END, ["book", END])
    graph = builder.compile(checkpointer=PersistSaver(store))
    thread: RunnableConfig = {"configurable": {"thread_id": "trip"}}
    known = await graph.aget_state(thread)
    if known.next or not known.created_at:
        given: Any = None if known.created_at else {"booked": []}
        await graph.ainvoke(given, thread, durability="sync")


async def write(store: Store, bill: Bill) -> None:
    """Pydantic AI: a conversation, saved after every answer."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> PydanticResponse:
        bill.pay("pydantic-ai", 20 * len(messages), 40)
        return PydanticResponse(parts=[TextPart("Come to Portugal!" if len(messages) == 1 else "Venham a Portugal!")])

    agent, conversations = PydanticAgent(FunctionModel(answer)), PersistConversationStore(store)
    letters = await conversations.load("trip") or Conversation(conversation_id="trip")
    for question in LETTERS[len(letters.messages) // 2 :]:
        result = await agent.run(question, conversation=letters)
        await conversations.save(result)
        letters = result.conversation
        print(f"pydantic-ai: {result.output}", flush=True)


async def guide(store: Store, bill: Bill) -> None:
    """MCP: a server that sends the guide page by page, and a client that is sent what it missed of its last session."""
    events, server, begin = PersistEventStore(store), MCPServer("guide", log_level="ERROR"), 0

    @server.tool()
    async def read(begin: int, ctx: Context) -> str:
        """Write the guide's pages, from one on, and send them."""
        for page in range(begin, len(CITIES)):
            bill.pay("mcp", 10, 100)
            await ctx.report_progress(page + 1, len(CITIES), CITIES[page])
        return "That was all."

    async def got(event: EventMessage) -> None:
        nonlocal begin
        message = event.message.model_dump(by_alias=True, exclude_unset=True)
        begin = said(message) or begin

    def said(message: dict[str, Any]) -> int:
        if "params" in message:
            print(f"mcp: a page about {message['params']['message']}", flush=True)
            return int(message["params"]["progress"])
        if "content" in message.get("result", {}):
            print(f"mcp: {message['result']['content'][0]['text']}", flush=True)
            return len(CITIES) + 1
        return 0

    # a client that notes the last event it got is sent what follows it; this one notes nothing, and asks for all of its call
    for session in sorted(store.replay_streams.sessions.list().items, key=lambda session: session.created_at):
        for marker in store.replay_streams.messages.newest(session.id):
            if marker.stream == CALL and marker.message is None:
                await events.for_session(session.id).replay_events_after(marker.id, got)
    if begin > len(CITIES):
        return
    manager = PersistSessionManager(server._lowlevel_server, events)
    async with manager.run(), httpx.AsyncClient(transport=httpx.ASGITransport(manager.handle_request)) as client:
        headers = {"accept": "application/json, text/event-stream"}
        who = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "guest", "version": "1"}}
        asked: list[dict[str, Any]] = [
            {"id": 1, "method": "initialize", "params": who},
            {"method": "notifications/initialized"},
            {
                "id": int(CALL),
                "method": "tools/call",
                "params": {"name": "read", "arguments": {"begin": begin}, "_meta": {"progressToken": 2}},
            },
        ]
        for one in asked:
            answer = await client.post("http://127.0.0.1/", json={"jsonrpc": "2.0", **one}, headers=headers)
            headers |= {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            for line in answer.text.splitlines():
                if line.startswith("data: {"):
                    said(json.loads(line.removeprefix("data: ")))


async def main(url: str, crash_after: int | None) -> None:
    """Plan the trip, or what is left to plan."""
    set_tracing_disabled(True)
    with Store.open(url) as store:
        bill = Bill(store, crash_after)
        for part in (compare, book, write, guide):
            await part(store, bill)
        bill.show()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="*", default=["sqlite:///one.db"], metavar="URL", help="sqlite:///FILE or postgresql://…")
    parser.add_argument("--crash-after", type=int, metavar="N", help="die after the N-th call of a model")
    options = parser.parse_args()
    for url in options.urls:
        asyncio.run(main(url, options.crash_after))
