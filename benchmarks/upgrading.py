"""How long writers wait during an upgrade: `python -m benchmarks.upgrading [URL] [--runs 1000000] [--since 0016]`.

A database of an older revision, with so many workflow runs, is upgraded while four connections change single runs, one after the
other. Printed are how long the upgrade took, how many changes were made meanwhile, and the longest that one of them took.
With `--one-transaction` the upgrade is done in a transaction of the caller's, as releases before 0026 did it.
"""

import argparse
import random
import threading
import time

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

import persist
from benchmarks import run_rows
from benchmarks.write_costs import server
from persist.schema.migrate import config

_WRITERS = 4


def fill(url: str, revision: str, count: int) -> None:
    """So many runs in a database of the revision."""
    made: Config = config()
    made.attributes.update(url=url, schema="persist")
    command.upgrade(made, revision)
    with psycopg.connect(url, options="-c search_path=persist") as connection:
        connection.execute(run_rows.runs(count, lite=False).encode())


class Writer(threading.Thread):
    """Changes one run after another until it is told to stop; knows how many, and how long the slowest change took."""

    def __init__(self, url: str, ids: list[str], stop: threading.Event) -> None:
        super().__init__()
        self._url, self._ids, self._stopped = url, ids, stop
        self.done, self.longest = 0, 0.0

    def run(self) -> None:
        with psycopg.connect(self._url, autocommit=True, options="-c search_path=persist") as connection:
            while not self._stopped.is_set():
                begun = time.perf_counter()
                connection.execute(
                    "UPDATE workflow_runs SET current_phase = 'apply', updated_at = now() WHERE id = %s",
                    (random.choice(self._ids),),
                )
                self.longest = max(self.longest, time.perf_counter() - begun)
                self.done += 1


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("url", nargs="?", help="an empty database; without one a server is started")
    options.add_argument("--runs", type=int, default=1_000_000)
    options.add_argument("--since", default="0016")
    options.add_argument("--one-transaction", action="store_true")
    given = options.parse_args()
    with server(given.url) as url:
        fill(url, given.since, given.runs)
        with psycopg.connect(url) as connection:
            ids = [row[0] for row in connection.execute("SELECT id FROM persist.workflow_runs LIMIT 10000")]
        stop = threading.Event()
        writers = [Writer(url, ids, stop) for _ in range(_WRITERS)]
        for writer in writers:
            writer.start()
        time.sleep(2)
        before = max(writer.longest for writer in writers)
        for writer in writers:
            writer.longest, writer.done = 0.0, 0
        begun = time.perf_counter()
        if given.one_transaction:
            engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
            with engine.begin() as joined:
                persist.upgrade(joined)
            engine.dispose()
        else:
            persist.upgrade(url)
        took = time.perf_counter() - begun
        stop.set()
        for writer in writers:
            writer.join()
        print(
            f"{given.runs:,} runs, {given.since} to {persist.current(url)}: {took:.1f} s,"
            f" {sum(one.done for one in writers):,} changes meanwhile,"
            f" the longest took {max(one.longest for one in writers) * 1000:.0f} ms ({before * 1000:.0f} ms before)"
        )


if __name__ == "__main__":
    main()
