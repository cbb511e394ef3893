"""What a chat's page is told while it is looked at: text as it comes, and what the page has to fetch anew.

An idle viewer costs a waiter of the store's one watch over turns, and nothing else.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from functools import partial
from hashlib import blake2b

from persist.chat.following.follower import AsyncFollower
from persist.chat.following.rendering import Chunk, SentChunks
from persist.chat.following.turn_watch import Waiter, turn_watch
from persist.errors import Closed, InvalidValue, NotFound
from persist.store.transaction import Transaction
from persist.ui.views import Listening, Told

_TEXTS = {
    "text-delta": ("text", "delta"),
    "reasoning-delta": ("reasoning", "delta"),
    "tool-input-delta": ("input", "inputTextDelta"),
}
"""Chunks that only add text: the kind of what grows, and where the chunk has what it adds."""
_ENDS = ("finish", "abort", "error")
_SILENT = ("text-start", "reasoning-start", "start-step")
"""Chunks after which there is nothing to be seen yet."""


async def told_of_chat(listening: Listening) -> AsyncIterator[Told]:
    """What happens in a chat's turns, from the place that the viewer has reached on, until the store is closed.

    A turn may be over before it is looked at: so a chat that has another mark than the page that is shown is told of, too.
    """
    id, runtime = listening.values["id"], listening.store.runtime
    changed = asyncio.Event()
    waiter, watch = Waiter(id, partial(_wake, asyncio.get_running_loop(), changed)), turn_watch(runtime)
    watch.add(waiter)
    cursor, mark = listening.last_id, listening.query.get("mark")
    try:
        while not runtime.closed:
            silent = True
            async with aclosing(_told_of_turn(listening, cursor)) as turn:
                async for told in turn:
                    silent = False
                    yield told
            cursor, runs = None, False
            while not runs and not runtime.closed:
                changed.clear()
                found, runs = await listening.read(lambda tx: (mark_of(tx, id), tx.chat.sessions.turn(id) is not None))
                if silent and mark not in (None, found):
                    yield Told("over", {"message": None})
                mark, silent = found, True
                if not runs:
                    await changed.wait()
    except (Closed, NotFound):  # the store, or the chat, is there no more
        return
    finally:
        watch.remove(waiter)


def mark_of(tx: Transaction, id: str) -> str:
    """What is another one after a turn, or another message, of the chat. Raises NotFound."""
    newest = tx.chat.messages.list_rows(id, limit=1)
    seen = repr((tx.chat.sessions.get(id), newest))
    return blake2b(seen.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _wake(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, so nobody waits
        loop.call_soon_threadsafe(changed.set)


async def _told_of_turn(listening: Listening, cursor: str | None) -> AsyncGenerator[Told]:
    """What happens in the turn that runs now, or goes on from a cursor; nothing if none does."""
    try:
        follower = AsyncFollower(listening.store.runtime, listening.values["id"], cursor, None, asyncio.to_thread)
    except InvalidValue:  # a cursor of a viewer that is not one: it begins anew
        follower = AsyncFollower(listening.store.runtime, listening.values["id"], None, None, asyncio.to_thread)
    try:
        async for chunk in follower:
            sent = follower._following._sent
            told = None if sent is None else _told(chunk, sent)
            if told is not None:
                yield Told(*told, follower.cursor)
    except NotFound:
        return  # the message, or the chat itself, was deleted
    finally:
        await follower.close()


def _told(chunk: Chunk, sent: SentChunks) -> tuple[str, dict[str, object]] | None:
    kind = chunk["type"]
    if kind in _TEXTS:
        what, where = _TEXTS[kind]
        place, upto = sent.reached
        return "text", {"message": sent.message_id, "place": place, "kind": what, "delta": chunk[where], "upto": upto}
    if kind in _SILENT:
        return None
    return ("start" if kind == "start" else "over" if kind in _ENDS else "part"), {"message": sent.message_id}
