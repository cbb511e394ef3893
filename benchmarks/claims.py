"""Claims of queued runs by many workers on one Postgres, most of whose runs have finished.

Every worker is a process. Each claims one run after the other, in a transaction by itself, from two databases in turn: one with
a thousand finished runs, one with a million. What a claim costs is the time until the last worker has its share, divided by the
claims. In the end each queued run must have been claimed exactly once.
"""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from multiprocessing.connection import Connection

import persist
from benchmarks import filling, run_rows
from benchmarks.goals import reached
from benchmarks.measure import Row, in_turn, middle, us
from benchmarks.place import Place
from persist import Store

FEW, MANY, MANY_QUICKLY = 1_000, 1_000_000, 20_000
"""Finished runs."""

WORKERS = 32
RISING = (1, 2, 4, 8, 16)
QUEUED, ROUNDS = 10_000, 5
EACH, FEWER = QUEUED // ROUNDS, 400
"""Runs that all workers claim in one round, where finished runs grow and where workers do."""

_FINISHED = ("succeeded", "failed", "succeeded", "cancelled")
_QUEUE = """
INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, status, started_at, updated_at, phase_history)
SELECT '{prefix}_' || lpad(n::text, 26, '0'), 'build', 'issue/' || n, 'plan', 'queued', now() + n * interval '1 millisecond',
       now(), '[]'::jsonb FROM generate_series(1, {count}) AS n
"""


class Workers:
    """So many processes, forked from one that has loaded the package; they end with the block."""

    def __init__(self, stack: ExitStack, url: str, schemas: Sequence[str], count: int) -> None:
        start = multiprocessing.get_context("forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn")
        start.set_forkserver_preload([__name__, "psycopg", "persist.workflows.repository"])
        self._ends: list[Connection] = []
        for _ in range(count):
            mine, others = start.Pipe()
            process = start.Process(target=work, args=(others, url, tuple(schemas)), daemon=True)
            process.start()
            others.close()
            stack.callback(process.join)
            stack.callback(mine.close)
            self._ends.append(mine)
        for end in self._ends:
            end.recv()

    def claim(self, schema: str, workers: int, runs: int) -> tuple[float, list[str]]:
        """The seconds in which so many workers claim so many runs together, and what they have claimed."""
        ends = self._ends[:workers]
        began = time.perf_counter()
        for number, end in enumerate(ends):
            end.send((schema, runs // workers + (number < runs % workers)))
        claimed = [id for end in ends for id in end.recv()]
        return time.perf_counter() - began, claimed


def rows(place: Place) -> Iterator[Row]:
    """On Postgres; fewer finished runs for a quick look, and then no goals."""
    if place.postgres is None:
        return
    many = MANY_QUICKLY if place.quick else MANY
    schemas = {f"claims_{count}": count for count in (FEW, many)}
    for schema, count in schemas.items():
        persist.upgrade(place.postgres, schema=schema)
        filled = run_rows.runs(count, lite=False, statuses=_FINISHED)
        filling.fill(place.postgres, schema, ("workflow_runs",), (filled,))
        _queue(place.postgres, schema, "run_a", QUEUED)
    with ExitStack() as stack:
        workers = Workers(stack, place.postgres, list(schemas), WORKERS)
        yield _grown(workers, schemas)
        _queue(place.postgres, f"claims_{many}", "run_b", (1 + ROUNDS) * len(RISING) * FEWER)
        yield from _rising(workers, f"claims_{many}")


def _grown(workers: Workers, schemas: Mapping[str, int]) -> Row:
    """The same claims in both databases, in turn; nothing is left in either."""
    taken: dict[str, list[float]] = {schema: [] for schema in schemas}
    claimed: dict[str, list[str]] = {schema: [] for schema in schemas}
    for schema in in_turn(list(schemas), ROUNDS):
        seconds, ids = workers.claim(schema, WORKERS, EACH)
        taken[schema].append(seconds / EACH)
        claimed[schema] += ids
    for schema, ids in claimed.items():
        if Counter(ids) != Counter(f"run_a_{number:026}" for number in range(1, QUEUED + 1)):
            raise AssertionError(f"of {QUEUED} runs {len(set(ids))} were claimed, in {len(ids)} claims")
        if workers.claim(schema, WORKERS, WORKERS)[1]:
            raise AssertionError("a run was left")
    (few, fewer), (many, more) = ((middle(taken[schema]), count) for schema, count in schemas.items())
    detail = f"{1 / many:,.0f} vs {1 / few:,.0f} claims/s; each of {QUEUED:,} runs was claimed once"
    if more == MANY:
        return reached("claims-growth", many / few, detail)
    return Row(f"a claim of {WORKERS} workers among {more:,} finished runs vs among {fewer:,}", many / few, 1.2, detail)


def _rising(workers: Workers, schema: str) -> Iterator[Row]:
    """More workers together, in turn; the first round does not count."""
    taken: dict[str, list[float]] = {str(count): [] for count in RISING}
    for count in in_turn(list(taken), 1 + ROUNDS):
        taken[count].append(workers.claim(schema, int(count), FEWER)[0] / FEWER)
    each = {count: middle(seconds[1:]) for count, seconds in taken.items()}
    rates = ", ".join(f"{1 / seconds:,.0f} with {count}" for count, seconds in each.items())
    yield reached("claims-workers", each["16"] / each["1"], f"claims/s: {rates}; {us(each['16'])} vs {us(each['1'])}")


def _queue(url: str, schema: str, prefix: str, count: int) -> None:
    with closing(filling.connect(url, schema)) as raw:
        raw.execute(_QUEUE.format(prefix=prefix, count=count))
        raw.execute("VACUUM ANALYZE workflow_runs")


def work(orders: Connection, url: str, schemas: Sequence[str]) -> None:
    """One of the processes: an order is a schema and how many runs to claim; the answer is the claimed ones."""
    with ExitStack() as stack, suppress(EOFError):
        stores = {schema: stack.enter_context(Store.open(url, schema=schema)) for schema in schemas}
        orders.send(None)
        while True:
            schema, count = orders.recv()
            claim = stores[schema].workflows.runs.claim
            leases = [claim("worker", lease=timedelta(hours=1)) for _ in range(count)]
            orders.send([lease.run_id for lease in leases if lease is not None])
