"""Another process: `run URL THREAD` runs the graph and says every step before its end; `first URL NAME` uses threads at once."""

import sys
import time
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig

from persist import Store
from persist.integrations.langgraph import PersistSaver, PersistStore
from tests.integrations.langgraph.graphs import HARD, build
from tests.integrations.langgraph.scenes import checkpoint, config, messages, metadata


def run(url: str, thread: str) -> None:
    def report(step: str) -> None:
        print(step, flush=True)
        time.sleep(0.02)

    at: RunnableConfig = {"configurable": {"thread_id": thread}}
    with Store.open(url) as store:
        graph = build(PersistSaver(store), report=report)
        given: Any = None if graph.get_state(at).values else {"messages": [HumanMessage(HARD, id="first")]}
        graph.invoke(given, at, durability="sync")


def first(url: str, name: str) -> None:
    with Store.open(url) as store:
        saver, items = PersistSaver(store), PersistStore(store)
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(10):
            id = f"{number}-{name}"
            saver.put(config(), checkpoint(id, {"said": messages(5 + number)}, {"said": id}), metadata(run_id=name), {"said": id})
            saver.put_writes(config(id=id), [("said", [name])], name)
            items.put(("shared",), f"{number}", {"by": name})


if __name__ == "__main__":
    {"run": run, "first": first}[sys.argv[1]](*sys.argv[2:])
