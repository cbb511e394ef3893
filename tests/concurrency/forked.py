"""Forks at awkward moments: inside of a transaction, and with everything of an asynchronous store in use."""

import asyncio
import atexit
import gc
import json
import os
import signal
import sqlite3
import sys
import threading
import traceback
import warnings
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, NoReturn

from persist import AsyncStore, Store
from persist.errors import PersistError

_HANGS_AFTER = 30


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


def fork_async_recording(store: Store, session: str, url: str) -> None:
    """Fork from inside of the event loop in which a recorder is open: the child records with an asynchronous store of its own."""

    async def child() -> list[str]:
        async with await AsyncStore.open(url) as own:
            made = await own.chat.sessions.create(agent="build", model={"provider_id": "p", "model_id": "m"})
            async with own.record(made.id) as recording:
                await recording.feed_many([*opening, {"type": "text-delta", "id": "t", "delta": "child"}, {"type": "finish"}])
            steps = [
                lambda: recorder.feed({"type": "text-end", "id": "t"}),
                recorder.flush,
                recorder.close,
                lambda: shared.chat.sessions.get(session),
                shared.close,
            ]
            refused = [await _awaited(step) for step in steps]
            (message,) = await own.chat.messages.list(made.id)
            return [*refused, str(message["parts"][0]["text"])]

    async def parent() -> str:
        await recorder.feed_many([*opening, {"type": "text-delta", "id": "t", "delta": "before, "}])
        await recorder.flush()
        found = bounded_child(lambda: json.dumps(asyncio.run(child())), unwinds=False)
        await recorder.feed_many([{"type": "text-delta", "id": "t", "delta": "after"}, {"type": "finish"}])
        await recorder.close()
        await shared.close()
        return found

    opening = [{"type": "start"}, {"type": "text-start", "id": "t"}]
    shared = AsyncStore(store)
    recorder = shared.record(session)
    print(asyncio.run(parent()), flush=True)


def fork_in_use(store: Store, session: str, url: str) -> None:
    """Another thread is inside of a statement, but of no transaction, whose mutex the child finds held for ever."""

    def stay() -> int:
        inside.set()
        return int(leave.wait(_HANGS_AFTER))

    def use() -> None:
        connection, driver = store.runtime.connections.lend(write=True)
        if url.startswith("sqlite"):
            driver.create_function("stay", 0, stay)
            driver.execute("SELECT stay()").fetchone()
        else:
            stay()
        store.runtime.connections.discard(connection)

    inside, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=use)
    thread.start()
    inside.wait(_HANGS_AFTER)
    found = bounded_child(lambda: _outcome(lambda: Store.open(url).close()))
    leave.set()
    thread.join()
    store.transact(lambda tx: _say(tx, session, "after"))
    print(json.dumps(found), flush=True)


def fork_at_rest(store: Store, session: str, url: str) -> None:
    """Connections of every kind are open, and no thread is inside of any."""
    with ExitStack() as many:
        for _ in range(8):  # more than are cached for the next snapshot
            many.enter_context(store.read())
    store.transact(lambda tx: _say(tx, session, "before"))
    watcher = store.runtime.dialect.event_log.wakeups(None)
    watcher.wait(0)
    recorder = store.record(session)
    recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "x"}])
    recorder.flush()
    found = bounded_child(lambda: _outcome(lambda: Store.open(url).close()))
    recorder.close()
    watcher.close()
    print(json.dumps(found), flush=True)


def fork_inside_sqlite(store: Store, session: str, url: str) -> None:
    """Another thread held one of SQLite's own mutexes, so that whatever the child asks of SQLite waits for ever."""

    def child() -> str:
        sqlite3.connect = lambda *_, **__: threading.Event().wait()  # type: ignore[assignment]  # what the mutex does
        return _outcome(lambda: Store.open(url).close())

    print(json.dumps(bounded_child(child)), flush=True)


def bounded_child(child: Callable[[], str], *, unwinds: bool = True) -> str:
    """Fork, and say what the child found. It ends as a program does, and is killed if it hangs.

    `unwinds`: else it ends like a process of `multiprocessing`, which leaves the blocks around the fork to its parent. That of an
    event loop must be left so: its selector is the parent's own, which would wake no more.
    """
    warnings.simplefilter("ignore", DeprecationWarning)  # forking with a thread running is what is tested
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        if unwinds:
            os.write(writing, child().encode())
            sys.exit()
        _end_apart(writing, child)
    os.close(writing)
    deadline = threading.Timer(_HANGS_AFTER, os.kill, (pid, signal.SIGKILL))
    deadline.start()
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    ended = os.waitpid(pid, 0)[1]
    deadline.cancel()
    return found if ended == 0 else f"{found}, ended by {ended}"


def _say(tx: Any, session: str, text: str) -> None:
    tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": text}])


def _end_apart(writing: int, child: Callable[[], str]) -> NoReturn:
    try:
        os.write(writing, child().encode())
        threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing does: waits for threads, and ends pools
        atexit._run_exitfuncs()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


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
