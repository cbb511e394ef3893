"""Search by embedding: the ten nearest of 20,000 vectors of 384 numbers, against the rows read by hand and one numpy product."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy
import psycopg

import persist
from benchmarks.floors import connect
from benchmarks.measure import Row, interleaved, middle, us
from benchmarks.place import Place
from persist import Store

ROWS, SIZE, NEAREST = 20_000, 384, 10
ROUNDS = 9
GOAL_MS = 200.0
SESSION = "everything"
_BATCH = 2000
_WORDS = {"text": "lorem ipsum dolor sit amet " * 20}


class Without:
    """Modules that cannot be imported meanwhile."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._before: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._before = {name: sys.modules[name] for name in self._names if name in sys.modules}
        sys.modules.update(dict.fromkeys(self._names))  # type: ignore[arg-type]  # None is how an import is refused

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            del sys.modules[name]
        sys.modules.update(self._before)


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    count = ROWS // 4 if place.quick else ROWS
    yield from compare(place.file("vectors"), count, SIZE)
    if place.postgres is not None:
        persist.upgrade(place.postgres)
        yield from compare(place.postgres, count, SIZE)


def compare(url: str, rows: int, size: int) -> Iterator[Row]:
    """Every way that there is here, then the filter that names every message, then the other metric."""
    with ExitStack() as stack:
        query = _fill(url, rows, size)
        stores = {way: stack.enter_context(Store.open(url)) for way in ("sqlite-vec", "numpy", "python")}
        by_hand = _by_hand(url, stack, size)
        expected = by_hand(query)
        ways: dict[str, Callable[[], object]] = {"by hand": lambda: by_hand(query)}
        for way, hidden in (("sqlite-vec", ()), ("numpy", ("sqlite_vec",)), ("python", ("sqlite_vec", "numpy"))):
            found, backend = _search(stores[way], hidden, query)()
            if backend == way:
                assert [one.id for one, _ in found] == expected
                ways[way] = _search(stores[way], hidden, query)
        ways["in a session"] = _search(stores["numpy"], ("sqlite_vec",), query, session_id=SESSION)
        ways["l2"] = _search(stores["numpy"], ("sqlite_vec",), query, metric="l2")
        times = {way: middle(seconds) for way, seconds in interleaved(ways, rounds=ROUNDS, warm=2).items()}
    floor = times.pop("by hand")
    where = "" if url.startswith("sqlite") else "Postgres: "
    what = f"{where}{NEAREST} nearest of {rows:,} x {size}"
    for way, seconds in times.items():
        name = f"{what}, {way if way in stores else f'numpy, {way}'}"
        yield Row(name, seconds * 1e3, GOAL_MS if way == "numpy" else float("inf"), f"{us(floor)} by hand", unit=" ms")
        yield Row("  … vs by hand with numpy", seconds / floor, float("inf"), f"{us(seconds)} vs {us(floor)}")


def _search(store: Store, hidden: tuple[str, ...], query: bytes, **filters: Any) -> Callable[[], tuple[list[Any], str]]:
    def run() -> tuple[list[Any], str]:
        with Without(*hidden), store.read() as tx:
            vectors = tx.conversations.vectors
            return vectors.search(query, k=NEAREST, **filters), vectors.backend()

    return run


def _by_hand(url: str, stack: ExitStack, size: int) -> Callable[[bytes], list[str]]:
    """All rows at once, one matrix, one product in float32, the ids and the messages of the nearest."""
    if url.startswith("sqlite"):
        raw: Any = connect(Path(url.removeprefix("sqlite:///")))
        cursor, marks, length = raw.cursor(), ", ".join("?" * NEAREST), f"length(embedding) = {4 * size}"
    else:
        raw = psycopg.connect(url, autocommit=True, options="-c search_path=persist")
        cursor, marks, length = raw.cursor(binary=True), ", ".join(["%s"] * NEAREST), f"length(embedding) = {4 * size}"
    stack.callback(raw.close)
    rest = f"SELECT id, created_at, node_metadata, content, sender, recipient, channel, role FROM messages WHERE id IN ({marks})"

    def run(query: bytes) -> list[str]:
        rows = cursor.execute(f"SELECT id, embedding FROM messages WHERE {length}").fetchall()
        matrix = numpy.frombuffer(b"".join([packed for _, packed in rows]), "<f4").reshape(len(rows), -1)
        target = numpy.frombuffer(query, "<f4")
        lengths = numpy.sqrt(numpy.einsum("ij,ij->i", matrix, matrix))
        distances = 1 - matrix @ target / (lengths * numpy.sqrt(target @ target))
        first = numpy.argpartition(distances, NEAREST)[:NEAREST]
        ids = [rows[index][0] for index in first[numpy.argsort(distances[first])]]
        cursor.execute(rest, ids).fetchall()
        return ids

    return run


def _fill(url: str, rows: int, size: int) -> bytes:
    """Random vectors of one session, under ids in no order; the query."""
    random = numpy.random.default_rng(1)
    with Store.open(url) as store:
        for first in range(0, rows, _BATCH):
            batch = [
                {
                    "id": random.bytes(16).hex(),
                    "created_at": 1.0,
                    "role": "user",
                    "content": _WORDS,
                    "embedding": vector.tobytes(),
                }
                for vector in random.standard_normal((min(_BATCH, rows - first), size)).astype("<f4")
            ]
            with store.begin() as tx:
                tx.conversations.sessions.create(id=SESSION)
                tx.conversations.messages.put_many(batch, session_id=SESSION)
    return bytes(numpy.random.default_rng(2).standard_normal(size).astype("<f4").tobytes())
