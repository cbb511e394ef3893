"""Recording an answer chunk by chunk, each durable before the next: against rewriting the part, and against bare delta rows."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import persist
from benchmarks.floors import DeltaRows, DeltaRowsOnServer, InPlaceRewrite
from benchmarks.goals import reached
from benchmarks.measure import Operation, Row, interleaved, middle, us
from benchmarks.place import Place
from persist import Recorder, Settings, Store

DELTA = "lorem ipsum dolor si"
CHUNK = {"type": "text-delta", "id": "t", "delta": DELTA}
CHUNKS = 2000
"""40 KB."""

STREAMS = 7
POSTGRES_STREAMS = 3
_EARLY, _LATE = slice(25, 75), slice(-100, None)
"""Around 1 KB, and at 40 KB."""

Times = dict[str, list[list[float]]]
"""Seconds of every chunk, stream by stream."""


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    yield from _on_file(place)
    yield _write_ahead_log(place)
    if place.postgres is not None:
        yield from _on_server(place.postgres, 1 if place.quick else POSTGRES_STREAMS)


def _on_file(place: Place) -> Iterator[Row]:
    rewrite, deltas = InPlaceRewrite(place.folder / "rewrite.db"), DeltaRows(place.folder / "deltas.db")
    with Store.open(place.file("recorded")) as store:
        taken = _streams(store, {"rewrite": rewrite, "deltas": deltas}, 3 if place.quick else STREAMS)
    whole = {name: middle([sum(stream) for stream in streams]) for name, streams in taken.items()}
    each = {name: us(seconds / CHUNKS) for name, seconds in whole.items()}
    beside = whole["deltas"] / whole["rewrite"]
    detail = f"{each['persist']} a chunk vs {each['rewrite']}; raw delta rows, which nobody can read yet: {beside:.2f}x"
    yield reached("stream", whole["persist"] / whole["rewrite"], detail)
    early, late = _middle_of(taken["persist"], _EARLY), _middle_of(taken["persist"], _LATE)
    yield reached("late-chunk", late / early, f"{us(early)} -> {us(late)}")
    yield Row(
        "the same answer, whole stream, vs raw delta rows",
        whole["persist"] / whole["deltas"],
        float("inf"),
        f"{each['persist']} a chunk vs {each['deltas']}",
    )
    chunk, floor = _middle_of(taken["persist"]), _middle_of(taken["deltas"])
    yield Row("  … the median chunk", chunk / floor, float("inf"), f"{us(chunk)} vs {us(floor)}")
    early, late = _middle_of(taken["rewrite"], _EARLY), _middle_of(taken["rewrite"], _LATE)
    yield Row("a raw rewrite at 40 KB vs at 1 KB", late / early, float("inf"), f"{us(early)} -> {us(late)}")


def _on_server(url: str, streams: int) -> Iterator[Row]:
    deltas = DeltaRowsOnServer(url)
    persist.upgrade(url)
    with Store.open(url) as store:
        taken = _streams(store, {"deltas": deltas}, streams)
    deltas.connection.close()
    whole = {name: middle([sum(stream) for stream in streams]) for name, streams in taken.items()}
    each = {name: us(seconds / CHUNKS) for name, seconds in whole.items()}
    yield reached("stream-postgres", whole["persist"] / whole["deltas"], f"{each['persist']} a chunk vs {each['deltas']}")
    chunk, floor = _middle_of(taken["persist"]), _middle_of(taken["deltas"])
    yield reached("chunk-postgres", chunk / floor, f"{us(chunk)} vs {us(floor)}, median chunks")


def _streams(store: Store, floors: dict[str, Any], streams: int) -> Times:
    """The same answer into all of them, chunk by chunk in turn, once more for every stream; the first does not count."""
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="bench", model={})
    taken: Times = {name: [] for name in (*floors, "persist")}
    for number in range(1 + streams):
        with store.record(session.id) as recorder:
            begin_text(recorder)
            for floor in floors.values():
                floor.begin()
            feed: dict[str, Operation] = {name: partial(floor.chunk, DELTA) for name, floor in floors.items()}
            feed["persist"] = partial(recorder.feed, CHUNK)
            seconds = interleaved(feed, rounds=CHUNKS, warm=0)
        if number:
            for name, values in seconds.items():
                taken[name].append(values)
    return taken


def begin_text(recorder: Recorder) -> None:
    """A message whose one part is a text."""
    recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])


def _middle_of(streams: list[list[float]], piece: slice = slice(None)) -> float:
    return middle([seconds for stream in streams for seconds in stream[piece]])


def _write_ahead_log(place: Place) -> Row:
    """What the log grows by while nothing is copied out of it."""
    path = place.folder / "log.db"
    with Store.open(f"sqlite:///{path}", settings=Settings(wal_autocheckpoint=0)) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="bench", model={})
        with store.record(session.id) as recorder:
            begin_text(recorder)
            before = _size_of_log(path)
            for _ in range(CHUNKS):
                recorder.feed(CHUNK)
            grown = _size_of_log(path) - before
    detail = f"{grown / 1e6:,.1f} MB for {CHUNKS:,} commits, growth of the -wal file with checkpoints off, folds included"
    return reached("wal", grown / CHUNKS / 1000, detail)


def _size_of_log(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size
