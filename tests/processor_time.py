"""Where the processor's seconds went: those of a run's own processes, of all that they started and of its Postgres, by folder.

Seconds on a clock tell of what else the machine did; these hardly do. A Postgres that was there before is not counted.
"""

import os
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PROCESSES = Path("/proc")


def _all() -> dict[int, tuple[int, int]]:
    """Every process with its parent and its ticks, those of its children that have ended among them."""
    found = {}
    for folder in _PROCESSES.glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(") ", 1)[1].split()
        except (OSError, IndexError):  # it has ended
            continue
        found[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    return found


def seconds_of_family(root: int) -> float:
    """The processor's seconds of a process and of all below it."""
    known = _all()
    children: dict[int, list[int]] = {}
    for process, (parent, _) in known.items():
        children.setdefault(parent, []).append(process)
    waiting, ticks = [root], 0
    while waiting:
        process = waiting.pop()
        ticks += known.get(process, (0, 0))[1]
        waiting += children.get(process, ())
    return ticks / _TICKS


def folder_of(path: str) -> str:
    """`tests/contract/chat` of a test in it, and `tests/unit` of one in a folder of that."""
    parts = path.split("/")[:-1]
    return "/".join(parts[: 3 if parts[1:2] == ["contract"] else 2])


class ProcessorTime:
    """A plugin that counts at every change of folder, and tells at the end how many cases each had and what they took.

    With `--renew-night` it counts every case, and tests/night.txt is written from that. With `--quick` it is tests/not_quick.txt,
    and twenty seconds on the clock count like one of the processor: no case of a quick run waits for long.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._folder, self._last = config, "", 0.0
        self._seconds: dict[str, float] = {}
        self._cases = Counter[str]()
        self._by_case = config.getoption("--renew-night")
        self._of_cases: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        self._last = seconds_of_family(os.getpid())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        folder = folder_of(item.nodeid.partition("::")[0])
        if folder != self._folder:
            self._count(folder)
        self._cases[folder] += 1

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before, began = seconds_of_family(os.getpid()) if self._by_case else 0.0, time.monotonic()
        result = yield
        if self._by_case:
            waited = (time.monotonic() - began) / 20 if self._config.getoption("--quick") else 0.0
            self._of_cases[item.nodeid] = max(waited, seconds_of_family(os.getpid()) - before)
        return result

    def _count(self, folder: str) -> None:
        now = seconds_of_family(os.getpid())
        self._add(self._folder or "collection", now - self._last)
        self._folder, self._last = folder, now

    def _add(self, folder: str, seconds: float) -> None:
        self._seconds[folder] = self._seconds.get(folder, 0.0) + seconds

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._count("")
            self._config.workeroutput["processor_time"] = dict(self._seconds), dict(self._cases), self._of_cases
        elif self._folder:  # a process that only tells others what to run has run none, and counts no time of theirs again
            self._count("")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        seconds, cases, of_cases = getattr(node, "workeroutput", {}).get("processor_time", ({}, {}, {}))
        self._of_cases |= of_cases
        for folder, used in seconds.items():
            self._add(folder, used)
        self._cases.update(cases)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        rows = sorted(self._seconds.items(), key=lambda row: -row[1])
        terminalreporter.section("processor's seconds by folder")
        for folder, seconds in rows:
            terminalreporter.write_line(f"{seconds:8.1f} s  {self._cases[folder]:6} cases  {folder}")
        terminalreporter.write_line(f"{sum(self._seconds.values()):8.1f} s  {self._cases.total():6} cases  in all")
        if self._by_case:
            from tests import lanes  # it imports persist.schema

            lanes.write_measured(self._of_cases, quick=self._config.getoption("--quick"))
