"""`python -m benchmarks before COMMIT`: the plain verbs of the working tree beside those of a commit, in one run.

Two packages, one environment: what the commit had as `persist/` and `alembic/` is unpacked beside, and processes that import the
one or the other take turns. A verb's figure is the least processor time of its processes, on each database: the client's,
whatever the server did meanwhile. Round trips are counted once.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from benchmarks.measure import amount, us
from benchmarks.running import server

ROOT = Path(__file__).parent.parent
ROUNDS = 3
MAX_SECONDS = 300
"""After which a process that measures is ended."""

Figures = Mapping[str, float]
HEAD = "| verb | before | now | now / before | round trips |\n|---|---|---|---|---|"


def compare(commit: str, rounds: int, tell: Callable[[str], None]) -> None:
    """Print a table for each database."""
    with TemporaryDirectory(prefix="persist-before-") as folder, server(tell) as url:
        before = Path(folder)
        _unpack(commit, before)
        for name, base in (("SQLite", None), ("Postgres", url)):
            if name == "Postgres" and base is None:
                continue
            figures: dict[Path, list[Figures]] = {before: [], ROOT: []}
            for number in range(rounds):
                for tree in (before, ROOT) if number % 2 == 0 else (ROOT, before):
                    tell(f"{name}: round {number + 1} of {rounds}, {'now' if tree == ROOT else 'before'}")
                    figures[tree].append(_measured(tree, base))
            trips = {tree: _measured(tree, base, "--round-trips") if base else {} for tree in figures}
            print(f"\n## {name}, before: {commit}\n\n{HEAD}")
            for line in lines(least(figures[before]), least(figures[ROOT]), trips[before], trips[ROOT]):
                print(line)
            sys.stdout.flush()


def least(figures: Sequence[Figures]) -> dict[str, float]:
    """The least figure of each verb that every process has measured."""
    return {name: min(one[name] for one in figures) for name in figures[0] if all(name in one for one in figures)}


def lines(before: Figures, now: Figures, trips_before: Figures, trips_now: Figures) -> list[str]:
    """A row of the table for each verb, in the order of the newer commit. A verb that only one of them has says so."""
    rows = []
    for name in [*now, *(name for name in before if name not in now)]:
        old, new = before.get(name), now.get(name)
        ratio = "new" if old is None else "gone" if new is None else f"{amount(new / old)}x"
        trips = [f"{one[name]:g}" for one in (trips_before, trips_now) if name in one]
        rows.append(f"| {name} | {_time(old)} | {_time(new)} | {ratio} | {' -> '.join(dict.fromkeys(trips))} |")
    return rows


def _time(seconds: float | None) -> str:
    return "" if seconds is None else us(seconds)


def _unpack(commit: str, folder: Path) -> None:
    packed = subprocess.run(["git", "archive", commit, "persist", "alembic"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def _measured(tree: Path, server_url: str | None, *options: str) -> Figures:
    """What a process says that imports this package: its figures, by the names of verbs."""
    with ExitStack() as stack:
        url = () if server_url is None else (_database(stack, server_url),)
        elsewhere = stack.enter_context(TemporaryDirectory(prefix="persist-before-"))
        path = os.pathsep.join(dict.fromkeys((str(tree), str(ROOT))))
        found = subprocess.run(
            [sys.executable, "-m", "benchmarks.plain_verbs", *url, *options],
            env={**os.environ, "PYTHONPATH": path},
            cwd=elsewhere,  # the current folder comes before PYTHONPATH
            check=True,
            stdout=subprocess.PIPE,
            timeout=MAX_SECONDS,
        )
    return json.loads(found.stdout)  # type: ignore[no-any-return]  # what plain_verbs prints


def _database(stack: ExitStack, server_url: str) -> str:
    """An empty database, dropped at the end."""
    name = sql.Identifier("bench_before")
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)

    def run(*statements: sql.Composed) -> None:
        with psycopg.connect(server_url, autocommit=True) as admin:
            for statement in statements:
                admin.execute(statement)

    run(drop, sql.SQL("CREATE DATABASE {}").format(name))
    stack.callback(run, drop)
    return make_url(server_url).set(database="bench_before").render_as_string(hide_password=False)
