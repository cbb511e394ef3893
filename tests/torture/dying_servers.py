"""A Postgres server is killed while others write: it comes back on its data, or its synchronous standby takes its place."""

import shutil
import time
from contextlib import ExitStack
from functools import partial

from persist.schema.migrate import upgrade
from tests.torture.scenario import Ground, Scenario, Tally, intact
from tests.torture.servers import Server, promote, server, standby
from tests.torture.writers import WorkersBeside, Writers


def restarted(ground: Ground, tally: Tally) -> None:
    """Killed and started again, over and over: what was acknowledged is there, and the same stores go on."""
    with server() as primary:
        upgrade(primary.url)
        with Writers(primary.url) as writers:

            def die() -> None:
                time.sleep(ground.random.random() * 0.3)
                primary.kill()
                time.sleep(ground.random.random() * 0.2)
                primary.start()
                time.sleep(0.1)

            for number in ground.rounds():
                writers.go_on(str(number), die, tally)
                tally.rounds += 1
        intact(primary.url, tally)


def replaced(ground: Ground, tally: Tally) -> None:
    """Killed for good: its synchronous standby is promoted, and the same stores find it by the URL that names both."""
    for number in ground.rounds():
        with ExitStack() as stack:
            primary = stack.enter_context(server(tcp=True))
            upgrade(primary.url)
            second = stack.enter_context(standby(primary))
            with Writers(_url_of(primary, second)) as writers:
                writers.go_on(str(number), partial(_replace, primary, second, ground), tally)
            intact(second.url, tally)
        tally.rounds += 1


def workers_replaced(ground: Ground, tally: Tally) -> None:
    """Killed for good, over and over: the same workers go on under each new primary, which gets a new standby."""
    with ExitStack() as stack:
        primary = stack.enter_context(server(tcp=True))
        upgrade(primary.url)
        second = stack.enter_context(standby(primary))
        with WorkersBeside(_url_of(primary, second)) as workers:
            for number in ground.rounds():
                workers.go_on(partial(_replace, primary, second, ground), tally)
                shutil.rmtree(primary.data)
                third = stack.enter_context(standby(second, port=primary.port, name=f"standby {number}"))
                primary, second = second, third
                tally.rounds += 1
        intact(primary.url, tally)


def _url_of(*servers: Server) -> str:
    """Of the one among them that takes writes."""
    hosts = "&".join(f"host=127.0.0.1:{one.port}" for one in servers)
    return f"postgresql://postgres@/postgres?{hosts}&target_session_attrs=read-write"


def _replace(primary: Server, second: Server, ground: Ground) -> None:
    time.sleep(ground.random.random() * 0.3)
    primary.kill()
    promote(second)
    time.sleep(0.1)


SCENARIOS = [
    Scenario("server killed and restarted", ("postgres",), restarted),
    Scenario("server killed, standby promoted", ("postgres",), replaced),
    Scenario("workers under a promoted standby", ("postgres",), workers_replaced),
]
