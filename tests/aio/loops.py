"""Event loops in threads of their own, for tests of a store that several of them use."""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from persist import AsyncStore

ENOUGH = 60.0
"""Seconds after which a thread hangs: the test fails, and does not hang with it."""


class Threads:
    """Each runs a coroutine function in a loop of its own; what they raised is raised by `join`."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, main: Callable[[], Coroutine[Any, Any, object]]) -> threading.Thread:
        def run() -> None:
            try:
                asyncio.run(main())
            except BaseException as error:
                self._errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def join(self) -> None:
        for thread in self._threads:
            thread.join(ENOUGH)
        if self._errors:
            raise ExceptionGroup("in the loops", [error for error in self._errors if isinstance(error, Exception)])
        hung = sum(thread.is_alive() for thread in self._threads)
        assert not hung, f"{hung} of {len(self._threads)} loops hang"


def in_loops(count: int, main: Callable[[int], Coroutine[Any, Any, object]]) -> None:
    """`main(number)` in so many loops at the same time."""
    threads = Threads()
    for number in range(count):
        threads.start(lambda number=number: main(number))  # type: ignore[misc]  # a bound default
    threads.join()


@contextmanager
def abandoned(*mains: Coroutine[Any, Any, object]) -> Iterator[Callable[[bool], None]]:
    """A loop with a task of each, as far as they come; the function closes it without a word to them, and may forget them."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # "Task was destroyed but it is pending": it is
    tasks = [loop.create_task(main) for main in mains]

    def close(forget: bool) -> None:
        loop.close()
        if forget:
            tasks.clear()
            gc.collect()

    loop.run_until_complete(asyncio.sleep(0.1))
    yield close
    tasks.clear()
    gc.collect()


async def opened(url: str, **options: Any) -> AsyncStore:
    return await AsyncStore.open(url, **options)


async def append(store: AsyncStore, session_id: str, *texts: str) -> None:
    async with store.begin() as tx:
        for text in texts:
            await tx.chat.messages.append(session_id, role="user", parts=[{"type": "text", "text": text}])


async def texts(store: AsyncStore, session_id: str) -> list[str]:
    async with store.read() as tx:
        messages = await tx.chat.messages.list(session_id)
    return [part["text"] for message in messages for part in message["parts"]]
