"""LangGraph's checkpointers on the same database: `PersistSaver` and those that the framework comes with.

Four jobs. A thread: 150 checkpoints whose list of messages grows by one of 200 characters; each is put with its write and then
read. A chat: a graph of one node answers 150 times, 450 checkpoints in all. A fan-out: a graph starts 50 tasks, 5 times. A
history: the list of 33 checkpoints of a thread with 10,000 messages. A row compares the time inside `put`, `put_writes` and
`get_tuple`, added over all threads, or inside `list`. On SQLite each job runs against
`SqliteSaver` as its users make it (`synchronous=FULL`, the default of SQLite) and at our durability (`synchronous=NORMAL`).
"""

import gc
import operator
import sqlite3
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

import persist
from benchmarks.floors import PRAGMAS
from benchmarks.goals import reached
from benchmarks.measure import Row, in_turn, us
from benchmarks.place import Place
from persist import Store
from persist.integrations.langgraph import PersistSaver

CHECKPOINTS, LONG = 150, 500
"""Of the thread that is timed, and of the one whose bytes are counted."""

TASKS, ROUNDS_OF_TASKS = 50, 5
MESSAGES, HEADS = 10_000, 33
TIMES = 5
"""So many of every job; the first does not count."""

METHODS = ("put", "put_writes", "get_tuple")
OURS = "ours"
Saver = BaseCheckpointSaver[Any]
Job = Callable[[Saver], object]


class Stopwatch:
    """The seconds inside each method of a saver, and how often it was called."""

    def __init__(self, saver: Saver) -> None:
        self.saver = saver
        self._taken: dict[str, list[float]] = {}
        for method in METHODS:
            setattr(saver, method, self._timed(method, getattr(saver, method)))

    def run(self, job: Job) -> dict[str, float]:
        """The seconds of each method, and of the whole job, in one run."""
        self._taken = {method: [] for method in METHODS}
        began = time.perf_counter()
        job(self.saver)
        whole = time.perf_counter() - began
        return {method: sum(taken) for method, taken in self._taken.items()} | {"whole": whole}

    def calls(self, method: str) -> int:
        """How often the last job called a method."""
        return len(self._taken[method])

    def _timed(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                self._taken[method].append(time.perf_counter() - began)

        return timed


def rows(place: Place) -> Iterator[Row]:
    """On SQLite, then on Postgres."""
    warnings.simplefilter("ignore")  # other people's
    times = 3 if place.quick else TIMES
    full, normal = (their_saver(place.folder / f"{name}.db", name) for name in ("FULL", "NORMAL"))
    with Store.open(place.file("ours")) as store:
        yield from _compared({OURS: PersistSaver(store), "": full, "-equal": normal}, times, "")
    full.conn.close()
    normal.conn.close()
    yield _bytes(place)
    if place.postgres is not None:
        persist.upgrade(place.postgres)
        with Store.open(place.postgres) as store, PostgresSaver.from_conn_string(place.postgres) as theirs:
            theirs.setup()
            yield from _compared({OURS: PersistSaver(store), "-postgres": theirs}, times, "")


def _compared(savers: Mapping[str, Saver], times: int, key: str) -> Iterator[Row]:
    watches = {name: Stopwatch(saver) for name, saver in savers.items()}
    for job_key, job in (("langgraph", thread), ("chat", chat), ("fan-out", fan_out)):
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in savers}
        for turn, name in enumerate(in_turn(list(savers), times)):
            gc.collect()
            seconds = watches[name].run(job)
            if turn >= len(savers):
                taken[name].append(seconds)
        best = {name: {of: min(one[of] for one in all_of) for of in (*METHODS, "whole")} for name, all_of in taken.items()}
        for name in savers:
            if name != OURS:
                yield _row(f"{job_key}{name}", best[OURS], best[name], watches[OURS])
    listed = _histories(savers)
    for name in savers:
        if name != OURS:
            yield reached(f"history{name}", listed[OURS] / listed[name], f"{us(listed[OURS])} vs {us(listed[name])}")


def _row(key: str, ours: Mapping[str, float], theirs: Mapping[str, float], watch: Stopwatch) -> Row:
    details = [f"whole job {ours['whole'] / theirs['whole']:.2f}x"]
    for method in METHODS:
        calls = watch.calls(method)
        details.append(f"{method} {us(ours[method] / calls)} vs {us(theirs[method] / calls)}")
    return reached(key, sum(ours[method] for method in METHODS) / sum(theirs[method] for method in METHODS), ", ".join(details))


def _histories(savers: Mapping[str, Saver]) -> dict[str, float]:
    """The seconds that each saver takes to list the checkpoints of a long thread."""
    said = [AIMessage("x" * 200 + str(number), id=str(number)) for number in range(MESSAGES)]
    begins: dict[str, Any] = {name: {"configurable": {"thread_id": uuid.uuid4().hex, "checkpoint_ns": ""}} for name in savers}
    for name, saver in savers.items():
        version, config = None, begins[name]
        for number in range(HEADS):
            version, checkpoint = saver.get_next_version(version, None), empty_checkpoint()
            checkpoint["id"] = f"{number:08}"
            checkpoint["channel_values"] = {"messages": said[: MESSAGES - HEADS + 1 + number]}
            checkpoint["channel_versions"] = {"messages": version}
            config = saver.put(config, checkpoint, {"source": "loop", "step": number, "parents": {}}, {"messages": version})
    taken: dict[str, list[float]] = {name: [] for name in savers}
    for name in in_turn(list(savers), 3):
        gc.collect()
        began = time.perf_counter()
        found = list(savers[name].list(begins[name]))
        taken[name].append(time.perf_counter() - began)
        if [len(one.checkpoint["channel_values"]["messages"]) for one in found[:: HEADS - 1]] != [MESSAGES, MESSAGES - HEADS + 1]:
            raise AssertionError(f"{name} did not list the history that was put")
    return {name: min(seconds) for name, seconds in taken.items()}


# ---------------------------------------------------------------- jobs


def thread(saver: Saver, checkpoints: int = CHECKPOINTS, *, read: bool = True) -> None:
    """Put every checkpoint with its write, and read it."""
    said = [AIMessage("x" * 200 + str(number), id=str(number)) for number in range(checkpoints)]
    config: Any = {"configurable": {"thread_id": uuid.uuid4().hex, "checkpoint_ns": ""}}
    version: Any = None
    for number in range(1, checkpoints + 1):
        version, checkpoint = saver.get_next_version(version, None), empty_checkpoint()
        checkpoint["id"] = f"{number:08}"
        checkpoint["channel_values"] = {"messages": said[:number]}
        checkpoint["channel_versions"] = {"messages": version}
        config = saver.put(config, checkpoint, {"source": "loop", "step": number, "parents": {}}, {"messages": version})
        saver.put_writes(config, [("messages", said[number - 1])], "task")
        found = saver.get_tuple(config) if read else None
        if read and (found is None or found.checkpoint["channel_values"]["messages"] != said[:number]):
            raise AssertionError(f"checkpoint {number} was not read as it was put")


class Chat(TypedDict):
    """What was said."""

    messages: Annotated[list[AnyMessage], add_messages]


def chat(saver: Saver) -> None:
    """A graph that answers every question, CHECKPOINTS times."""
    builder = StateGraph(Chat)
    builder.add_node("answer", lambda state: {"messages": [AIMessage(f"{len(state['messages'])} {'answer ' * 30}")]})
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": uuid.uuid4().hex}}
    for number in range(CHECKPOINTS):
        state = graph.invoke({"messages": [HumanMessage(f"{number} {'question ' * 10}?")]}, config)
    if len(state["messages"]) != 2 * CHECKPOINTS:
        raise AssertionError("the chat forgot something")


class Work(TypedDict):
    """What tasks found."""

    found: Annotated[list[str], operator.add]


def fan_out(saver: Saver) -> None:
    """A graph that starts TASKS tasks at once and waits for them, ROUNDS_OF_TASKS times."""
    builder = StateGraph(Work)
    builder.add_node("plan", lambda state: {})
    builder.add_node("task", lambda number: {"found": [f"{number} {'found ' * 30}"]})
    builder.add_node("join", lambda state: {})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda state: [Send("task", number) for number in range(TASKS)], ["task"])
    builder.add_edge("task", "join")
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": uuid.uuid4().hex}}
    for _ in range(ROUNDS_OF_TASKS):
        state = graph.invoke({"found": []}, config)
    if len(state["found"]) != TASKS * ROUNDS_OF_TASKS:
        raise AssertionError("a task was forgotten")


# ---------------------------------------------------------------- savers


def their_saver(path: Path, synchronous: str) -> SqliteSaver:
    """The framework's, as its users make it or at our durability."""
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    return saver


def _bytes(place: Place) -> Row:
    """Of the whole files, without what an empty one takes."""
    ours, theirs = place.folder / "ours-long.db", place.folder / "theirs-long.db"
    Store.open(f"sqlite:///{ours}").close()
    saver = their_saver(theirs, "NORMAL")
    empty = [_size(path) for path in (ours, theirs)]
    thread(saver, LONG, read=False)
    saver.conn.close()
    with Store.open(f"sqlite:///{ours}") as store:
        thread(PersistSaver(store), LONG, read=False)
    mine, other = (_size(path) - before for path, before in zip((ours, theirs), empty, strict=True))
    return reached("langgraph-bytes", mine / other, f"{mine / 1e6:.2f} MB vs {other / 1e6:.1f} MB")


def _size(path: Path) -> int:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return path.stat().st_size
