"""A graph with a scripted model, as an application would write it."""

from operator import add
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

TURNS = 6
HARD = "Naïve\x00 text stays what it was."


class State(TypedDict):
    """What the graph keeps."""

    messages: Annotated[list[AnyMessage], add_messages]
    steps: Annotated[list[str], add]


def build(saver: Any, *, store: Any = None, report: Any = None, ask: bool = False) -> CompiledStateGraph[Any]:
    """A model that calls a tool so many times and then answers; `report` is told the name of each step before it ends."""

    def model(state: State) -> dict[str, Any]:
        turn = sum(isinstance(message, AIMessage) for message in state["messages"])
        if report is not None:
            report(f"model {turn}")
        if turn == TURNS:
            if ask:
                said = interrupt({"question": HARD})
                return {"messages": [AIMessage(f"done: {said}", id="last")], "steps": ["model"]}
            return {"messages": [AIMessage("done", id="last")], "steps": ["model"]}
        call = {"name": "look", "args": {"turn": turn, "text": HARD}, "id": f"call-{turn}"}
        return {"messages": [AIMessage(HARD, tool_calls=[call], id=f"ai-{turn}")], "steps": ["model"]}

    def tool(state: State) -> dict[str, Any]:
        (call,) = state["messages"][-1].tool_calls  # type: ignore[union-attr]  # the edge comes only from such a message
        if report is not None:
            report(f"tool {call['args']['turn']}")
        return {"messages": [ToolMessage(f"{HARD} {call['args']}", tool_call_id=call["id"], id=call["id"])], "steps": ["tool"]}

    def after(state: State) -> str:
        return "tool" if getattr(state["messages"][-1], "tool_calls", None) else END

    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", after, ["tool", END])
    builder.add_edge("tool", "model")
    return builder.compile(checkpointer=saver, store=store)
