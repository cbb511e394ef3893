"""Kill, look, go on: a script of transactions is carried out by processes that are killed, until it is done.

The same script, carried out by nobody who is killed, says what there has to be after each of its steps. What is found after a
kill must be that, for all steps that were acknowledged or for one more: anything else is a loss, or a step half applied.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection

from persist import Store
from persist.events import rebuild
from persist.settings import Settings
from persist.store.transaction import Transaction
from tests.torture.killed_processes import doomed, marked, sudden, wait_until_gone
from tests.torture.scenario import Ground, Tally, intact, whole
from tests.torture.state import State, differing, state

Step = Callable[[Transaction], object]
"""One transaction. It keeps nothing, since the next one is another process's, and takes the time from the transaction alone."""

BEGINS = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass(frozen=True)
class Script:
    """Steps, made by a function of a module since they go to other processes, and the settings under which they are done."""

    name: str
    make: Callable[[], Sequence[Step]]
    settings: Mapping[str, int] = field(default_factory=dict)

    def open(self, url: str, number: int = 0, *, events: bool | None = None) -> tuple[Store, "Ticks"]:
        """A store whose time is that of the step."""
        ticks = Ticks(number)
        return Store.open(url, settings=Settings(**self.settings), clock=ticks, events=events), ticks


class Ticks:
    """A clock that shows the number of the step, a second each."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self) -> datetime:
        return BEGINS + timedelta(seconds=self.number)


def carry_out(script: Script, url: str, number: int, done: Callable[[int], object]) -> None:
    """From that step on; `done` is told of each."""
    store, ticks = script.open(url, number)
    with store:
        for at, step in enumerate(script.make()):
            if at >= number:
                ticks.number = at
                with store.begin() as tx:
                    step(tx)
                done(at)


def play(acknowledge: Connection, url: str, script: Script, number: int) -> None:
    """The same in a process of its own."""
    carry_out(script, url, number, acknowledge.send)


_known: dict[str, list[State]] = {}


def expected(script: Script) -> list[State]:
    """What there is before the first step and after each."""
    if script.name not in _known:
        store, ticks = script.open("sqlite:///:memory:")
        with store:
            states = [state(store)]
            for ticks.number, step in enumerate(script.make()):
                with store.begin() as tx:
                    step(tx)
                states.append(state(store))
        _known[script.name] = states
    return _known[script.name]


def killed_scripts(ground: Ground, tally: Tally, scripts: Sequence[Script]) -> None:
    """A new database each round, and one of the scripts on it, with the log of events or without."""
    for _ in ground.rounds():
        script = ground.random.choice(scripts)
        url, logs = ground.new_url(), ground.random.random() < 0.4
        if logs:
            script.open(url, events=True)[0].close()
        number: int | None = 0
        steps = len(expected(script)) - 1
        while number is not None and number < steps:
            tally.rounds += 1
            if time.monotonic() > ground.ends:
                carry_out(script, url, number, lambda _: None)  # the rest in peace
                done = steps - number
            else:
                done = _struck(ground, url, script, number, steps)
                tally.acknowledged += done
            number = look(url, script, number + done, tally)
            whole(url, tally)
        intact(url, tally)
        if logs:
            rebuilds(url, tally)


def _struck(ground: Ground, url: str, script: Script, number: int, steps: int) -> int:
    """How many steps were acknowledged."""
    maximum = min(8, steps - number)
    if ground.random.random() < 0.3:
        return len(sudden(play, ground.random, marked(url), script, number, first=maximum, seconds=0.003))
    return len(doomed(play, ground.random, marked(url), script, number, first=maximum).acknowledged)


def look(url: str, script: Script, acknowledged: int, tally: Tally) -> int | None:
    """How many steps are there, None when that cannot be said; notes what is not as it must be."""
    states = expected(script)
    wait_until_gone(url)
    with script.open(url, acknowledged)[0] as store:
        found = state(store)
    for number in (acknowledged, acknowledged + 1):
        if number < len(states) and found == states[number]:
            return number
    if found in states[:acknowledged]:
        tally.lost += acknowledged - states.index(found)
    else:
        tally.problems.append(
            f"{script.name}, killed after step {acknowledged}: half applied in {url}\n{differing(found, states[acknowledged])}"
        )
    return None


def rebuilds(url: str, tally: Tally) -> None:
    """Each change has its event and each event its change: what the log says is what there is."""
    with Store.open(url) as store, Store.open("sqlite:///:memory:") as target:
        rebuild(store, target)
        if state(target) != state(store):
            tally.problems.append(f"the log of {url} tells otherwise\n{differing(state(target), state(store))}")
