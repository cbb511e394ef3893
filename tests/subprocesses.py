"""Worker processes of a test.

Each runs a module as `python -m` does, with arguments and pipes of its own. It is forked from a process that has already loaded
what all of them load, because loading takes a second of which the tests have nothing. What fresh interpreters do is tested where
programs are started as their users start them: in tests/cli, tests/schema and tests/architecture/test_loading.py.
"""

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

ROOT = Path(__file__).parents[1]

_LONGEST = 300.0
_CONTEXT = multiprocessing.get_context("forkserver")


class Worker:
    """A process of a test, with those names of subprocess.Popen that the tests use; its parent reaps it at once."""

    def __init__(
        self,
        module: str,
        *arguments: Any,
        stdin: bool = False,
        errors: bool = False,
        cwd: Path = ROOT,
        preloaded: str = "tests.preloaded",
    ) -> None:
        """`errors`: what it writes to its standard error comes with its output; otherwise it goes where that of pytest goes.

        `preloaded`: the module that loads what all of them load. The first worker of a test session decides.
        """
        _CONTEXT.set_forkserver_preload([preloaded])
        reading, output = os.pipe()
        input_, writing = os.pipe() if stdin else (None, None)
        self.args = [module, *map(str, arguments)]
        self.stdout: TextIO = os.fdopen(reading)
        self.stdin: TextIO | None = None if writing is None else os.fdopen(writing, "w")
        self._process = _CONTEXT.Process(target=_Program(self.args, output, input_, errors, cwd), daemon=True)
        try:
            self._process.start()
        finally:
            os.close(output)
            if input_ is not None:
                os.close(input_)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """What it ended with, negative if a signal ended it; None while it runs."""
        return self._process.exitcode

    def tell(self, words: str = "go") -> None:
        """Write a line to its standard input, which it waits for."""
        assert self.stdin is not None
        self.stdin.write(f"{words}\n")
        self.stdin.flush()

    def poll(self) -> int | None:
        """Its return code, if it has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its return code, once it has ended."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to it unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self.returncode is None:
            self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Close its input, and return the rest of its output once it has ended; after so many seconds it is killed."""
        self._close_input()
        limit = threading.Timer(timeout or _LONGEST, self.kill)
        limit.start()
        try:
            said = "" if self.stdout.closed else self.stdout.read()
        finally:
            limit.cancel()
        self.stdout.close()
        self.wait(30)
        return said, None

    def close(self) -> None:
        """Kill it if it still runs, and leave nothing of it open."""
        self.kill()
        self.wait(30)
        self._close_input()
        self.stdout.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.communicate()

    def _close_input(self) -> None:
        if self.stdin is not None and not self.stdin.closed:
            self.stdin.close()


class _Program:
    """What the forked process does: it becomes the module, with these pipes as its output and its input."""

    def __init__(self, line: list[str], output: int, input_: int | None, errors: bool, cwd: Path) -> None:
        self._line, self._output, self._errors, self._cwd = line, output, errors, cwd
        self._input: int | None = input_

    def __getstate__(self) -> tuple[list[str], Any, Any, bool, Path]:
        return self._line, DupFd(self._output), None if self._input is None else DupFd(self._input), self._errors, self._cwd

    def __setstate__(self, state: tuple[list[str], Any, Any, bool, Path]) -> None:
        self._line, output, input_, self._errors, self._cwd = state
        self._output = output.detach()
        self._input = None if input_ is None else input_.detach()

    def __call__(self) -> None:
        os.dup2(self._output, 1)
        os.close(self._output)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        if self._errors:
            os.dup2(1, 2)
        if self._input is not None:
            os.dup2(self._input, 0)
            os.close(self._input)
            sys.stdin = os.fdopen(0, closefd=False)
        os.chdir(self._cwd)
        module, *sys.argv[1:] = self._line
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        finally:
            atexit._run_exitfuncs()


Spawn = Callable[..., Worker]


def output_of(module: str, *arguments: Any) -> str:
    """What a worker says that has to succeed."""
    with Worker(module, *arguments) as worker:
        said, _ = worker.communicate()
    assert worker.returncode == 0, f"{worker.args} ended with {worker.returncode}"
    return said


@contextmanager
def spawning(module: str, url: str) -> Iterator[Spawn]:
    """`spawn(command, *arguments)` starts the module on the database; none outlives the block."""
    with ExitStack() as stack:

        def start(command: str, *arguments: Any, stdin: bool = False) -> Worker:
            worker = Worker(module, command, url, *arguments, stdin=stdin)
            stack.callback(worker.close)
            return worker

        yield start
