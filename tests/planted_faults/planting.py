"""A copy of the tree in which one fault at a time is planted, and what its tests say of it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.planted_faults.fault import Fault

ROOT = Path(__file__).parents[2]
_PARTS = ("persist", "tests", "alembic", "benchmarks", "docs", "examples", "website", ".github")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?: - .*)?$", re.MULTILINE)
_COUNTS = re.compile(r"^.*\b\d+ (?:passed|failed|error).*$", re.MULTILINE)
_BEGUN = re.compile(r"^(\S+?\.py::.+?) $", re.MULTILINE)
"""A test of which pytest has said no more than that it begins."""
FAILED, NOTHING_CHOSEN, NOT_ENDED = 1, 5, -1
LONGEST, LONGEST_GOODBYE = 150, 20
"""Seconds in which pytest says nothing: no test takes as long unless it never ends; and those it has to clean up then."""


class NotPlantedError(Exception):
    """The line of a fault is not there, or stands in several places."""


def place_of(fault: Fault, root: Path = ROOT) -> Path:
    """The file that has the line of the fault. Raises NotPlantedError unless it is there once."""
    files = sorted((root / "persist" / fault.inside).rglob("*.py"))
    found = [(path, number) for path in files if (number := path.read_text(encoding="utf-8").count(fault.was))]
    if len(found) != 1 or found[0][1] != 1:
        times = sum(number for _, number in found)
        raise NotPlantedError(f"its line stands {times} times in persist/{fault.inside}, expected once: {fault.was}")
    return found[0][0]


class Verdict(NamedTuple):
    """What the tests said: whether one of them failed that passes without the fault, which ones, and pytest's counts."""

    found: bool
    by: tuple[str, ...]
    counts: str


class Copy:
    """A copy of the tree, in which tests run with the interpreter and the packages of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _PARTS:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        for path in ROOT.iterdir():
            if path.is_file() and path.name != ".git":
                shutil.copy2(path, folder / path.name)
        self._environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", "import persist; print(persist.__file__)"]
        imported = subprocess.run(command, cwd=folder, env=self._environment, capture_output=True, text=True, check=False)
        if not imported.stdout.startswith(str(folder)):
            raise NotPlantedError(f"tests would not run on the copy, but on {imported.stdout.strip()}{imported.stderr}")

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """The tree with the fault."""
        path = place_of(fault, self.folder)
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(fault.was, fault.becomes), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def judge(self, fault: Fault, options: Sequence[str], tests: Sequence[str]) -> Verdict:
        """Run one part of the tests after the other with the fault until one fails, then that one without it, too.

        Only a test that passes without the fault has found it.
        """
        counts = []
        for part in dict.fromkeys(tests):
            with self.planted(fault):
                code, said = self._test([*options, "--maxfail=3", part])
            ended = (_COUNTS.findall(said) or [said.strip()[-300:]])[-1].strip("= ")
            counts.append("did not end" if code == NOT_ENDED else ended)
            if code in (0, NOTHING_CHOSEN):
                continue
            failed = tuple(dict.fromkeys(_FAILED.findall(said)))
            if code == NOT_ENDED:
                failed += tuple(_BEGUN.findall(said)[-1:]) or (part,)
            if not failed:
                raise NotPlantedError(f"{fault.name}: pytest ended with {code}: {said[-2000:]}")
            wrong = self._failing_anyway(options, failed)
            if by := tuple(one for one in failed if one not in wrong):
                return Verdict(True, by, ", ".join(counts))
        return Verdict(False, (), ", ".join(counts))

    def _failing_anyway(self, options: Sequence[str], tests: Sequence[str]) -> set[str]:
        code, said = self._test([*options, *tests])
        if code not in (0, FAILED):
            raise NotPlantedError(f"without a fault, pytest ended with {code}: {said[-2000:]}")
        return set(_FAILED.findall(said))

    def _test(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Pytest's code and what it said; NOT_ENDED of one that was silent for too long, with all that it had started."""
        command = [sys.executable, "-m", "pytest", "-v", "-rfE", "--tb=no", "-p", "no:cacheprovider", *arguments]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=output, stderr=output, start_new_session=True
            )
            try:
                code = _ended(process, output.fileno())
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return code, output.read().decode(errors="replace")


def _ended(process: subprocess.Popen[bytes], output: int) -> int:
    """The code of a process, or NOT_ENDED: it is interrupted, so that it may stop its servers, when it has nothing to say."""
    size, since = 0, time.monotonic()
    while time.monotonic() - since < LONGEST:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1)
        if (now := os.fstat(output).st_size) != size:
            size, since = now, time.monotonic()
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(LONGEST_GOODBYE)
    return NOT_ENDED
