"""The session of OpenAI Agents against the one that the framework comes with, on the same database with the same settings.

500 items of 400 characters are added one by one and read once, over an `AsyncStore`; beside them the same texts as messages of
our own. Every item is a commit. LangGraph's checkpointers have a part of their own.
"""

import asyncio
import gc
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import persist
from benchmarks import jobs
from benchmarks.floors import PRAGMAS
from benchmarks.goals import reached
from benchmarks.jobs import MESSAGES, Clock, Job, Times, role, text
from benchmarks.measure import Row, in_turn, middle, us
from benchmarks.place import Place
from persist import AsyncStore
from persist.integrations.openai_agents import PersistSession

ROUNDS = 5
"""So many of every job; the first does not count."""

OURS, THEIRS, OWN = "ours", "theirs", "our own"
_numbers = count()


def rows(place: Place) -> Iterator[Row]:
    """On SQLite, then on Postgres."""
    warnings.simplefilter("ignore")  # other people's
    rounds = 3 if place.quick else ROUNDS
    yield from _sessions(_jobs_on_files(place), rounds, "")
    if place.postgres is not None:
        persist.upgrade(place.postgres)
        yield from _sessions(_jobs_on_server(place.postgres), rounds, "-postgres")


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
