"""`python -m tests.torture [NAME …]` hurts stores on both databases for a while and prints what came of it.

Exits with 1 if an acknowledged write was lost or a promise broken, or if `--all` is given and a scenario could not run.
"""

import argparse
import faulthandler
import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from persist.schema.migrate import upgrade
from tests.database_pool import Databases
from tests.databases import postgres_server
from tests.torture import branch_forks as inheriting
from tests.torture import (
    containers,
    damage,
    disks,
    dying_servers,
    forking,
    full_disks,
    host_engines,
    hostile,
    logs,
    lost_connections,
    odd_settings,
    opening,
    operations,
    queue_workers,
    recording,
    releases,
    runfiles,
    scripted,
    servers,
    shells,
    values,
)
from tests.torture import many_processes as crowd
from tests.torture.killed_processes import ready
from tests.torture.scenario import HEAD, Ground, Scenario, Tally, row, run, verdict

MODULES = (
    recording,
    scripted,
    runfiles,
    shells,
    logs,
    odd_settings,
    opening,
    operations,
    crowd,
    queue_workers,
    forking,
    containers,
    inheriting,
    lost_connections,
    dying_servers,
    servers,
    full_disks,
    disks,
    damage,
    host_engines,
    hostile,
    values,
    releases,
)
SCENARIOS: list[Scenario] = [scenario for module in MODULES for scenario in module.SCENARIOS]
SECONDS = 480
_SLACK_SECONDS = 300
"""More than its time that a run may take before it counts as hanging: last rounds, servers that start."""


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.torture", description="See docs/reliability.md.")
    options.add_argument("names", nargs="*", metavar="NAME", help=f"without any, all: {', '.join(s.name for s in SCENARIOS)}")
    options.add_argument("--seconds", type=float, default=SECONDS, help="for all of them together (%(default)s)")
    options.add_argument("--seed", type=int, help="of everything that is left to chance; without it a new one, which is printed")
    options.add_argument("--all", action="store_true", help="fail if a scenario could not run, for want of what it needs")
    given = options.parse_args()
    chosen = [scenario for scenario in SCENARIOS if not given.names or scenario.name in given.names]
    if unknown := set(given.names) - {scenario.name for scenario in chosen}:
        options.error(f"no such scenario: {', '.join(sorted(unknown))}.")
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    logging.getLogger("persist").addHandler(logging.NullHandler())  # of outages it says a lot
    faulthandler.dump_traceback_later(given.seconds + _SLACK_SECONDS, exit=True)  # nothing hangs, this run neither
    print(f"seed {seed}, {given.seconds:.0f} s\n\n{HEAD}", flush=True)
    tallies = []
    with ExitStack() as stack:
        databases = Databases(stack.enter_context(postgres_server()), upgrade)
        stack.callback(databases.close)
        ready()
        shares = sum(scenario.weight * len(scenario.databases) for scenario in chosen)
        for scenario in chosen:
            for database in scenario.databases:
                tally = _one(scenario, database, seed, given.seconds * scenario.weight / shares, databases)
                print(row(scenario.name, database, tally), flush=True)
                for problem in tally.problems:
                    print(f"{scenario.name}, {database}: {problem}", file=sys.stderr, flush=True)
                tallies.append(tally)
    print("\n" + verdict(tallies))
    return int(any(tally.lost or tally.problems or (given.all and tally.missing) for tally in tallies))


def _one(scenario: Scenario, database: str, seed: int, seconds: float, databases: Databases) -> Tally:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="persist-torture-", ignore_cleanup_errors=True)))

        def new_postgres() -> str:
            url = databases.create()
            stack.callback(databases.drop, url)
            return url

        files = (f"sqlite:///{(folder / f'{number}.db').as_posix()}" for number in count())
        new_url: Callable[[], str] = new_postgres if database == "postgres" else lambda: next(files)
        chance = random.Random(f"{seed} {scenario.name} {database}")
        return run(scenario, Ground(folder, database, chance, time.monotonic() + seconds, new_url, new_postgres))


if __name__ == "__main__":
    sys.exit(main())
