"""The integrations against what each framework comes with, on the same database with the same settings.

LangGraph: 150 checkpoints of a thread whose list of messages grows by one of 200 characters each time; every checkpoint is put
with its write and then read. OpenAI Agents: 500 items of 400 characters added one by one and read once, over an `AsyncStore`;
beside them the same texts as messages of our own. Every put and every item is a commit.
"""

import asyncio
import gc
import sqlite3
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from agents.extensions.memory import SQLAlchemySession
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import persist
from benchmarks import jobs
from benchmarks.floors import PRAGMAS
from benchmarks.goals import reached
from benchmarks.jobs import MESSAGES, Clock, Job, Times, role, text
from benchmarks.measure import Row, in_turn, middle, us
from benchmarks.place import Place
from persist import AsyncStore, Store
from persist.integrations.langgraph import PersistSaver
from persist.integrations.openai_agents import PersistSession

CHECKPOINTS, LONG = 150, 500
"""Of the thread that is timed, and of the one whose bytes are counted."""

ROUNDS = 5
"""So many of every job; the first does not count."""

OURS, THEIRS, OWN = "ours", "theirs", "our own"
_numbers = count()


def rows(place: Place) -> Iterator[Row]:
    """Savers and sessions on SQLite, then on Postgres."""
    warnings.simplefilter("ignore")  # other people's
    rounds = 3 if place.quick else ROUNDS
    yield from _savers_on_files(place, rounds)
    yield _bytes(place)
    yield from _sessions(_jobs_on_files(place), rounds, "")
    if place.postgres is not None:
        persist.upgrade(place.postgres)
        yield from _savers_on_server(place.postgres, rounds)
        yield from _sessions(_jobs_on_server(place.postgres), rounds, "-postgres")


# ---------------------------------------------------------------- LangGraph


def _grow(saver: BaseCheckpointSaver[Any], checkpoints: int, *, read: bool) -> tuple[float, float]:
    """Seconds to put every checkpoint with its write, and to read it."""
    said = [AIMessage("x" * 200 + str(number), id=str(number)) for number in range(checkpoints)]
    config: Any = {"configurable": {"thread_id": uuid.uuid4().hex, "checkpoint_ns": ""}}
    version: Any = None
    written = loaded = 0.0
    for number in range(1, checkpoints + 1):
        version, checkpoint = saver.get_next_version(version, None), empty_checkpoint()
        checkpoint["id"] = f"{number:08}"
        checkpoint["channel_values"] = {"messages": said[:number]}
        checkpoint["channel_versions"] = {"messages": version}
        began = time.perf_counter()
        config = saver.put(config, checkpoint, {"source": "loop", "step": number, "parents": {}}, {"messages": version})
        saver.put_writes(config, [("messages", said[number - 1])], "task")
        put = time.perf_counter()
        found = saver.get_tuple(config) if read else None
        written, loaded = written + put - began, loaded + time.perf_counter() - put
        if read and (found is None or found.checkpoint["channel_values"]["messages"] != said[:number]):
            raise AssertionError(f"checkpoint {number} was not read as it was put")
    return written, loaded


def _savers(savers: Mapping[str, BaseCheckpointSaver[Any]], rounds: int, key: str) -> Iterator[Row]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in savers}
    for turn, name in enumerate(in_turn(list(savers), rounds)):
        gc.collect()
        times = _grow(savers[name], CHECKPOINTS, read=True)
        if turn >= len(savers):
            taken[name].append(times)
    halves = {name: [middle(half) for half in zip(*times, strict=True)] for name, times in taken.items()}
    (puts, gets), (their_puts, their_gets) = halves[OURS], halves[THEIRS]
    each = [us(seconds / CHECKPOINTS) for seconds in (puts, their_puts, gets, their_gets)]
    yield reached(key, (puts + gets) / (their_puts + their_gets), "put {} vs {}, get {} vs {}".format(*each))


def _their_saver(path: Path) -> SqliteSaver:
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    _set(connection)
    return saver


def _savers_on_files(place: Place, rounds: int) -> Iterator[Row]:
    theirs = _their_saver(place.folder / "theirs.db")
    with Store.open(place.file("ours")) as store:
        yield from _savers({OURS: PersistSaver(store), THEIRS: theirs}, rounds, "langgraph")
    theirs.conn.close()


def _savers_on_server(url: str, rounds: int) -> Iterator[Row]:
    with Store.open(url) as store, PostgresSaver.from_conn_string(url) as theirs:
        theirs.setup()
        yield from _savers({OURS: PersistSaver(store), THEIRS: theirs}, rounds, "langgraph-postgres")


def _bytes(place: Place) -> Row:
    """Of the whole files, without what an empty one takes."""
    ours, theirs = place.folder / "ours-long.db", place.folder / "theirs-long.db"
    Store.open(f"sqlite:///{ours}").close()
    saver = _their_saver(theirs)
    empty = [_size(path) for path in (ours, theirs)]
    _grow(saver, LONG, read=False)
    saver.conn.close()
    with Store.open(f"sqlite:///{ours}") as store:
        _grow(PersistSaver(store), LONG, read=False)
    mine, other = (_size(path) - before for path, before in zip((ours, theirs), empty, strict=True))
    return reached("langgraph-bytes", mine / other, f"{mine / 1e6:.2f} MB vs {other / 1e6:.1f} MB")


def _size(path: Path) -> int:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return path.stat().st_size


# ---------------------------------------------------------------- OpenAI Agents


async def _session(session: Any) -> Times:
    await session.get_items()  # theirs makes its tables
    clock = Clock()
    for number in range(MESSAGES):
        await session.add_items([{"role": role(number), "content": text(number)}])
    clock.appended()
    return clock.read(len(await session.get_items()))


async def _ours(url: str) -> Times:
    async with AsyncStore.open(url) as store:
        return await _session(PersistSession(uuid.uuid4().hex, store))


async def _own(url: str) -> Times:
    async with AsyncStore.open(url) as store:
        return await jobs.ours_async(store)


async def _theirs(engine: AsyncEngine) -> Times:
    try:
        return await _session(SQLAlchemySession(uuid.uuid4().hex, engine=engine, create_tables=True))
    finally:
        await engine.dispose()


def _jobs_on_files(place: Place) -> dict[str, Job]:
    def new() -> str:
        return f"/{place.folder}/session-{next(_numbers)}.db"

    def engine() -> AsyncEngine:
        made = create_async_engine(f"sqlite+aiosqlite://{new()}")

        @event.listens_for(made.sync_engine, "connect")
        def connected(connection: Any, _: object) -> None:
            _set(connection)

        return made

    return {OURS: lambda: _ours(f"sqlite://{new()}"), OWN: lambda: _own(f"sqlite://{new()}"), THEIRS: lambda: _theirs(engine())}


def _jobs_on_server(url: str) -> dict[str, Job]:
    def engine() -> AsyncEngine:
        return create_async_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))  # the driver that is ours, too

    return {OURS: lambda: _ours(url), OWN: lambda: _own(url), THEIRS: lambda: _theirs(engine())}


def _sessions(alternatives: Mapping[str, Job], rounds: int, suffix: str) -> Iterator[Row]:
    taken: dict[str, list[Times]] = {name: [] for name in alternatives}
    for turn, name in enumerate(in_turn(list(alternatives), rounds)):
        gc.collect()
        times = asyncio.run(_run(alternatives[name]))
        if turn >= len(alternatives):
            taken[name].append(times)
    for key, other in (("agents", THEIRS), ("agents-own", OWN)):
        ours, beside = _middle(taken[OURS]), _middle(taken[other])
        added = f"added in {us(ours.append / MESSAGES)} vs {us(beside.append / MESSAGES)}"
        detail = f"{added}, read in {us(ours.read)} vs {us(beside.read)}"
        yield reached(f"{key}{suffix}", ours.whole / beside.whole, detail)


def _middle(taken: Sequence[Times]) -> Times:
    return Times(middle([one.append for one in taken]), middle([one.read for one in taken]))


async def _run(job: Job) -> Times:
    return await job()


def _set(connection: Any) -> None:
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
