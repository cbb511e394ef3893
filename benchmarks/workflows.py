"""Lists of runs: the newest twenty among a thousand and among a million, with tokens and cost, against a query by hand."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import persist
from benchmarks import run_rows
from benchmarks.filling import Raw, connect
from benchmarks.goals import reached
from benchmarks.measure import Operation, Row, interleaved, middle, us
from benchmarks.place import Place

FEW, MANY, MANY_QUICKLY = 1_000, 1_000_000, 100_000
LIMIT = 20
ROUNDS = 300
DEEP = 10_000
"""The page that is compared with the first one; half way down where there are fewer."""


@dataclass(frozen=True)
class Size:
    """One database with so many runs."""

    rows: int
    store: persist.Store
    raw: Raw

    def listing(self, filters: Any, after: str | None = None, face: str = "list") -> Operation:
        """The list as a program asks for it: a transaction for one page."""

        def run() -> object:
            with self.store.read() as tx:
                return getattr(tx.workflows.runs, face)(**filters, limit=LIMIT, after=after)

        return run

    def by_hand(self, filters: Any, read: Callable[..., object] | None) -> Operation:
        """The rows alone, or what is made of them."""
        query, given = run_rows.page_query(self.raw, filters), tuple(filters.values())
        if read is not None:
            return lambda: read(self.raw, query, given)
        return lambda: self.raw.execute(query, given).fetchall()

    def in_snapshot(self, filters: Any) -> Operation:
        """The rows by hand as a store gives them: what is read next would be of the same instant."""
        begin = "BEGIN" if self.store.path else "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        rows = self.by_hand(filters, run_rows.rows_by_hand)

        def run() -> None:
            self.raw.execute(begin)
            rows()
            self.raw.execute("COMMIT")

        return run

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


def rows(place: Place) -> Iterator[Row]:
    """On both databases; fewer runs for a quick look, and then no goals."""
    many = MANY_QUICKLY if place.quick else MANY
    with ExitStack() as stack:
        sizes = [_sized(stack, place.file(f"runs-{count}"), count) for count in (FEW, many)]
        yield from compare(sizes[0], sizes[1], where="")
    if place.postgres is not None:
        with ExitStack() as stack:
            sizes = [_sized(stack, place.postgres, count, f"runs_{count}") for count in (FEW, many)]
            yield from compare(sizes[0], sizes[1], where="Postgres: ")


def compare(few: Size, many: Size, where: str) -> Iterator[Row]:
    """Every filter at the last size against a query by hand, and against the first size; then a page far down."""
    for name, filters in run_rows.FILTERS.items():
        yield from _filter(few, many, name, filters, where)
    page = min(DEEP, many.rows // LIMIT // 2)
    pages = interleaved(
        {"first": many.listing({}), "second": many.listing({}, many.cursor(2)), "deep": many.listing({}, many.cursor(page))},
        rounds=ROUNDS,
        warm=20,
    )
    deep, first, second = (middle(pages[name]) for name in ("deep", "first", "second"))
    yield Row(f"{where}page {page:,} of {many.rows:,} runs vs page 1", deep / first, 1.2, f"{us(deep)} vs {us(first)}")
    yield Row("  … vs page 2", deep / second, 1.2, f"{us(deep)} vs {us(second)}")


def _filter(few: Size, many: Size, name: str, filters: Any, where: str) -> Iterator[Row]:
    with many.store.read() as tx:
        assert len(tx.workflows.runs.list(**filters, limit=LIMIT).items) == LIMIT
    alternatives: dict[str, Operation] = {
        "bare": many.by_hand(filters, None),
        "raw rows": many.by_hand(filters, run_rows.rows_by_hand),
        "raw snapshot": many.in_snapshot(filters),
        "raw values": many.by_hand(filters, run_rows.values_by_hand),
        "many": many.listing(filters),
        "few": few.listing(filters),
        "rows": many.listing(filters, face="list_rows"),
    }
    times = {name: middle(taken) for name, taken in interleaved(alternatives, rounds=ROUNDS, warm=10).items()}

    def against(ours: str, other: str) -> tuple[float, str]:
        return times[ours] / times[other], f"{us(times[ours])} vs {us(times[other])}"

    suffix = "-postgres" if where else ""
    if not filters and many.rows == MANY:
        yield reached(f"list-growth{suffix}", *against("many", "few"))
        yield reached(f"list-values{suffix}", *against("many", "raw values"))
        ratio, detail = against("rows", "raw rows")
        bare, snapshot = (times["rows"] / times[other] for other in ("bare", "raw snapshot"))
        detail += f"; {snapshot:.2f}x of the same by hand in a snapshot, {bare:.2f}x of a bare fetch, which decodes nothing"
        yield reached(f"list-rows{suffix}", ratio, detail)
    else:
        what = f"{where}newest {LIMIT} of {many.rows:,} runs, {name}"
        ratio, detail = against("many", "few")
        yield Row(f"{what}, vs of {few.rows:,}", ratio, 1.2, detail)
        ratio, detail = against("many", "raw values")
        yield Row("  … vs by hand to frozen Pydantic values", ratio, 2.0, detail)
        ratio, detail = against("rows", "raw rows")
        yield Row("  … as rows, vs the rows of a query by hand", ratio, 1.5, detail)


def _sized(stack: ExitStack, url: str, count: int, schema: str | None = None) -> Size:
    persist.upgrade(url, schema=schema)
    run_rows.fill(url, schema, count)
    store = stack.enter_context(persist.Store.open(url, schema=schema))
    raw = connect(url, schema)
    stack.callback(raw.close)
    return Size(count, store, raw)
