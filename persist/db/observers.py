"""Callbacks that are told of something after the transaction it happened in has committed."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from persist.errors import InvalidValue

log = logging.getLogger("persist")

UNDO = "undo"
"""The topic of what a transaction did outside of the database: a function that takes it back, called when it was rolled back."""

Callback = Callable[[Any], Any]


class Observers:
    """The callbacks of one store, by topic."""

    def __init__(self) -> None:
        self._callbacks: dict[str, dict[object, Callback]] = {}

    def add(self, topic: str, callback: Callback) -> Callable[[], None]:
        """Call it with every value of the topic; what is returned ends that, however often it is called."""
        check_callback(callback)
        callbacks, key = self._callbacks.setdefault(topic, {}), object()
        callbacks[key] = callback

        def remove() -> None:
            callbacks.pop(key, None)

        return remove

    def wanted(self, topic: str) -> bool:
        """Whether anybody listens."""
        return bool(self._callbacks.get(topic))

    def tell(self, topic: str, value: Any) -> None:
        """Call each; an exception of one is logged and concerns nobody else."""
        for result in self._results(topic, value):
            if inspect.iscoroutine(result):
                result.close()
                log.error("an observer of %s is a coroutine function, which only AsyncStore awaits", topic)

    async def tell_async(self, topic: str, value: Any) -> None:
        """The same, awaiting what can be awaited."""
        for result in self._results(topic, value):
            if inspect.isawaitable(result):
                try:
                    await result
                except Exception:
                    log.exception("an observer of %s failed", topic)
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if task is None or task.cancelling():
                        raise
                    log.exception("what an observer of %s waited for was cancelled", topic)

    def _results(self, topic: str, value: Any) -> Iterator[Any]:
        for callback in list(self._callbacks.get(topic, {}).values()):
            try:
                result = callback(value)
            except Exception:
                log.exception("an observer of %s failed", topic)
            else:
                yield result


def take_back(announcements: list[tuple[str, Any]]) -> None:
    """After a rollback: nothing is told to anybody, and what can be undone is."""
    undoing = [undo for topic, undo in announcements if topic == UNDO]
    announcements.clear()
    for undo in reversed(undoing):
        try:
            undo()
        except Exception:
            log.exception("something that a transaction did beside the database stays, though it was rolled back")


def check_callback(callback: object) -> None:
    """InvalidValue for what cannot be called."""
    if not callable(callback):
        raise InvalidValue("callback", f"expected a function, got {type(callback).__name__}.")


def on_own_loop(callback: Callback) -> Callback:
    """The callback, called on the event loop of now as long as that is open; later, and without one, where it is told."""
    check_callback(callback)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return callback
    there = on_loop(callback)
    return lambda value: (callback if loop.is_closed() else there)(value)


def on_loop(callback: Callback) -> Callback:
    """The callback, called on the event loop of now, whichever thread tells; what it returns is awaited there."""
    check_callback(callback)
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def finish(value: Any) -> None:
        try:
            result = callback(value)
            if inspect.isawaitable(result):
                await result
        except Exception:
            log.exception("an observer failed")

    def start(value: Any) -> None:
        task = loop.create_task(finish(value))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def told(value: Any) -> Any:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is loop:
            return callback(value)
        with suppress(RuntimeError):  # it was closed
            loop.call_soon_threadsafe(start, value)
        return None

    return told
