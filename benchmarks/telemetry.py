"""Recording into full windows, trims included, against a hand-written insert; and the trims by themselves.

On Postgres either has a schema of its own.
"""

import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import persist
from benchmarks.filling import Raw, connect
from benchmarks.measure import Row, interleaved, middle, us
from benchmarks.place import Place
from persist.telemetry import trim
from persist.telemetry.windows import sizes

ROUNDS = 1_000
TRIMS = 100
INSTANCE = "box"
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)
_COLUMNS = {
    "status_log": "occurred_at, new_status",
    "usage_samples": "occurred_at, token_input, token_output, cost_usd_micros",
    "tool_history": "occurred_at, tool_key, exit_code, duration_ms",
}


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    yield from compare(place.file("ours"), place.file("by-hand"), where="")
    if place.postgres is not None:
        yield from compare(place.postgres, place.postgres, "telemetry", where="Postgres: ")


def compare(url: str, by_hand: str, schema: str | None = None, *, where: str) -> Iterator[Row]:
    """Every window, full before it begins."""
    with ExitStack() as stack:
        if schema is not None:
            for each in (schema, f"{schema}_by_hand"):
                persist.upgrade(url, schema=each)
        else:
            persist.Store.open(by_hand).close()
        store = stack.enter_context(persist.Store.open(url, schema=schema))
        raw = connect(by_hand, None if schema is None else f"{schema}_by_hand")
        ours = connect(url, schema)
        stack.callback(raw.close)
        stack.callback(ours.close)
        for table in _COLUMNS:
            keep, every = sizes(store.runtime.settings, table)
            for connection in (raw, ours):
                _fill(connection, table, keep)
            yield from _recording(store, raw, table, keep, where)
            yield _trimming(store, ours, table, keep, every, where)


def _recording(store: persist.Store, raw: Raw, table: str, keep: int, where: str) -> Iterator[Row]:
    numbers = {"ours": count(keep), "hand": count(keep), "many": count(keep + 10 * ROUNDS), "hands": count(keep + 10 * ROUNDS)}
    verb, insert = _verb(table), _insert(raw, table)

    def ours() -> None:
        with store.begin() as tx:
            verb(tx, next(numbers["ours"]))

    def hand() -> None:
        raw.execute("BEGIN IMMEDIATE" if isinstance(raw, sqlite3.Connection) else "BEGIN")
        insert(next(numbers["hand"]))
        raw.execute("COMMIT")

    times = interleaved({"ours": ours, "hand": hand}, rounds=ROUNDS, warm=50)
    ratio, took = middle(times["ours"]) / middle(times["hand"]), us(middle(times["ours"]))
    worst = statistics.quantiles(times["ours"], n=100)[-1]
    what = f"{where}{table}: a transaction that records one, vs one that inserts it by hand"
    yield Row(what, ratio, 2.0, f"{took} vs {us(middle(times['hand']))}, p99 {us(worst)}")
    total = sum(times["ours"]) / sum(times["hand"])
    yield Row("  … on average, so that every trim counts", total, 2.0, f"{us(sum(times['ours']) / ROUNDS)}")


def _trimming(store: persist.Store, raw: Raw, table: str, keep: int, every: int, where: str) -> Row:
    """Each trim finds a window that is as full as it ever gets."""
    seconds, first = [], 10 * keep
    for _ in range(TRIMS):
        _rows(raw, table, first, every)
        _vacuum(raw, table)
        first += every
        with store.begin() as tx:
            started = time.perf_counter()
            trim(tx, table, None if store.path else INSTANCE)
            seconds.append(time.perf_counter() - started)
    worst = statistics.quantiles(seconds, n=100)[-1]
    what = f"{where}{table}: p99 of a trim of {every:,} of {keep + every:,} rows"
    return Row(what, worst * 1000, 20.0, f"median {us(middle(seconds))}", unit=" ms")


def _verb(table: str) -> Callable[[Any, int], object]:
    def of(tx: Any) -> dict[str, str | None]:
        return {"instance_id": None if tx._work.runtime.dialect.one_file else INSTANCE}

    def at(number: int) -> datetime:
        return _FIRST + timedelta(seconds=number)

    if table == "status_log":
        return lambda tx, n: tx.telemetry.status.record(f"word {n % 7}", at=at(n), **of(tx))
    if table == "usage_samples":
        return lambda tx, n: tx.telemetry.usage.sample(at=at(n), token_input=n, token_output=7, cost_usd_micros=1500, **of(tx))
    return lambda tx, n: tx.telemetry.tools.record("bash", exit_code=0, duration_ms=n, at=at(n), **of(tx))


def _values(table: str, number: int) -> tuple[Any, ...]:
    second = int(_FIRST.timestamp()) + number
    return {
        "status_log": (second, f"word {number % 7}"),
        "usage_samples": (second, number, 7, 1500),
        "tool_history": (second, "bash", 0, number),
    }[table]


def _statement(raw: Raw, table: str) -> str:
    lite = isinstance(raw, sqlite3.Connection)
    marks = ", ".join(["?" if lite else "%s"] * len(_COLUMNS[table].split(", ")))
    return (
        f"INSERT INTO {table} ({_COLUMNS[table]}) VALUES ({marks})"
        if lite
        else f"INSERT INTO {table} (instance_id, {_COLUMNS[table]}) VALUES ('{INSTANCE}', {marks})"
    )


def _insert(raw: Raw, table: str) -> Callable[[int], object]:
    statement = _statement(raw, table)
    return lambda number: raw.execute(statement, _values(table, number))


def _rows(raw: Raw, table: str, first: int, many: int) -> None:
    raw.execute("BEGIN")
    raw.cursor().executemany(_statement(raw, table), [_values(table, number) for number in range(first, first + many)])
    raw.execute("COMMIT")


def _fill(raw: Raw, table: str, keep: int) -> None:
    _rows(raw, table, 0, keep)
    _vacuum(raw, table)


def _vacuum(raw: Raw, table: str) -> None:
    """As autovacuum does within a minute of what is here hours of samples."""
    if not isinstance(raw, sqlite3.Connection):
        raw.execute(f"VACUUM ANALYZE {table}")
