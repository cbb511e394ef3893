"""500 messages of 400 characters appended one by one, a commit each, and all of them read back: libraries that store sessions.

They store other things about a message than persist does, so this compares a job and not designs. langgraph stores after every
message the whole list, as its checkpoints do.
"""

import asyncio
import gc
import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import psycopg

import persist
from benchmarks import jobs, libraries
from benchmarks.goals import reached
from benchmarks.jobs import MESSAGES, Job, Times
from benchmarks.measure import Row, in_turn, middle, us
from benchmarks.place import Place
from persist import AsyncStore, Store

ROUNDS, FEWEST, MAX_SECONDS = 4, 2, 70.0
"""So many of every job, fewer where they would take longer than that; the first round does not count."""

OURS, RAW = "persist", "raw statements, the same tables"


def rows(place: Place) -> Iterator[Row]:
    """SQLite with equal settings, SQLite as shipped, Postgres."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")  # other people's
    numbers = count()

    def new() -> Path:
        return place.folder / f"job-{next(numbers)}.db"

    async def ours() -> Times:
        with Store.open(f"sqlite:///{new()}") as store:
            return jobs.ours(store)

    async def ours_async() -> Times:
        async with AsyncStore.open(f"sqlite:///{new()}") as store:
            return await jobs.ours_async(store)

    async def by_hand() -> Times:
        return jobs.by_hand(new())

    mine: dict[str, Job] = {OURS: ours, f"{OURS}, AsyncStore": ours_async, RAW: by_hand}
    peers = libraries.on_files(new)
    shipped = {f"{name}, as shipped": job for name, job in libraries.as_shipped(new).items()}
    yield from _compared(_measured(mine, peers, shipped), set(peers), set(shipped), where="")
    if place.postgres is not None:
        yield from _on_server(place.postgres)


def _on_server(url: str) -> Iterator[Row]:
    persist.upgrade(url)
    peers = libraries.on_server(url)
    with Store.open(url) as store, psycopg.connect(url, autocommit=True, options="-c search_path=persist") as raw:

        async def ours() -> Times:
            return jobs.ours(store)

        async def ours_async() -> Times:
            async with AsyncStore.open(url) as other:
                return await jobs.ours_async(other)

        async def by_hand() -> Times:
            return jobs.by_hand_on_server(raw)

        async def in_steps() -> Times:
            return jobs.by_hand_in_steps(raw)

        mine: dict[str, Job] = {
            OURS: ours,
            f"{OURS}, AsyncStore": ours_async,
            RAW: by_hand,
            "raw statements, one after the other": in_steps,
        }
        yield from _compared(_measured(mine, peers, {}), set(peers), set(), where="Postgres: ")


def _measured(quick: Mapping[str, Job], peers: Mapping[str, Job], shipped: Mapping[str, Job]) -> dict[str, list[Times]]:
    """Whole jobs in turn, the quick ones three times a round."""
    everything = {**quick, **peers, **shipped}
    taken: dict[str, list[Times]] = {name: [] for name in everything}
    names = [*everything, *quick, *quick]
    began = time.monotonic()
    for turn, name in enumerate(in_turn(names, 1 + ROUNDS)):
        if turn % len(names) == 0 and turn > FEWEST * len(names) and time.monotonic() - began > MAX_SECONDS:
            break
        gc.collect()
        times = asyncio.run(_run(everything[name]))
        if turn >= len(names):
            taken[name].append(times)
    return taken


async def _run(job: Job) -> Times:
    return await job()


def _compared(taken: Mapping[str, list[Times]], peers: set[str], shipped: set[str], where: str) -> Iterator[Row]:
    whole = {name: middle([one.whole for one in times]) for name, times in taken.items()}
    suffix = "-postgres" if where else ""
    fastest = min(peers, key=lambda name: whole[name])
    detail = f"{us(whole[OURS])} vs {us(whole[fastest])}, {fastest}"
    if shipped:
        quickest = min(shipped, key=lambda name: whole[name])
        detail += f"; as shipped {whole[OURS] / whole[quickest]:.2f}x"
    yield reached(f"job-peers{suffix}", whole[OURS] / whole[fastest], detail)
    yield reached(f"job-raw{suffix}", whole[OURS] / whole[RAW], f"{us(whole[OURS])} vs {us(whole[RAW])}")
    for name in sorted(taken, key=lambda name: whole[name]):
        append, read = (middle([getattr(one, half) for one in taken[name]]) for half in ("append", "read"))
        detail = f"{us(append / MESSAGES)} a message, {us(read)} to read all; {us(whole[name])}"
        yield Row(f"{where}{name}", whole[name] / whole[OURS], float("inf"), detail)
