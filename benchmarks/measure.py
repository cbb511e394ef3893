"""Interleaved timing: the alternatives take turns, one operation each, so that a slow moment of the machine hits all of them."""

import gc
import random
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

Operation = Callable[[], object]
AsyncOperation = Callable[[], Awaitable[object]]

MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One line of a report: what was measured, and the most it should be (infinite: nobody promised anything)."""

    name: str
    value: float
    goal: float
    detail: str
    unit: str = "x"
    key: str = ""
    """Which of the goals of the page it is, if it is one."""

    @property
    def met(self) -> bool:
        """Whether it is within its goal."""
        return self.value <= self.goal

    def markdown(self) -> str:
        """As a row of a table under HEAD."""
        if self.goal == float("inf"):
            return f"| {self.name} | {amount(self.value)}{self.unit} | | | {self.detail} |"
        mark = "met" if self.met else "**missed**"
        return f"| {self.name} | {amount(self.value)}{self.unit} | {self.goal:g}{self.unit} | {mark} | {self.detail} |"


HEAD = "| what | measured | at most | | |\n|---|---|---|---|---|"


def amount(value: float) -> str:
    """With two decimals where they say something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def in_turn(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Every name once a round, in an order drawn anew for each round, the same in every run."""
    order, shuffle = list(names), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        yield from order


@contextmanager
def without_collections() -> Iterator[None]:
    """Collections of garbage would hit whoever happens to run."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def interleaved(alternatives: Mapping[str, Operation], *, rounds: int, warm: int = 5) -> dict[str, list[float]]:
    """Seconds of every operation, after `warm` rounds that do not count. An operation may return its own time."""
    seconds: dict[str, list[float]] = {name: [] for name in alternatives}
    with without_collections():
        for name in in_turn(list(alternatives), warm + rounds):
            started = time.perf_counter()
            own = alternatives[name]()
            elapsed = time.perf_counter() - started
            seconds[name].append(own if isinstance(own, float) else elapsed)
    return {name: values[warm:] for name, values in seconds.items()}


async def interleaved_async(alternatives: Mapping[str, AsyncOperation], *, rounds: int, warm: int = 2) -> dict[str, list[float]]:
    """The same on an event loop."""
    seconds: dict[str, list[float]] = {name: [] for name in alternatives}
    with without_collections():
        for name in in_turn(list(alternatives), warm + rounds):
            started = time.perf_counter()
            own = await alternatives[name]()
            elapsed = time.perf_counter() - started
            seconds[name].append(own if isinstance(own, float) else elapsed)
    return {name: values[warm:] for name, values in seconds.items()}


def middle(seconds: Sequence[float]) -> float:
    """The median."""
    return statistics.median(seconds)


def us(seconds: float) -> str:
    """Microseconds, readable."""
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:,.1f} ms"


def most_memory(run: Operation) -> float:
    """MiB of Python objects that lived at once while it ran, above those that were there before."""
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()
