"""Connections that are lost at any message, between a store and a server that is well."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import psycopg

from persist import AsyncStore, Store
from tests.torture.outage_hosts import Fate, Host, Judge, Message, Proxy, nth, passes
from tests.torture.scenario import Ground, Scenario, Tally, intact
from tests.torture.state import DEEDS, attempt, judge

_CUTS = (Fate.CUT_BEFORE, Fate.CUT_AFTER)
_EVENTS = 30
_PATIENCE = 30.0
_END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state LIKE 'idle%'"
)


class _Counted:
    """A judge that lets all pass and counts."""

    def __init__(self) -> None:
        self.messages = 0

    def __call__(self, message: Message) -> Fate:
        self.messages += 1
        return Fate.PASS


def lost_in_deeds(ground: Ground, tally: Tally) -> None:
    """A transaction of each domain, cut at a message: all of it is there, or nothing, as the caller is told."""
    url = ground.new_url()
    with Proxy(url, ground.random) as proxy, Store.open(url) as direct, Store.open(proxy.url, sleep=lambda _: None) as store:
        lengths = {}
        for deed in DEEDS:  # the first of each prepares its statements, as a store that has run for a while has
            proxy.judge = counted = _Counted()
            deed.do(store, f"{deed.name} first")
            lengths[deed.name] = counted.messages
        for number in ground.rounds():
            deed = ground.random.choice(DEEDS)
            place, fate = ground.random.randint(1, lengths[deed.name] + 1), ground.random.choice(_CUTS)
            case = f"{deed.name} {number}, {fate.name} of message {place}"
            proxy.judge = nth(place, fate)
            error = attempt(deed, store, case, tally)
            proxy.judge = passes
            judge(deed, direct, case, error, tally)
            if (later := attempt(deed, store, f"{case}, again", tally)) is not None:
                tally.problems.append(f"{case}: the next transaction fails, too: {later!r}")
            tally.rounds += 1
        intact(url, tally)


class _NowAndThen:
    """A judge that cuts a few times, at random messages."""

    def __init__(self, chance: random.Random, cuts: int, gap: int) -> None:
        self._chance, self._cuts, self._gap = chance, cuts, gap
        self._mutex = threading.Lock()
        self._left = chance.randint(1, gap)

    def __call__(self, message: Message) -> Fate:
        with self._mutex:
            self._left -= 1
            if self._left or not self._cuts:
                return Fate.PASS
            self._cuts -= 1
            self._left = self._chance.randint(1, self._gap)
            return self._chance.choice(_CUTS)


def lost_while_recording(ground: Ground, tally: Tally) -> None:
    """Recorders of both faces, cut again and again: after each answer every piece is there once."""
    url = ground.new_url()
    with Proxy(url, ground.random) as proxy, Store.open(url) as direct, Store.open(proxy.url) as store:
        for number in ground.rounds():
            hosts = [Host(session, f"m {number} {place}", 25) for place, session in enumerate(_sessions(direct, 8))]
            judge = _NowAndThen(ground.random, cuts=5, gap=200)
            if ground.random.random() < 0.5:
                del hosts[1:]
                proxy.judge = judge
                hosts[0].record(store)
            else:
                asyncio.run(_record_all(proxy, judge, hosts))
            proxy.judge = passes
            for host in hosts:
                host.check(direct)
                host.tell(tally)
            tally.rounds += 1
        intact(url, tally)


def lost_while_watching(ground: Ground, tally: Tally) -> None:
    """A watch, and the writers that it follows, cut or ended by the server: every event is seen once, in its order."""
    url = ground.new_url()
    with (
        Store.open(url, events=True) as direct,
        Proxy(url, ground.random) as proxy,
        psycopg.connect(url, autocommit=True) as server,
    ):
        seen = 0
        for number in ground.rounds():
            with Store.open(proxy.url) as store:
                watch = store.watch("a", after=seen, timeout=_PATIENCE)
                proxy.judge = _NowAndThen(ground.random, cuts=3, gap=40)
                with ThreadPoolExecutor(1) as thread:
                    following = thread.submit(lambda watch=watch: [event.data for event in islice(watch, _EVENTS)])  # type: ignore[misc]  # a bound default
                    expected = [f"{number} {place}" for place in range(_EVENTS)]
                    for value in expected:
                        with direct.begin() as tx:
                            tx.events.append("a", "said", value)
                        if ground.random.random() < 0.1:
                            server.execute(_END_OTHERS)
                        time.sleep(ground.random.random() * 0.01)
                    found = following.result()
                proxy.judge = passes
            if found != expected:
                tally.problems.append(f"events {expected[0]} and on: seen {found}")
            seen += _EVENTS
            tally.rounds += 1
            tally.acknowledged += len(found)
        intact(url, tally)


async def _record_all(proxy: Proxy, judge: Judge, hosts: list[Host]) -> None:
    async with AsyncStore.open(proxy.url) as store:
        proxy.judge = judge
        await asyncio.gather(*[host.record_async(store) for host in hosts])
        proxy.judge = passes


def _sessions(store: Store, count: int) -> list[str]:
    with store.begin() as tx:
        return [tx.chat.sessions.create(agent="build", model={"provider_id": "p"}).id for _ in range(count)]


SCENARIOS = [
    Scenario("connections lost in transactions", ("postgres",), lost_in_deeds),
    Scenario("connections lost while recording", ("postgres",), lost_while_recording),
    Scenario("connections lost while watching", ("postgres",), lost_while_watching),
]
