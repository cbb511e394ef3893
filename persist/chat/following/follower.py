"""Followers of both faces: iterators of UI message chunks, with a cursor to go on from."""

import asyncio
import base64
import binascii
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

import orjson

from persist.chat.following import rendering
from persist.chat.following.turn_watch import Waiter, turn_watch
from persist.chat.schemas import STOPPED_AT, TurnState
from persist.chat.storage.turns import Turn
from persist.db.dialects.interface import Wakeups
from persist.db.transactions.notifier import Outage
from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_label
from persist.errors import Closed, InvalidValue, PersistError
from persist.settings import AiSdk

# The cursor of a follower: what it was given, as text that a browser keeps and sends back.

_MAX_BYTES = 1 << 20
_MAX_COUNT = 2**31
_REFUSED = "it is no cursor of follow()."


def encode_cursor(sent: rendering.SentChunks) -> str:
    """The cursor of this place: base64url text without padding."""
    flags = sent.started | sent.ended << 1 | sent.step_ended << 2
    text = orjson.dumps([sent.message_id, flags, sent.settled, sent.step, sent.metadata, sent.entries])
    return base64.urlsafe_b64encode(text).decode("ascii").rstrip("=")


def decode_cursor(cursor: object) -> rendering.SentChunks:
    """The place that a cursor names. Raises InvalidValue for text that `encode_cursor` did not make."""
    if not isinstance(cursor, str) or not cursor.isascii() or len(cursor) > _MAX_BYTES:
        raise InvalidValue("cursor", _REFUSED)
    try:
        text = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found = orjson.loads(text)
    except (binascii.Error, ValueError):
        raise InvalidValue("cursor", _REFUSED) from None
    match found:
        case [str(id), 0 | 1 | 2 | 3 | 5 as flags, settled, step, str(metadata), list(entries)]:
            if id and _is_count(settled, 0) and _is_count(step, -1) and all(map(_is_entry, entries)):
                check_label("cursor", id)
                told = [None if entry is None else (entry[0], entry[1]) for entry in entries]
                return rendering.SentChunks(id, bool(flags & 1), bool(flags & 2), settled, step, metadata, bool(flags & 4), told)
    raise InvalidValue("cursor", _REFUSED)


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < _MAX_COUNT


def _is_entry(entry: Any) -> bool:
    match entry:
        case None | [str(), str()]:
            return True
        case [str(), [stage, sent]]:
            known = _is_count(sent, -1) if stage == 0 else isinstance(sent, str)
            return type(stage) is int and 0 <= stage <= rendering.RESULT and known
        case [str(), sent]:
            return _is_count(sent, -1)
    return False


# The rules of following one session, for both faces: what each look yields, and when the stream is over.
class Following:
    """The place of one follower. `snapshot` reads in a transaction; `chunks` turns the result into what the follower lacks."""

    def __init__(self, runtime: Runtime, session_id: str, cursor: str | None, ai_sdk: int | None) -> None:
        runtime.check_usable()
        if not check_label("session_id", session_id):
            raise InvalidValue("session_id", "it is empty.")
        self._runtime = runtime
        self._ai_sdk = runtime.settings.ai_sdk if ai_sdk is None else AiSdk.of(ai_sdk)
        self.session_id = session_id
        self._sent = None if cursor is None else decode_cursor(cursor)
        self.over = False
        """Whether the stream has ended."""
        self.reads_again = False
        """Whether to read again at once, without waiting for a change."""
        self._gone: str | None = None

    @property
    def cursor(self) -> str | None:
        """The place after the last chunk; None before the first one."""
        return None if self._sent is None else encode_cursor(self._sent)

    def snapshot(self, work: UnitOfWork) -> rendering.TurnSnapshot:
        """The session as stored now. Raises NotFound without it, or if the cursor names a message of another one."""
        sent = self._sent
        return rendering.snapshot_turn(
            work, self.session_id, None if sent is None else sent.message_id, 0 if sent is None else sent.settled
        )

    def chunks(self, seen: rendering.TurnSnapshot) -> Iterator[rendering.Chunk]:
        """The chunks that the follower lacks after this snapshot. None come while the turn is silent."""
        turn = seen.turn
        running = turn is not None and self._runs(turn)
        if self._sent is None:
            if turn is None or not running:
                self.over = True
                return
            if seen.metadata is None or turn.message_id is None:
                return  # its first part is not stored yet
            self._sent = rendering.SentChunks(turn.message_id)
        sent = self._sent
        goes_on = turn is not None and turn.message_id == sent.message_id
        if seen.metadata is not None:
            # a dead recorder's turn is no end: the next one may write the other half of the text's last character
            final = turn is None or not goes_on or turn.state != TurnState.RUNNING
            for chunk in rendering.missing_chunks(sent, seen.metadata, seen.parts, final=final, ai_sdk=self._ai_sdk):
                sent.ended = sent.step_ended = False
                yield chunk
        if running and goes_on and (seen.metadata is not None or not sent.started):
            return
        if seen.metadata is None and sent.started:
            last = "abort"
        elif turn is None or not goes_on:
            stopped = seen.metadata is not None and seen.metadata.get(STOPPED_AT) is not None
            last = "finish" if sent.started and not stopped else "abort"
        else:
            last = "error" if turn.state == TurnState.ERROR else "abort"
        yield from rendering.ending_chunks(sent, last)
        self.over = True

    def _runs(self, turn: Turn) -> bool:
        """Whether the turn runs. One whose recorder is gone is read once more: it may have finished since this snapshot."""
        known, self._gone = self._gone, None
        if not turn.running(self._runtime.clock()) and turn.state == TurnState.RUNNING:
            self._gone = turn.owner
        self.reads_again = self._gone is not None and self._gone != known
        return turn.state == TurnState.RUNNING and (self._gone is None or self.reads_again)


class _NoticeClock:
    """The instant of the oldest unread change. A waiter refers to this object and not to its follower: no reference cycle."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: float | None = None

    def change(self) -> None:
        if self._at is None:
            self._at = time.monotonic()

    def handled(self) -> float | None:
        at, self._at = self._at, None
        return None if at is None else time.monotonic() - at


def _notice(noticed: _NoticeClock, wake: Callable[[], None]) -> None:
    noticed.change()
    wake()


class _Follower:
    """What both faces share. Chunks are read when they are asked for, so a slow reader holds back nobody and nothing piles up."""

    def __init__(self, runtime: Runtime, session_id: str, cursor: str | None, ai_sdk: int | None) -> None:
        self._runtime = runtime
        self._following = Following(runtime, session_id, cursor, ai_sdk)
        self._chunks: Iterator[rendering.Chunk] = iter(())
        self._waiter: Waiter | None = None
        self._closed = False
        self._outage = Outage(runtime.errors, "a turn that is followed cannot be read")
        self._reads = Wakeups()
        """Closing the store waits for the read that it allows at a time, and allows none afterwards."""
        runtime.watchers.add(self._reads)
        self._noticed = _NoticeClock()

    @property
    def cursor(self) -> str | None:
        """The place after the last chunk, to be given to `follow` after a reconnect; None before the first chunk."""
        return self._following.cursor

    def _snapshot(self) -> rendering.TurnSnapshot:
        with self._reads.reading:
            if self._reads.stopped:
                raise Closed("store")
            found = in_snapshot(self._runtime, self._following.snapshot)
        self._outage.is_over()
        self._outage.permitted = True
        if (lag := self._noticed.handled()) is not None:
            self._runtime.counters.followed(lag)
        return found

    @property
    def _is_over(self) -> bool:
        return self._following.over or self._closed or self._runtime.closed or self._reads.stopped

    def _enter(self, wake: Callable[[], None]) -> None:
        if self._waiter is None:
            self._waiter = Waiter(self._following.session_id, partial(_notice, self._noticed, wake))
            turn_watch(self._runtime).add(self._waiter)

    def _leave(self) -> None:
        self._closed = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            turn_watch(self._runtime).remove(waiter)


class Follower(_Follower):
    """Iterates over the chunks of a session's running message, blocking while the turn is silent. `close` ends it."""

    def __init__(self, runtime: Runtime, session_id: str, cursor: str | None, ai_sdk: int | None) -> None:
        super().__init__(runtime, session_id, cursor, ai_sdk)
        self._changed = threading.Event()

    def __iter__(self) -> "Follower":
        return self

    def __next__(self) -> rendering.Chunk:
        self._runtime.check_process()
        while True:
            chunk = next(self._chunks, None)
            if chunk is not None:
                return chunk
            if self._is_over:
                self._leave()
                raise StopIteration
            if self._runtime.one_connection:
                self._runtime.refuse_inside_transaction("follow()")
            first = self._waiter is None
            self._enter(self._changed.set)
            if not first and not self._following.reads_again:
                self._changed.wait()
            self._changed.clear()
            if self._is_over:
                continue
            try:
                self._chunks = self._following.chunks(self._snapshot())
            except Closed:
                continue
            except PersistError as error:
                if not self._outage.met(error):
                    self._changed.set()  # the next call looks again
                    raise
                self._changed.wait(self._outage.pause())
                self._changed.set()

    def close(self) -> None:
        """End the iteration, from any thread."""
        self._leave()
        self._changed.set()

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class AsyncFollower(_Follower):
    """See Follower. For one task at a time; another event loop may go on with it."""

    def __init__(
        self,
        runtime: Runtime,
        session_id: str,
        cursor: str | None,
        ai_sdk: int | None,
        call: Callable[[Callable[[], rendering.TurnSnapshot]], Awaitable[rendering.TurnSnapshot]],
    ) -> None:
        super().__init__(runtime, session_id, cursor, ai_sdk)
        self._call = call
        self._changed: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __aiter__(self) -> "AsyncFollower":
        return self

    async def __anext__(self) -> rendering.Chunk:
        self._runtime.check_process()
        while True:
            chunk = next(self._chunks, None)
            if chunk is not None:
                return chunk
            if self._is_over:
                self._leave()
                raise StopAsyncIteration
            if self._runtime.one_connection:
                self._runtime.refuse_inside_transaction("follow()")
            loop = asyncio.get_running_loop()
            if self._changed is None or self._loop is not loop:  # nothing wakes it any more through a loop that is closed
                self._loop, self._changed, self._waiter = loop, asyncio.Event(), None
                self._enter(partial(_set, loop, self._changed))
            elif not self._following.reads_again:
                await self._changed.wait()
            self._changed.clear()
            if self._is_over:
                continue
            try:
                self._chunks = self._following.chunks(await self._call(self._snapshot))
            except Closed:
                continue
            except PersistError as error:
                self._changed.set()  # it looks again, whether here or in the next call: the pause may be cancelled
                if not self._outage.met(error):
                    raise
                await asyncio.sleep(self._outage.pause())
            except asyncio.CancelledError:
                self._changed.set()
                raise

    async def close(self) -> None:
        """End the iteration."""
        self._leave()
        if self._changed is not None:
            self._changed.set()

    aclose = close
    """The name under which asynchronous generators are closed."""

    async def __aenter__(self) -> "AsyncFollower":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


def _set(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, so nobody waits
        loop.call_soon_threadsafe(changed.set)
