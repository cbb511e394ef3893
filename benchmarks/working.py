"""A worker's claim and end of an empty run: against the same statements by hand, and under limits against none.

By hand the two statements are a transaction each, on the same tables with the same indexes. Limits are those of 20 keys, all of
which have room.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg

import persist
from benchmarks.floors import connect
from benchmarks.measure import Row, interleaved, middle, us
from benchmarks.place import Place
from persist import Store

RUNS, KEYS, HOUR = 400, 20, timedelta(hours=1)
NAMES = ("working", "by_hand", "limited")
_NEXT = """SELECT id FROM {runs} WHERE status || '' = 'queued' AND not_before IS NULL
    ORDER BY priority DESC, coalesce(queued_at, started_at), id LIMIT 1 {lock}"""
_CLAIM = """UPDATE {runs} SET status = 'running', lease_owner = 'hand', lease_expires_at = {until},
    lease_token = lease_token + 1, updated_at = {now} WHERE id = ({next}) RETURNING *"""
_END = """UPDATE {runs} SET status = 'succeeded', lease_owner = NULL, lease_expires_at = NULL, finished_at = {now},
    updated_at = {now} WHERE id = {id} AND lease_owner = 'hand' RETURNING *"""


def rows(place: Place) -> Iterator[Row]:
    """On both databases."""
    with ExitStack() as stack:
        stores = [stack.enter_context(Store.open(place.file(name))) for name in NAMES]
        raw = stack.enter_context(closing(connect(place.folder / "by_hand.db")))
        yield from _compare(stores, _in_file(raw), "")
    if place.postgres is None:
        return
    with ExitStack() as stack:
        for name in NAMES:
            persist.upgrade(place.postgres, schema=name)
        stores = [stack.enter_context(Store.open(place.postgres, schema=name)) for name in NAMES]
        connection = stack.enter_context(psycopg.connect(place.postgres, autocommit=True))
        yield from _compare(stores, _in_postgres(connection), "Postgres: ")


def _compare(stores: Sequence[Store], by_hand: Callable[[], None], where: str) -> Iterator[Row]:
    plain, _, limited = stores
    with limited.begin() as tx:
        for number in range(KEYS):
            tx.workflows.limits.set(f"k{number}", concurrency=10**6)
    for store in stores:
        _queue(store)
    alternatives: dict[str, Callable[[], None]] = {
        "ours": partial(_work, plain),
        "by hand": by_hand,
        "limited": partial(_work, limited),
    }
    taken = {name: middle(found) for name, found in interleaved(alternatives, rounds=RUNS - 20).items()}
    for name, other, what in (("ours", "by hand", "vs by hand"), ("limited", "ours", "under limits, vs without")):
        detail = f"{us(taken[name])} vs {us(taken[other])}"
        yield Row(f"{where}claim and end of an empty run, {what}", taken[name] / taken[other], 1.3, detail)


def _queue(store: Store) -> None:
    with store.begin() as tx:
        for number in range(RUNS):
            about: dict[str, Any] = {"trigger_id": f"t{number}", "current_phase": "new", "status": "queued"}
            tx.workflows.runs.create("work", **about, concurrency_key=f"k{number % KEYS}")


def _work(store: Store) -> None:
    lease = store.workflows.runs.claim("worker", lease=HOUR)
    assert lease is not None
    store.workflows.runs.complete(lease)


def _in_file(raw: sqlite3.Connection) -> Callable[[], None]:
    now = "strftime('%Y-%m-%dT%H:%M:%fZ')"
    words = {"runs": "workflow_runs", "now": now, "until": "strftime('%Y-%m-%dT%H:%M:%fZ', '+1 hour')", "id": "?"}
    claim, end = _CLAIM.format(next=_NEXT.format(runs="workflow_runs", lock=""), **words), _END.format(**words)
    columns = [name for _, name, *_ in raw.execute("PRAGMA table_info(workflow_runs)")]

    def work() -> None:
        ((run,),) = [_read(columns, raw.execute(claim).fetchall())]
        assert len(_read(columns, raw.execute(end, (run["id"],)).fetchall())) == 1

    return work


def _in_postgres(raw: psycopg.Connection[Any]) -> Callable[[], None]:
    words = {"runs": "by_hand.workflow_runs", "now": "now()", "until": "now() + interval '1 hour'", "id": "%s"}
    claim = _CLAIM.format(next=_NEXT.format(runs="by_hand.workflow_runs", lock="FOR UPDATE SKIP LOCKED"), **words)
    end = _END.format(**words)

    def work() -> None:
        claimed = raw.execute(claim, prepare=True)
        names = [column.name for column in claimed.description or ()]
        (run,) = (dict(zip(names, row, strict=True)) for row in claimed.fetchall())
        assert len(raw.execute(end, (run["id"],), prepare=True).fetchall()) == 1

    return work


def _read(columns: list[str], found: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The rows with their JSON read, as every caller needs them."""
    read = [dict(zip(columns, row, strict=True)) for row in found]
    for row in read:
        row["phase_history"] = json.loads(row["phase_history"])
    return read
