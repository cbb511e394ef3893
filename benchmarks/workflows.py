"""Lists of runs: the newest twenty at a thousand rows and at many, against a hand-written query.

`python -m benchmarks.workflows --rows 1000000 [--url postgresql://…] [--folder FOLDER]` measures other sizes, on either
database; what it filled is used again. On Postgres every size has a schema of its own, and the first size is the base.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import persist
from benchmarks import run_rows
from benchmarks.measure import Row, heading, interleaved, middle, us

FEW, MANY = 1_000, 100_000
LIMIT = 20
ROUNDS = 300
MOST_SECONDS = 5.0
"""Fewer rounds where one operation would take longer than that in all of them."""
DEEP = 10_000
"""The page that is compared with the first one; half way down where there are fewer."""


@dataclass(frozen=True)
class Size:
    """One database with so many runs."""

    rows: int
    store: persist.Store
    twin: persist.Store
    """Another one on the same database, for a transaction that stays open."""
    raw: run_rows.Raw

    def listing(self, filters: Any, after: str | None = None) -> Callable[[], object]:
        """The list as a program asks for it: a transaction for one page."""

        def run() -> object:
            with self.store.read() as tx:
                return tx.workflows.runs.list(**filters, limit=LIMIT, after=after)

        return run

    def by_hand(self, filters: Any, *, values: bool) -> Callable[[], object]:
        """The rows alone, or dicts with their JSON read."""
        query, given = run_rows.page_query(self.raw, filters), tuple(filters.values())
        if values:
            return lambda: run_rows.page_by_hand(self.raw, query, given)
        return lambda: self.raw.execute(query, given).fetchall()

    def cursor(self, page: int) -> str:
        """Where that page begins; walked in pages of a thousand."""
        cursor, left = None, (page - 1) * LIMIT
        while left:
            step = min(left, 1000)
            with self.store.read() as tx:
                cursor = tx.workflows.runs.list(limit=step, after=cursor).cursor
            left -= step
        assert cursor is not None
        return cursor


def lists(folder: Path) -> Iterator[Row]:
    """On SQLite, at a thousand and a hundred thousand runs."""
    with ExitStack() as stack:
        yield from compare([_sized(stack, f"sqlite:///{folder / f'{rows}.db'}", rows) for rows in (FEW, MANY)])


def compare(sizes: list[Size]) -> Iterator[Row]:
    """Every filter at the last size against a query by hand, and against the first size; then a page far down."""
    few, many = sizes[0], sizes[-1]
    with many.twin.read() as held:
        yield from _filters(few, many, held)
    page = min(DEEP, many.rows // LIMIT // 2)
    pages = interleaved(
        {"first": many.listing({}), "second": many.listing({}, many.cursor(2)), "deep": many.listing({}, many.cursor(page))},
        rounds=ROUNDS,
        warm=20,
    )
    deep, first = middle(pages["deep"]), middle(pages["first"])
    yield Row(f"page {page:,} of {many.rows:,} runs vs page 1", deep / first, 1.2, f"{us(deep)} vs {us(first)}")
    yield Row("  … vs page 2", deep / middle(pages["second"]), 1.2, f"{us(deep)} vs {us(middle(pages['second']))}")


def _filters(few: Size, many: Size, held: persist.Transaction) -> Iterator[Row]:
    for name, filters in run_rows.FILTERS.items():

        def inside(filters: Any = filters) -> object:
            return held.workflows.runs.list(**filters, limit=LIMIT)

        assert len(held.workflows.runs.list(**filters, limit=LIMIT).items) == LIMIT
        alternatives: dict[str, Callable[[], object]] = {
            "rows": many.by_hand(filters, values=False),
            "dicts": many.by_hand(filters, values=True),
            "many": many.listing(filters),
            "few": few.listing(filters),
            "inside": inside,
        }
        slowest = max(map(middle, interleaved(alternatives, rounds=1, warm=2).values()))
        seconds = interleaved(alternatives, rounds=max(10, min(ROUNDS, int(MOST_SECONDS / slowest))), warm=10)
        times = {name: middle(taken) for name, taken in seconds.items()}
        what = f"newest {LIMIT} of {many.rows:,} runs, {name}"
        took, dicts, rows = us(times["many"]), us(times["dicts"]), us(times["rows"])
        yield Row(f"{what}, vs by hand to dicts", times["many"] / times["dicts"], 2.0, f"{took} vs {dicts}")
        yield Row("  … in a transaction that is open", times["inside"] / times["dicts"], 2.0, f"{us(times['inside'])} vs {dicts}")
        yield Row("  … vs by hand, rows alone", times["many"] / times["rows"], float("inf"), f"{took} vs {rows}")
        yield Row(f"  … vs of {few.rows:,} runs", times["many"] / times["few"], 1.5, f"{took} vs {us(times['few'])}")


def _sized(stack: ExitStack, url: str, rows: int, schema: str | None = None) -> Size:
    if schema is not None:
        persist.upgrade(url, schema=schema)
    store = stack.enter_context(persist.Store.open(url, schema=schema))
    with store.read() as tx:
        found = tx.workflows.runs.count()
    if found == 0:
        run_rows.fill(url, schema, rows)
    elif found != rows:
        raise SystemExit(f"There are {found:,} runs already, not {rows:,}.")
    raw = run_rows.connect(url, schema)
    stack.callback(raw.close)
    twin = stack.enter_context(persist.Store.open(url, schema=schema))
    return Size(rows, store, twin, raw)


def main() -> int:
    """Print the rows for the sizes asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=MANY)
    options.add_argument("--url", help="postgresql://…, a database to fill; without it SQLite files")
    options.add_argument("--folder", type=Path, help="where SQLite files are made, and found again")
    given = options.parse_args()
    print(heading())
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sizes = []
        for rows in (FEW, given.rows):
            if given.url is None:
                sizes.append(_sized(stack, f"sqlite:///{folder / f'{rows}.db'}", rows))
            else:
                sizes.append(_sized(stack, given.url, rows, f"runs_{rows}"))
        for row in compare(sizes):
            print(row.markdown(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
