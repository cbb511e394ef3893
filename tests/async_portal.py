"""The async face, driven from synchronous tests: a loop in a thread, and one task per thread that calls.

A transaction belongs to the task that entered it. Every calling thread therefore has one task of its own on the loop, in which
all its calls run, one after another: what is one owner for a Store (a thread) is one owner for an AsyncStore (a task), so that a
nested `begin`, a transaction in foreign hands and two competing threads behave alike on both faces.
"""

import asyncio
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from enum import Enum
from pathlib import PurePath
from types import TracebackType
from typing import Any, TypeVar

from pydantic import BaseModel

T = TypeVar("T")
Factory = Callable[[], Awaitable[Any]]

# A call that takes longer is stuck; without a limit one deadlock would hang the whole run.
ANSWER_SECONDS = 60.0


class _Returned:
    def __init__(self, value: Any) -> None:
        self.value = value


class _Raised:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Callback:
    """A request of the task to its thread: call this, then tell what came of it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function


_Outcome = _Returned | _Raised


class _Caller:
    """One thread's task. The thread hands it coroutine functions; while one runs it may have the thread call a function back."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._requests: asyncio.Queue[Factory | _Outcome] = asyncio.Queue()
        self._answers: queue.SimpleQueue[_Outcome | _Callback] = queue.SimpleQueue()
        self.task = asyncio.run_coroutine_threadsafe(self._serve(), loop)

    def run(self, factory: Factory) -> Any:
        """From the thread: run the coroutine in the task, and callbacks here, until it has an outcome."""
        self._post(factory)
        while True:
            try:
                answer = self._answers.get(timeout=ANSWER_SECONDS)
            except queue.Empty:
                self.task.cancel()
                raise TimeoutError(f"the async face did not answer within {ANSWER_SECONDS:.0f} s") from None
            match answer:
                case _Returned(value=value):
                    return value
                case _Raised(error=error):
                    try:
                        raise error
                    finally:
                        del error, answer  # or this frame and the traceback keep each other, and what they hold open, alive
                case _Callback(function=function):
                    self._post(_outcome(function))

    async def call_back(self, function: Callable[[], T]) -> T:
        """From the task: run the function in the thread, and meanwhile, in this very task, the coroutines it asks for."""
        self._answers.put(_Callback(function))
        outcome = await self._serve()
        if isinstance(outcome, _Raised):
            raise outcome.error
        value: T = outcome.value
        return value

    async def _serve(self) -> _Outcome:
        while True:
            request = await self._requests.get()
            if isinstance(request, _Outcome):
                return request
            try:
                answer: _Outcome = _Returned(await request())
            except BaseException as error:
                answer = _Raised(error)
            self._answers.put(answer)
            if isinstance(answer, _Raised) and isinstance(answer.error, asyncio.CancelledError):
                raise answer.error

    def _post(self, request: Factory | _Outcome) -> None:
        self._loop.call_soon_threadsafe(self._requests.put_nowait, request)


def _outcome(function: Callable[[], Any]) -> _Outcome:
    try:
        return _Returned(function())
    except BaseException as error:
        return _Raised(error)


class Portal:
    """An event loop in a daemon thread. Closing it cancels what still runs there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._callers = threading.local()
        self._known: list[tuple[threading.Thread, _Caller]] = []
        self._mutex = threading.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="persist-tests-portal", daemon=True)
        self._thread.start()

    def call(self, factory: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run one coroutine in this thread's task, and return its result or raise what it raised."""
        result: T = self.caller().run(factory)
        return result

    def caller(self) -> _Caller:
        if threading.current_thread() is self._thread:
            raise RuntimeError("the loop's own thread would wait for itself")
        caller: _Caller | None = getattr(self._callers, "caller", None)
        if caller is None or caller.task.done():
            caller = self._callers.caller = _Caller(self._loop)
            self._remember(caller)
        return caller

    def _remember(self, caller: _Caller) -> None:
        """A loop refers to its tasks weakly: one that nobody holds is collected while it waits, and complains in the log.
        Those whose threads have ended are cancelled here."""
        with self._mutex:
            ended = [former for thread, former in self._known if not thread.is_alive()]
            self._known = [(thread, former) for thread, former in self._known if thread.is_alive()]
            self._known.append((threading.current_thread(), caller))
        for former in ended:
            former.task.cancel()

    def close(self) -> None:
        async def settle() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._loop.shutdown_asyncgens()
            await self._loop.shutdown_default_executor()

        asyncio.run_coroutine_threadsafe(settle(), self._loop).result(ANSWER_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_SECONDS)
        self._loop.close()


# Attributes of these types are plain data, the same on both faces; everything else is wrapped.
_PLAIN = (type(None), bool, int, float, str, bytes, PurePath, datetime, timedelta, Enum, BaseModel, Mapping, Sequence, Set)


class SyncFace:
    """An async object with the manners of its synchronous twin, by attribute path and not by a list of verbs.

    Methods run in the caller's task and give what their coroutine returns; async context managers and iterators become
    synchronous ones; attributes that hold objects (`tx.chat.sessions`) are wrapped likewise.
    """

    def __init__(self, portal: Portal, target: Any) -> None:
        self._portal = portal
        self._target = target

    def __repr__(self) -> str:
        return f"SyncFace({self._target!r})"

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if callable(value):
            return self._method(value)
        return value if isinstance(value, _PLAIN) else SyncFace(self._portal, value)

    def __enter__(self) -> Any:
        entered = self._await(self._target.__aenter__)
        if entered is self._target:
            return self
        return entered if isinstance(entered, _PLAIN) else SyncFace(self._portal, entered)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        result: bool | None = self._await(lambda: self._target.__aexit__(kind, error, trace))
        return result

    def __iter__(self) -> Iterator[Any]:
        iterator = aiter(self._target)
        ended = object()

        async def step() -> Any:
            return await anext(iterator, ended)

        try:
            while (item := self._await(step)) is not ended:
                yield item
        finally:
            if hasattr(iterator, "aclose"):
                self._await(iterator.aclose)

    def _method(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            async def call() -> Any:
                result = function(*args, **kwargs)
                # A recorder or a store can be both: entering it is up to the test, as on the other face.
                if hasattr(result, "__aenter__") or not inspect.isawaitable(result):
                    return result
                return await result

            return self._wrap(self._await(call))

        return method

    def _wrap(self, value: Any) -> Any:
        is_async = hasattr(value, "__aenter__") or hasattr(value, "__aiter__")
        return SyncFace(self._portal, value) if is_async else value

    def _await(self, factory: Callable[..., Any]) -> Any:
        return self._portal.caller().run(factory)


class PortalStore(SyncFace):
    """An AsyncStore with the face of a Store."""

    @classmethod
    def open(cls, portal: Portal, opener: Callable[..., Any], url: str, **options: Any) -> "PortalStore":
        """`opener` is `AsyncStore.open`; the result is used as `with PortalStore.open(…) as store` or closed by hand."""

        async def open_() -> Any:
            return await opener(url, **options)

        return cls(portal, portal.call(open_))

    def transact(self, fn: Callable[[Any], T], **options: Any) -> T:
        """`fn` runs in the calling thread; its calls run in the task that owns the transaction, because that one waits for it."""
        caller = self._portal.caller()

        async def replayed(tx: Any) -> T:
            return await caller.call_back(lambda: fn(SyncFace(self._portal, tx)))

        async def transact() -> T:
            result: T = await self._target.transact(replayed, **options)
            return result

        return self._portal.call(transact)
