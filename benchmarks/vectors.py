"""Search by embedding: the ten nearest of 20,000 vectors of 384 numbers, against the rows read by hand and one numpy product.

`python -m benchmarks.vectors [--url postgresql://…] [--rows 20000] [--size 384]` measures either database alone; on Postgres
in a schema of its own, which it fills once.
"""

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy
import psycopg

import persist
from benchmarks.floors import connect
from benchmarks.measure import Row, heading, interleaved, middle, us
from persist import Store

ROWS, SIZE, NEAREST = 20_000, 384, 10
ROUNDS = 15
GOAL_MS = 200.0
SCHEMA = "vectors"
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


def search(folder: Path) -> Iterator[Row]:
    """On SQLite."""
    yield from compare(f"sqlite:///{folder / 'vectors.db'}", ROWS, SIZE)


def compare(url: str, rows: int, size: int) -> Iterator[Row]:
    """Every way that there is here, then the filter that names every message, then the other metric."""
    with ExitStack() as stack:
        query = _fill(url, rows, size)
        stores = {way: stack.enter_context(_open(url)) for way in ("sqlite-vec", "numpy", "python")}
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
    what = f"{NEAREST} nearest of {rows:,} x {size} on {url.partition(':')[0]}"
    for way, seconds in times.items():
        name = f"{what}, {way if way in stores else f'numpy, {way}'}"
        yield Row(name, seconds * 1e3, GOAL_MS if way == "numpy" else float("inf"), f"{us(floor)} by hand", unit=" ms")
        yield Row("  … vs by hand with numpy", seconds / floor, float("inf"), f"{us(seconds)} vs {us(floor)}")


def _open(url: str) -> Store:
    return Store.open(url, schema=None if url.startswith("sqlite") else SCHEMA)


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
        raw = psycopg.connect(url, autocommit=True, options=f"-c search_path={SCHEMA}")
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
    if not url.startswith("sqlite"):
        persist.upgrade(url, schema=SCHEMA)
    with _open(url) as store:
        with store.read() as tx:
            there = tx.conversations.sessions.counts()
        for first in range(0, 0 if there else rows, _BATCH):
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


def main() -> int:
    """Print the rows of the database asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--url", help="postgresql://…, a database to fill; without it a SQLite file")
    options.add_argument("--rows", type=int, default=ROWS)
    options.add_argument("--size", type=int, default=SIZE)
    given = options.parse_args()
    print(heading())
    print(f"| numpy {numpy.__version__} | | | extensions load here: {hasattr(sqlite3.Connection, 'enable_load_extension')} |")
    with tempfile.TemporaryDirectory() as folder:
        for row in compare(given.url or f"sqlite:///{folder}/vectors.db", given.rows, given.size):
            print(row.markdown(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
