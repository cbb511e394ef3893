"""PgBouncer in transaction mode between the stores and the server, with few connections for many."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from persist.schema.migrate import upgrade
from tests.databases import wait_until_ready
from tests.torture.integrity import intact
from tests.torture.scenario import Ground, Missing, Scenario, Tally
from tests.torture.servers import Server, free_port, server
from tests.torture.writers import Writers

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
