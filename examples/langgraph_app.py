"""A LangGraph application that can be killed at any moment, and goes on where it was when it is run again.

    pip install '.[langgraph]'                             # in a clone of persist; elsewhere agent-persist
    python examples/langgraph_app.py --crash-in Faro       # books two of three cities, and dies of SIGKILL
    python examples/langgraph_app.py                       # books the third, and answers
    persist show trip --url sqlite:///graph.db             # the thread and its checkpoints

It runs offline: the model is a script that asks for one booking after the other until it sees the results of all. What
persist adds are the lines that make `checkpointer` and `store`.
"""

import argparse
import os
import signal
from typing import Annotated, Any

try:
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages
    from langgraph.store.base import BaseStore
    from typing_extensions import TypedDict

    from persist import Store
    from persist.integrations.langgraph import PersistSaver, PersistStore
except ImportError as missing:
    raise SystemExit(f"{missing}. In a clone of persist: pip install '.[langgraph]'") from None

CITIES = ("Lisbon", "Porto", "Faro")
BOOKED = ("trips", "booked")
crash_in: str | None = None


class State(TypedDict):
    """What a thread keeps."""

    messages: Annotated[list[AnyMessage], add_messages]


def model(state: State) -> dict[str, Any]:
    """Asks for the next city, or answers."""
    done = sum(isinstance(message, ToolMessage) for message in state["messages"])
    if done == len(CITIES):
        return {"messages": [AIMessage(f"All {done} are booked.")]}
    call = {"name": "book", "args": {"city": CITIES[done]}, "id": f"call-{done}"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def book(state: State, *, store: BaseStore) -> dict[str, Any]:
    """Books a room; harmless to repeat, since the process may die before what it did is stored."""
    (call,) = state["messages"][-1].tool_calls  # type: ignore[union-attr]  # the edge comes only from such a message
    city = call["args"]["city"]
    if city == crash_in:
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"booking {city}", flush=True)
    store.put(BOOKED, city, {"city": city})
    return {"messages": [ToolMessage(f"{city} is booked.", tool_call_id=call["id"])]}


def main() -> None:
    """Start the trip, or go on with it."""
    global crash_in
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="sqlite:///graph.db", help="sqlite:///FILE or postgresql://…")
    parser.add_argument("--crash-in", choices=CITIES, help="die while this city is booked")
    options = parser.parse_args()
    crash_in = options.crash_in

    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("book", book)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: "book" if state["messages"][-1].tool_calls else END, ["book", END])
    builder.add_edge("book", "model")

    with Store.open(options.url) as database:
        graph = builder.compile(checkpointer=PersistSaver(database), store=PersistStore(database))
        thread: RunnableConfig = {"configurable": {"thread_id": "trip"}}
        known = graph.get_state(thread)
        if known.values and not known.next:
            print("The trip is booked already.")
            return
        given: Any = None if known.values else {"messages": [HumanMessage("Book my trip.")]}
        result = graph.invoke(given, thread, durability="sync")
        print(result["messages"][-1].content)
        print("booked:", *sorted(item.key for item in PersistStore(database).search(BOOKED)))


if __name__ == "__main__":
    main()
