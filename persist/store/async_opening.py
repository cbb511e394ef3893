"""What `AsyncStore.open` returns: a store that is opened on a thread, to be awaited or entered."""

import asyncio
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from persist.store.store import Store


class Closable(Protocol):
    """An asynchronous store."""

    async def close(self) -> None:
        """Close it."""


S = TypeVar("S", bound=Closable)


class Opening(Generic[S]):
    """The result of `AsyncStore.open`. Awaiting it returns the store; `async with` also closes the store at the end."""

    def __init__(self, make: Callable[[Store], S], opener: Callable[[], Store]) -> None:
        self._make, self._opener = make, opener
        self._store: S | None = None

    async def _open(self) -> S:
        opening = asyncio.get_running_loop().run_in_executor(None, self._opener)
        try:
            return self._make(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise

    def __await__(self) -> Generator[Any, None, S]:
        return self._open().__await__()

    async def __aenter__(self) -> S:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._store is not None:
            await self._store.close()


def _close_unwanted(opening: "asyncio.Future[Store]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
