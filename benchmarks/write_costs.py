"""What writes cost beside their rows on Postgres: `python -m benchmarks.write_costs [URL] [--runs 5000] [--answers 500]`.

Runs of workflows are queued, claimed, changed and completed; answers of chats are recorded, a chunk in 100 ms. Printed are the
bytes of the rows and of their indexes, and how many updates were HOT: written beside the old version, with no entry in any index.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg

import persist
from persist import Store
from persist.testing import FrozenClock
from tests.databases import durable_server

_SIZES = """
    SELECT relname, pg_relation_size(relid), pg_indexes_size(relid), n_tup_upd, n_tup_hot_upd
    FROM pg_stat_user_tables
    WHERE schemaname = 'persist' AND relname IN ('workflow_runs', 'chat_sessions') ORDER BY relname DESC"""


def work(store: Store, clock: FrozenClock, count: int) -> None:
    """Runs that a worker does: five changes of what it knows, two renewals and three changes of status each."""
    done = 0
    while done < count:
        with store.begin() as tx:
            for number in range(done, done + 100):
                tx.workflows.runs.create(
                    f"workflow-{number % 7}", trigger_id=f"issue/{number}", current_phase="plan", status="queued"
                )
        for lease in store.workflows.runs.claim("worker", lease=timedelta(days=1), limit=100):
            for step in range(5):
                store.workflows.runs.merge_scratch(lease.run_id, {f"step-{step}": "x" * 20}, lease=lease)
                if step % 2:
                    clock.advance(seconds=1)
                    store.workflows.runs.renew(lease, lease_for=timedelta(days=1))
            store.workflows.runs.complete(lease)
        done += 100


def record(store: Store, clock: FrozenClock, count: int) -> None:
    """Answers of ten texts each, in sessions of their own."""
    for number in range(count):
        title = {"title": f"Question {number}"}
        session = store.chat.sessions.create(agent="build", model={}, owner=f"user-{number % 50}", metadata=title)
        with store.record(session.id) as recorder:
            recorder.feed({"type": "start"})
            for part in range(10):
                for chunk in ({"type": "text-start"}, {"type": "text-delta", "delta": "words " * 5}, {"type": "text-end"}):
                    clock.advance(seconds=0.1)
                    recorder.feed({**chunk, "id": f"{part}"})
            recorder.feed({"type": "finish"})


@contextmanager
def server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with durable_server() as started:
        yield started


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("url", nargs="?", help="an empty database; without one a server is started")
    options.add_argument("--runs", type=int, default=5000)
    options.add_argument("--answers", type=int, default=500)
    given = options.parse_args()
    with server(given.url) as url:
        persist.upgrade(url)
        clock = FrozenClock()
        with Store.open(url, clock=clock) as store:
            work(store, clock, given.runs)
            record(store, clock, given.answers)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_stat_force_next_flush()")
            for table, rows, indexes, updates, hot in connection.execute(_SIZES):
                print(
                    f"{table}: rows {rows / 1e6:.1f} MB, indexes {indexes / 1e6:.1f} MB ({indexes / rows:.1f} times),"
                    f" {updates:,} updates, {hot / max(1, updates):.0%} HOT"
                )


if __name__ == "__main__":
    main()
