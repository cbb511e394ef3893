"""Stopping a worker by SIGINT and SIGTERM: the first signal stops it politely, a second one does what it did before."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK = 0.1
"""Seconds between looks whether a signal came: its handler takes no locks, which the interrupted code may hold."""


def in_main_thread() -> bool:
    """Whether signals can be handled here."""
    return threading.current_thread() is threading.main_thread()


def run_until_signal(work: Callable[[], None], stop: Callable[[], None]) -> None:
    """Do the work in a thread, and stop it when a signal comes."""
    asked: list[bool] = []
    done: Future[None] = Future()

    def do() -> None:
        try:
            work()
            done.set_result(None)
        except BaseException as error:  # raised in the thread that waits
            done.set_exception(error)

    with _handled(lambda: asked.append(True)):
        thread = threading.Thread(target=do, name="persist-worker", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK)
            if asked:
                asked.clear()
                stop()
    done.result()


@contextmanager
def stopping_by_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None], *, wanted: bool) -> Iterator[None]:
    """Let a signal call `stop` on the event loop, inside of the block."""
    if not wanted or not in_main_thread():
        yield
        return
    with _handled(lambda: loop.call_soon_threadsafe(stop)):
        yield


@contextmanager
def _handled(first: Callable[[], Any]) -> Iterator[None]:
    former = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not installed by Python

    def handle(number: int, frame: Any) -> None:
        restore()
        first()

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
