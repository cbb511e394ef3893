"""Runs parts one after the other, each in a process and on databases of its own: none is measured in the wake of another."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Timer

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from benchmarks.measure import Row
from benchmarks.parts import Part
from tests.databases import durable_server

MAX_SECONDS = 300
"""A part that takes longer is stopped; what it has measured until then counts. A full run may take ten times as long."""


@dataclass
class Outcome:
    """What a part measured."""

    part: Part
    rows: list[Row] = field(default_factory=list)
    failed: str = ""
    """Why it ended early, if it did."""

    seconds: float = 0.0


Tell = Callable[[str], None]


@contextmanager
def server(tell: Tell) -> Iterator[str | None]:
    """The server of PERSIST_BENCH_POSTGRES_URL, else the wheel's, which syncs; None, and why, if neither is there."""
    if url := os.environ.get("PERSIST_BENCH_POSTGRES_URL"):
        yield url
        return
    started = durable_server()
    try:
        url = started.__enter__()
    except Exception as error:  # whatever is missing, SQLite can be measured
        tell(f"no Postgres: {type(error).__name__}: {error}")
        yield None
        return
    try:
        yield url
    finally:
        started.__exit__(None, None, None)


@contextmanager
def database(url: str | None, part: Part) -> Iterator[str | None]:
    """An empty database of that server for one part, removed afterwards."""
    if url is None or not part.postgres:
        yield None
        return
    name = sql.Identifier(f"bench_{part.name}")
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(drop)
        admin.execute(sql.SQL("CREATE DATABASE {}").format(name))
    try:
        yield make_url(url).set(database=f"bench_{part.name}").render_as_string(hide_password=False)
    finally:
        with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as admin:
            admin.execute(drop)


def run(part: Part, url: str | None, *, quick: bool, full: bool = False, tell: Tell) -> Outcome:
    """One part, to its end or until it takes too long."""
    outcome = Outcome(part)
    began = time.monotonic()
    with database(url, part) as own:
        command = [sys.executable, "-m", "benchmarks.one", part.name]
        command += [
            *(() if own is None else ("--postgres", own)),
            *(("--quick",) if quick else ()),
            *(("--full",) if full else ()),
        ]
        limit = MAX_SECONDS * 10 if full else MAX_SECONDS
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            late = Timer(limit, process.kill)
            late.start()
            assert process.stdout is not None
            for line in process.stdout:
                take(outcome, line, tell)
            code = process.wait()
            late.cancel()
    outcome.seconds = time.monotonic() - began
    if code and not outcome.failed:
        outcome.failed = f"more than {limit} seconds" if outcome.seconds >= limit else f"exit code {code}"
    return outcome


def take(outcome: Outcome, line: str, tell: Tell) -> None:
    """A line of what the process says: a row, or why there are no more."""
    said = json.loads(line)
    if "failed" in said:
        outcome.failed = said["failed"]
    else:
        outcome.rows.append(Row(**said))
        tell(f"    {outcome.rows[-1].markdown()}")


def run_all(parts: Sequence[Part], url: str | None, *, quick: bool, full: bool = False, tell: Tell) -> Iterator[Outcome]:
    """Every part in turn."""
    for number, part in enumerate(parts, 1):
        tell(f"[{number}/{len(parts)}] {part.name}")
        outcome = run(part, url, quick=quick, full=full, tell=tell)
        tell(f"    {outcome.seconds:.0f} s{f', then it failed: {outcome.failed}' if outcome.failed else ''}")
        yield outcome
