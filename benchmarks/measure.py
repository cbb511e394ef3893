"""Interleaved timing: the alternatives take turns, one operation each, so that a slow moment of the machine hits all of them."""

import gc
import platform
import random
import sqlite3
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import sqlalchemy

Operation = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One line of the report: a measured ratio, and the most it should be."""

    name: str
    ratio: float
    goal: float
    detail: str
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.ratio <= self.goal

    def markdown(self) -> str:
        """As a row of the report's table."""
        goal = "-" if self.goal == float("inf") else f"{self.goal:g}{self.unit}"
        mark = "" if goal == "-" else " met" if self.met else " missed"
        return f"| {self.name} | {self.ratio:.2f}{self.unit}{mark} | {goal} | {self.detail} |"


def heading() -> str:
    """What the figures were measured with, and the head of the table."""
    versions = f"Python {platform.python_version()}, SQLAlchemy {sqlalchemy.__version__}, SQLite {sqlite3.sqlite_version}"
    return f"{versions}, {platform.machine()}\n\n| what | measured | at most | |\n|---|---|---|---|"


def interleaved(alternatives: Mapping[str, Operation], *, rounds: int, warm: int = 5) -> dict[str, list[float]]:
    """Seconds of every operation, after `warm` rounds that do not count. An operation may return its own time."""
    order = list(alternatives)
    shuffle = random.Random(0).shuffle
    seconds: dict[str, list[float]] = {name: [] for name in order}
    gc.collect()
    gc.disable()
    try:
        for number in range(warm + rounds):
            shuffle(order)
            for name in order:
                started = time.perf_counter()
                own = alternatives[name]()
                elapsed = own if isinstance(own, float) else time.perf_counter() - started
                if number >= warm:
                    seconds[name].append(elapsed)
    finally:
        gc.enable()
    return seconds


def middle(seconds: list[float]) -> float:
    """The median."""
    return statistics.median(seconds)


def us(seconds: float) -> str:
    """Microseconds, readable."""
    return f"{seconds * 1e6:,.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:,.1f} ms"
