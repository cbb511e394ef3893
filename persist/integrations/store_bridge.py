"""What adapters of frameworks share: transactions over a Store or an AsyncStore, and what their errors may say."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import ValidationError

from persist.db.group_commit.pinned_connection import PinnedConnection
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import InvalidValue, PersistError, UnsupportedEngine
from persist.lazy_imports import lazy_module
from persist.store.async_store import AsyncStore
from persist.store.store import Store
from persist.store.transaction import Transaction, TransactionBlock, transact_with_retries, transaction_per_verb

if TYPE_CHECKING:
    from anyio import to_thread
else:
    to_thread = lazy_module("anyio.to_thread")

# Errors of pydantic, json and frameworks repeat content. So an integration raises its own after the `except` block, not inside of
# it: then the foreign error is neither the cause nor the context of what a host logs.

_MOST = 3
_ABOUT_A_TYPE = re.compile(
    r"Object of type \w+ is not JSON serializable|keys must be str, int, float, bool or None, not \w+"
    r"|Unable to serialize unknown type: <class '[\w.]+'>|Circular reference detected"
)
"""Sentences of json and pydantic that name a type and no value."""


def kind_of(error: BaseException) -> str:
    """The kind of an error about content, with the place where that is known. persist's own errors are said as they are."""
    if isinstance(error, PersistError):
        return str(error).rstrip(".")
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        more = f", and {len(found) - _MOST} more" if len(found) > _MOST else ""
        return ", ".join(_validation(one["type"], one["loc"]) for one in found[:_MOST]) + more
    if isinstance(error, json.JSONDecodeError):
        return f"JSONDecodeError at character {error.pos}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error) if len(error.args) == 1 or isinstance(error, ValueError) else ""
    return text if _ABOUT_A_TYPE.fullmatch(text) else type(error).__name__


def _validation(kind: str, place: tuple[Any, ...]) -> str:
    """A mistake that pydantic found. Indexes and missing fields are named; other names may be keys, which are content."""
    indexes = "".join(f"[{part}]" for part in place if isinstance(part, int))
    field = f".{place[-1]}" if kind == "missing" and place and isinstance(place[-1], str) else ""
    return f"{kind} at {indexes}{field}" if indexes or field else kind


class InvalidForFramework(InvalidValue):  # named like the errors it stands among
    """An InvalidValue that is a framework's error, too. `_before`: arguments of that error before its message."""

    _framework: ClassVar[Any]
    _before: ClassVar[tuple[Any, ...]] = ()

    def __init_subclass__(cls) -> None:
        if InvalidForFramework in cls.__bases__:
            cls._framework = cls.__bases__[-1]

    def __init__(self, path: str, reason: str) -> None:
        self._framework.__init__(self, *self._before, f"{path}: {reason}" if path else reason)
        InvalidValue.__init__(self, path, reason)

    @classmethod
    @contextmanager
    def raised(cls) -> Iterator[None]:
        """Raise what is an InvalidValue as an error of this class."""
        try:
            yield
        except cls:
            raise
        except InvalidValue as error:
            raise cls(error.path, error.reason) from error


T = TypeVar("T")


class StoreBridge:
    """Runs functions in a transaction: `run_sync` here, `run_async` on a worker thread; `call_…` one verb, faster."""

    def __init__(self, store: Store | AsyncStore) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidValue("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")
        self._async = store if isinstance(store, AsyncStore) else None
        self._store = store._store if isinstance(store, AsyncStore) else store

    def run_sync(self, function: Callable[[Transaction], T], *, writes: bool) -> T:
        """Run in this thread. InvalidStateError over an AsyncStore if an event loop runs in this thread: it would be blocked."""
        return self.in_this_thread(lambda: self._run(function, writes))

    def call_sync(self, verb: Callable[[UnitOfWork], T], *, writes: bool) -> T:
        """Run one verb in this thread. InvalidStateError as of `run_sync`."""
        return self.in_this_thread(lambda: self.call(verb, writes=writes))

    async def run_async(self, function: Callable[[Transaction], T], *, writes: bool) -> T:
        """Run on a worker thread. If cancelled, the transaction ends first, done or undone. On trio as `in_worker` says."""
        return await self.in_worker(lambda: self._run(function, writes), writes=writes)

    async def call_async(self, verb: Callable[[UnitOfWork], T], *, writes: bool) -> T:
        """Run one verb on a worker thread. Cancelled as `run_async` is."""
        return await self.in_worker(lambda: self.call(verb, writes=writes), writes=writes)

    def refuse_inside_transaction(self, *, writes: bool) -> None:
        """Raise TransactionOpen if a call would wait for the end of the caller's own transaction."""
        if writes or self._store.runtime.one_connection:
            self._store.runtime.refuse_inside_transaction("a call outside of the transaction")

    def is_outage(self, error: BaseException) -> bool:
        """Whether the database cannot be used for now: a shared transaction is then not retried function by function."""
        return self._store.runtime.errors.is_outage(error)

    @property
    def pinned(self) -> PinnedConnection:
        """The connection of the store on which single statements commit by themselves."""
        return self._store.pinned

    def in_this_thread(self, function: Callable[[], T]) -> T:
        """Run a function that uses `call` in this thread. InvalidStateError as of `run_sync`."""
        if self._async is not None and on_asyncio():
            raise asyncio.InvalidStateError(
                "A synchronous call over an AsyncStore would block its event loop: await the method of the same name with an a "
                "before it, or call this one from another thread."
            )
        return function()

    async def in_worker(self, function: Callable[[], T], *, writes: bool) -> T:
        """Run a function on a worker thread, to its end if cancelled. Raises UnsupportedEngine for an AsyncStore on trio."""
        if not on_asyncio():
            if self._async is not None:
                raise UnsupportedEngine(
                    "an AsyncStore", "it works on asyncio's event loops alone; elsewhere give the adapter a Store."
                )
            return await to_thread.run_sync(function)  # once it runs, a cancellation waits for its end
        if self._async is None:
            return await _finish_despite_cancellation(function)
        return await self._async._worker_pool.run_transaction(function, writable=writes)

    def call(self, verb: Callable[[UnitOfWork], T], *, writes: bool) -> T:
        """Run one verb in this thread, which runs no event loop."""
        result: T = transaction_per_verb(self._store.runtime).run(verb, writes)
        return result

    def _run(self, function: Callable[[Transaction], T], writes: bool) -> T:
        runtime = self._store.runtime
        if writes:
            return transact_with_retries(runtime, lambda: TransactionBlock(runtime, writable=True), function)
        with TransactionBlock(runtime, writable=False) as tx:
            return function(tx)


def on_asyncio() -> bool:
    """Whether an event loop of asyncio runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _finish_despite_cancellation(function: Callable[[], T]) -> T:
    """Run on a thread. A cancellation, and any further one, is raised only when the thread is done."""
    running = asyncio.ensure_future(asyncio.to_thread(function))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is None:
        return running.result()
    running.exception()  # retrieved, so that asyncio does not log it
    raise cancelled
