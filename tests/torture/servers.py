"""Postgres servers that may die: of the wheel's programs, durable, thrown away; and poolers before them."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo

from persist.schema.migrate import upgrade
from tests.databases import Programs, wait_until_ready
from tests.torture.scenario import Ground, Missing, Scenario, Tally, intact
from tests.torture.writers import Writers

_GONE_SECONDS = 30


class Server:
    """One server on one folder of data, on a loopback port or, without one, on its private socket alone."""

    def __init__(self, programs: Programs, data: Path, *, port: int | None = None, settings: tuple[str, ...] = ()) -> None:
        self.programs, self.data, self.port = programs, data, port
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of its maintenance database."""
        return self.programs.url if self.port is None else f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self, *, wait: bool = True) -> None:
        """On the data as they are: after `kill` it recovers from its log."""
        address = ("-c", "listen_addresses=") if self.port is None else ("-c", "listen_addresses=127.0.0.1", "-p", str(self.port))
        options = [word for setting in self.settings for word in ("-c", setting)]
        self._process = self.programs.serve(self.data, *address, *options)
        if wait:
            wait_until_ready(self.url, self.programs.log)

    def kill(self) -> None:
        """kill -9, of the postmaster and of all its children; returns when all are gone."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        with suppress(ProcessLookupError):
            os.kill(postmaster, signal.SIGSTOP)  # it starts no more children
        family = [*_children(postmaster), postmaster]
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _GONE_SECONDS
        while _any_runs(family):
            if time.monotonic() > deadline:
                raise TimeoutError("a killed server does not end")
            time.sleep(0.01)
        self.stop()

    def stop(self) -> None:
        """End it, if it still runs."""
        process, self._process = self._process, None
        if process is not None:
            self.programs.stop(process)

    def run(self, statement: str) -> list[tuple[object, ...]]:
        """One statement on the maintenance database, committed by itself -> its rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def server(*, tcp: bool = False, settings: tuple[str, ...] = ()) -> Iterator[Server]:
    """A new one that runs."""
    programs = Programs()
    try:
        made = Server(programs, programs.new_cluster("data"), port=free_port() if tcp else None, settings=settings)
        try:
            made.start()
            yield made
        finally:
            made.stop()
    finally:
        programs.remove()


@contextmanager
def standby(primary: Server, *, port: int | None = None, name: str = "standby") -> Iterator[Server]:
    """A synchronous one of a running primary, in a folder of that name: each of the primary's commits waits for it."""
    data = primary.data.with_name(name)
    made = Server(primary.programs, data, port=port or free_port(), settings=("cluster_name=standby",))
    source = conninfo.make_conninfo(primary.url, application_name="standby")
    primary.programs.run("pg_basebackup", "-d", source, "-D", str(data), "-R", "--no-sync", "-c", "fast", "-X", "stream")
    try:
        made.start()
        # Not as an option of the primary's start, which a restart could lose without a word.
        primary.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        primary.run("SELECT pg_reload_conf()")
        deadline = time.monotonic() + _GONE_SECONDS
        query = "SELECT sync_state FROM pg_stat_replication WHERE application_name = 'standby'"
        while primary.run(query) != [("sync",)]:
            if time.monotonic() > deadline:
                raise TimeoutError("the standby is not synchronous")
            time.sleep(0.01)
        yield made
    finally:
        made.stop()


def promote(server: Server) -> None:
    """Make a primary of a standby; it waits for nobody."""
    server.run("SELECT pg_promote(true)")
    server.run("ALTER SYSTEM RESET synchronous_standby_names")
    server.run("SELECT pg_reload_conf()")


def free_port() -> int:
    """A port of the loopback interface that nobody has at this moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _children(parent: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [pid for pid, its in (map(int, line.split()) for line in listed.splitlines()) if its == parent]


def _any_runs(pids: list[int]) -> bool:
    command = ["ps", "-o", "stat=", "-p", ",".join(map(str, pids))]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return any(not state.startswith("Z") for state in listed.split())


# ----------------------------------------------------------------
# PgBouncer in transaction mode between the stores and the server, with few connections for many.


_CONFIGURATION = """\
[databases]
* = host={folder} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
server_idle_timeout = 1
"""


@contextmanager
def pgbouncer(of: Server) -> Iterator[str]:
    """The URL of the server's maintenance database through a pool of three connections."""
    program = shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin")))
    if program is None:
        raise Missing("pgbouncer")
    port, file = free_port(), of.programs.home / "pgbouncer.ini"
    file.write_text(_CONFIGURATION.format(folder=of.programs.home, port=port))
    file.chmod(0o644)
    process = of.programs.keep_running(program, "--quiet", str(file))
    try:
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        wait_until_ready(url, of.programs.log)
        yield url
    finally:
        of.programs.stop(process)


def pooled(ground: Ground, tally: Tally) -> None:
    """Writers of every domain, told of the pooler and not, with the log of events and without: nothing rests on a session."""
    ways: list[dict[str, Any]] = [
        {"pooler": "transaction", "events": False},
        {"events": True},
        {"pooler": "transaction"},
        {"events": False},
    ]
    with server() as behind, pgbouncer(behind) as url:
        upgrade(url)
        for number in ground.rounds():
            with Writers(url, **ways[number % len(ways)]) as writers:
                writers.go_on(str(number), lambda: time.sleep(0.3), tally)
            tally.rounds += 1
        tally.problems += [f"{count} {kind}" for kind, count in tally.errors.items()]
        intact(url, tally)


SCENARIOS = [Scenario("behind a pooler", ("postgres",), pooled)]
