"""Live streams: Server-Sent Events, for a limited number of viewers, each of whom has to keep reading."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from persist.ui.views import Told

VIEWERS = 200
"""How many live viewers an application has at most."""
HEARTBEAT = 15.0
"""Seconds after which a silent stream says that it is there, and notices that its viewer is not."""
PATIENCE = 10.0
"""Seconds after which a viewer that does not read is dropped."""


class Viewers:
    """The live viewers of an application. `close` ends their streams, so that a server can stop."""

    def __init__(self, most: int = VIEWERS) -> None:
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether nobody may come any more."""
        return len(self._tasks) >= self._most

    def add(self, task: asyncio.Task[None]) -> None:
        """Count the task of a viewer until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End all streams."""
        for task in list(self._tasks):
            task.cancel()


class EventStream(Response):
    """What a stream tells, as Server-Sent Events, until the stream ends, the viewer goes, or no longer reads."""

    media_type = "text/event-stream"

    def __init__(self, told: AsyncIterator[Told], viewers: Viewers) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._told, self._viewers = told, viewers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = asyncio.create_task(self._send(send))
        self._viewers.add(sending)
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            here = not leaving.done()
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        if here:  # the stream has ended, or the server stops
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        async def out(data: bytes) -> None:
            async with asyncio.timeout(PATIENCE):
                await send({"type": "http.response.body", "body": data, "more_body": True})

        await out(b"retry: 2000\n\n")
        with suppress(TimeoutError):
            async for told in with_heartbeats(self._told):
                await out(b": still here\n\n" if told is None else as_event(told))


def as_event(told: Told) -> bytes:
    """One event in the words of the protocol."""
    id = "" if told.id is None else f"id: {told.id}\n"
    return f"{id}event: {told.event}\ndata: {json.dumps(told.data, ensure_ascii=True)}\n\n".encode("ascii")


async def with_heartbeats(told: AsyncIterator[Told]) -> AsyncIterator[Told | None]:
    """What is told, and None each time when nothing was for a while."""
    async with aclosing(cast(Any, told)):
        coming: asyncio.Future[Told] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(told))
                done, _ = await asyncio.wait({coming}, timeout=HEARTBEAT)
                if not done:
                    yield None
                    continue
                try:
                    yield coming.result()
                except StopAsyncIteration:
                    return
                coming = None
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


async def _left(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
