"""How the price of a durable chunk grows: with the length of the answer, and with the processes that record at once."""

import os
import subprocess
import sys
from collections.abc import Iterator
from statistics import quantiles
from time import perf_counter as clock

import persist
from benchmarks.measure import Row, us, without_collections
from benchmarks.place import Place
from benchmarks.recording import CHUNK, DELTA, begin_text
from persist import Store

LENGTHS = (40_000, 400_000, 4_000_000)
"""Characters of one answer."""

PROCESSES = (1, 2, 4)
CHUNKS_EACH = 3000


def rows(place: Place) -> Iterator[Row]:
    """Lengths on SQLite, processes on both databases."""
    yield from _lengths(place)
    yield from _processes(place.file("processes"), "", CHUNKS_EACH // 5 if place.quick else CHUNKS_EACH)
    if place.postgres is not None:
        persist.upgrade(place.postgres)
        yield from _processes(place.postgres, "Postgres: ", CHUNKS_EACH // 10 if place.quick else CHUNKS_EACH // 3)


def _lengths(place: Place) -> Iterator[Row]:
    shortest = 0.0
    with Store.open(place.file("lengths")) as store, store.begin() as tx:
        session_id = tx.chat.sessions.create(agent="bench", model={}).id
    for length in LENGTHS[:2] if place.quick else LENGTHS:
        with Store.open(place.file("lengths")) as store, store.record(session_id) as recorder, without_collections():
            begin_text(recorder)
            chunks = length // len(DELTA)
            started = clock()
            for _ in range(chunks):
                recorder.feed(CHUNK)
            each = (clock() - started) / chunks
        shortest = shortest or each
        name = f"a chunk of an answer of {length:,} characters, vs of {LENGTHS[0]:,}"
        yield Row(name, each / shortest, float("inf"), f"{us(each)} a chunk")


def _processes(url: str, prefix: str, chunks: int) -> Iterator[Row]:
    alone = 0.0
    for count in PROCESSES:
        writers = [
            subprocess.Popen([sys.executable, "-m", "benchmarks.scaling", url, str(chunks)], stdin=-1, stdout=-1, text=True)
            for _ in range(count)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        answers = [[float(word) for word in writer.communicate()[0].split()] for writer in writers]
        each = max(whole for whole, _ in answers) / (chunks * count)
        alone = alone or each
        worst = max(late for _, late in answers)
        name = "1 process records" if count == 1 else f"{count} processes record"
        detail = f"{us(each)} a chunk, {1 / each:,.0f} chunks/s in all; 99 of 100 within {us(worst)}"
        yield Row(f"{prefix}{name}, per chunk, vs one", each / alone, float("inf"), detail)


def write(url: str, chunks: int) -> None:
    """One of the processes: ready, then as fast as it can, then the seconds it took and the 99th percentile."""
    with Store.open(url) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent=f"bench {os.getpid()}", model={})
        with store.record(session.id) as recorder:
            begin_text(recorder)
            print("ready", flush=True)
            sys.stdin.readline()
            taken = []
            began = clock()
            for _ in range(chunks):
                started = clock()
                recorder.feed(CHUNK)
                taken.append(clock() - started)
            whole = clock() - began
        print(whole, quantiles(taken, n=100)[98])


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]))
