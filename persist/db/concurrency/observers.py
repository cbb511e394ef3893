"""Callbacks that run after the transaction of a change has committed."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from persist.errors import InvalidValue, PersistError

T = TypeVar("T")


class WeakGroup(Generic[T]):
    """Holds its members weakly, by identity. Unlike a weakref.WeakSet, one thread may list it while others add to it."""

    def __init__(self) -> None:
        self._members: WeakValueDictionary[int, T] = WeakValueDictionary()

    def add(self, member: T) -> None:
        self._members[id(member)] = member

    def discard(self, member: T) -> None:
        self._members.pop(id(member), None)

    def __contains__(self, member: object) -> bool:
        return self._members.get(id(member)) is member

    def members(self) -> list[T]:
        members = [reference() for reference in self._members.valuerefs()]  # valuerefs() copies the list atomically
        return [member for member in members if member is not None]


log = logging.getLogger("persist")

UNDO = "undo"
"""The topic of compensations: functions that undo work outside of the database, called if the transaction is rolled back."""

AFTERWARDS = "afterwards"
"""What a transaction leaves to be done outside of the database: functions, called after the commit, off the event loop."""

Callback = Callable[[Any], Any]


class Observers:
    """The callbacks of one store, by topic."""

    def __init__(self) -> None:
        self._callbacks: dict[str, dict[object, Callback]] = {}

    def add(self, topic: str, callback: Callback) -> Callable[[], None]:
        """Call the callback with every value of the topic. The returned function removes it; calling that twice does no harm."""
        check_callback(callback)
        callbacks, key = self._callbacks.setdefault(topic, {}), object()
        callbacks[key] = callback

        def remove() -> None:
            callbacks.pop(key, None)

        return remove

    def wanted(self, topic: str) -> bool:
        return bool(self._callbacks.get(topic))

    def tell(self, topic: str, value: Any) -> None:
        """Call the topic's callbacks. An exception of one is logged and does not reach the caller or the other callbacks."""
        if topic == AFTERWARDS:
            _do(value)
            return
        for result in self._results(topic, value):
            if inspect.iscoroutine(result):
                result.close()
                log.error("an observer of %s is a coroutine function, which only AsyncStore awaits", topic)

    async def tell_async(self, topic: str, value: Any) -> None:
        if topic == AFTERWARDS:
            await asyncio.to_thread(_do, value)
            return
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


def _do(function: Callable[[], object]) -> None:
    try:
        function()
    except PersistError as error:
        log.warning("what is no longer used beside the database stays for now: %s", error)
    except Exception:
        log.exception("what is no longer used beside the database stays for now")


def undo_announcements(announcements: list[tuple[str, Any]]) -> None:
    """After a rollback: drop all announcements, and run the compensations (topic UNDO), the last one first."""
    undoing = [undo for topic, undo in announcements if topic == UNDO]
    announcements.clear()
    for undo in reversed(undoing):
        try:
            undo()
        except Exception:
            log.exception("something that a transaction did beside the database stays, though it was rolled back")


def check_callback(callback: object) -> None:
    """Raise InvalidValue if the object is not callable."""
    if not callable(callback):
        raise InvalidValue("callback", f"expected a function, got {type(callback).__name__}.")


def on_own_loop(callback: Callback) -> Callback:
    """Wrap the callback so that it runs on the event loop that is running now, or where it is told once that is closed."""
    check_callback(callback)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return callback
    notify_on_loop = on_loop(callback)
    return lambda value: (callback if loop.is_closed() else notify_on_loop)(value)


def on_loop(callback: Callback) -> Callback:
    """Wrap the callback so that it runs, and its result is awaited, on the event loop that is running now, from any thread."""
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

    def notify(value: Any) -> Any:
        try:
            current_loop = asyncio.get_running_loop()
        except RuntimeError:
            current_loop = None
        if current_loop is loop:
            return callback(value)
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(start, value)
        return None

    return notify
