"""Forks at awkward moments: inside of a transaction, and with everything of an asynchronous store in use."""

import asyncio
import gc
import json
import os
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from persist import AsyncStore, Store
from persist.errors import PersistError


def in_child(child: Callable[[], list[str]]) -> list[str]:
    """Fork, and say what the child found; it ends without cleaning up, like a worker of a process pool."""
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with a thread running is what is tested
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _tell(writing, child)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found: list[str] = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return found


def fork_beside(store: Store, session: str, url: str) -> None:
    """The child opens a store of its own, and goes on writing when its parent has closed the one it had."""
    reading, closed = os.pipe()
    ready, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with Store.open(url) as own:
            for text in ("before", "after"):
                with own.begin() as tx:
                    _say(tx, session, text)
                os.write(writing, b".")
                os.read(reading, 1)
            os._exit(0)
    os.read(ready, 1)
    store.close()
    Store.open(url).close()
    os.write(closed, b"..")
    os.waitpid(pid, 0)


def fork_inside(store: Store, session: str, url: str) -> None:
    """In the child the block is left by an error, and again by its end; the parent's transaction goes on."""
    with store.begin() as tx:
        _say(tx, session, "before")

        def child() -> list[str]:
            def verb() -> None:
                _say(tx, session, "child")

            found = [_outcome(verb), _outcome(lambda: left.__exit__(KeyError, KeyError(), None))]
            found.append(_outcome(lambda: left.__exit__(None, None, None)))
            found.append(_outcome(lambda: Store.open(url).close()))
            gc.collect()
            return found

        with store.read() as looked:
            left = store.read()
            left.__enter__()
            raised = in_child(child)
            left.__exit__(None, None, None)
            looked.chat.sessions.get(session)
        _say(tx, session, "after")
    print(json.dumps(raised), flush=True)


def fork_async(store: Store, session: str) -> None:
    """The child has none of the parent's threads: it must not wait for them."""

    async def uses() -> list[str]:
        async def begin() -> None:
            async with shared.begin():
                pass

        steps = [begin, lambda: recorder.feed({"type": "text-end", "id": "t"}), recorder.flush, recorder.close, shared.close]
        return [await _awaited(step) for step in steps]

    async def feed(*chunks: dict[str, str]) -> None:
        for chunk in chunks:
            await recorder.feed(chunk)

    shared = AsyncStore(store)
    recorder = shared.record(session)
    with asyncio.Runner() as runner:
        runner.run(feed({"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "before, "}))
        raised = in_child(lambda: asyncio.new_event_loop().run_until_complete(uses()))
        runner.run(feed({"type": "text-delta", "id": "t", "delta": "after"}, {"type": "finish"}))
        runner.run(shared.close())
    print(json.dumps(raised), flush=True)


def _say(tx: Any, session: str, text: str) -> None:
    tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": text}])


def _tell(writing: int, child: Callable[[], list[str]]) -> NoReturn:
    os.write(writing, json.dumps(child()).encode())
    os._exit(0)


def _outcome(use: Callable[[], object]) -> str:
    try:
        use()
    except PersistError as error:
        return type(error).__name__
    return ""


async def _awaited(use: Callable[[], Awaitable[object]]) -> str:
    try:
        await use()
    except PersistError as error:
        return type(error).__name__
    return ""
