"""A Postgres server is killed while writers write: it comes back on its data, or its synchronous standby takes its place."""

import time
from contextlib import ExitStack
from functools import partial

from persist.schema.migrate import upgrade
from tests.torture.integrity import intact
from tests.torture.scenario import Ground, Scenario, Tally
from tests.torture.servers import Server, promote, server, standby
from tests.torture.writers import Writers


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
            hosts = "&".join(f"host=127.0.0.1:{one.port}" for one in (primary, second))
            url = f"postgresql://postgres@/postgres?{hosts}&target_session_attrs=read-write"
            with Writers(url) as writers:
                writers.go_on(str(number), partial(_replace, primary, second, ground), tally)
            intact(second.url, tally)
        tally.rounds += 1


def _replace(primary: Server, second: Server, ground: Ground) -> None:
    time.sleep(ground.random.random() * 0.3)
    primary.kill()
    promote(second)
    time.sleep(0.1)


SCENARIOS = [
    Scenario("server killed and restarted", ("postgres",), restarted),
    Scenario("server killed, standby promoted", ("postgres",), replaced),
]
