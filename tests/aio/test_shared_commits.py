"""What concurrent recorders cost together, and what becomes of a chunk that cannot be committed at once."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from persist import AsyncStore, Settings, Store, StoreBusy
from persist.blobs.content import PIECE
from persist.db.group_commit.tasks import FunctionTask
from persist.db.group_commit.writer import GroupCommitter
from persist.db.statements.prepared import CompiledStatement
from persist.errors import Closed
from tests.aio.conftest import new_session, text_of
from tests.contract.blobs.test_blobs import body
from tests.statement_log import seen_statements

BEGINNING = ({"type": "start"}, {"type": "text-start", "id": "t"})


def delta(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": text}


async def begun(store: AsyncStore, streams: int) -> list[Any]:
    """So many recorders, each with a growing part that nothing folds meanwhile."""
    recorders = [store.record(await new_session(store)) for _ in range(streams)]
    for recorder in recorders:
        for chunk in BEGINNING:
            await recorder.feed(chunk)
    await asyncio.gather(*(recorder.feed(delta("begun")) for recorder in recorders))
    return recorders


async def text_in(store: AsyncStore, recorder: Any) -> str:
    async with store.read() as tx:
        message = await tx.chat.messages.get(recorder.message_id)
    return "".join(part.get("text", "") for part in message["parts"])


@contextmanager
def write_locked(path: Path | None) -> Iterator[None]:
    """Another connection holds the file's write lock."""
    assert path is not None
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@pytest.fixture
def patient() -> Settings:
    """No part is folded on a timer while a test counts."""
    return Settings(fold_ms=600_000)


async def test_chunks_that_are_ready_together_share_one_transaction(
    database_url: str, patient: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = seen_statements(monkeypatch)
    async with AsyncStore.open(database_url, settings=patient) as store:
        recorders = await begun(store, 16)
        before = len(statements)
        for text in "abc":
            await asyncio.gather(*(recorder.feed(delta(text)) for recorder in recorders))
        told = [statement.split()[0].rstrip(";") for statement in statements[before:]]
        if database_url.startswith("sqlite"):
            assert (told.count("BEGIN"), told.count("COMMIT")) == (3, 3)
        else:
            assert told == ["WITH"] * 3  # a statement that commits by itself
        assert {await text_in(store, recorder) for recorder in recorders} == {"begunabc"}
        for recorder in recorders:
            await recorder.close()


async def test_chunks_that_share_a_commit_hold_whatever_text_holds(database_url: str, patient: Settings) -> None:
    texts = ["", "\x00", "\ud83d", "\ude00", "\ufdd0", "\ufdd00000", '"},{"delta":"x', "\\u0000 \\", "ä日😀\u2028", "%s %%"]
    async with AsyncStore.open(database_url, settings=patient) as store:
        recorders = await begun(store, len(texts))
        await asyncio.gather(*(recorder.feed(delta(text)) for recorder, text in zip(recorders, texts, strict=True)))
        assert [await text_in(store, recorder) for recorder in recorders] == [f"begun{text}" for text in texts]
        for recorder in recorders:
            await recorder.close()


@pytest.mark.parametrize("synchronous", ["normal", "full"])
def test_a_commit_that_waits_for_the_disk_is_not_the_loops(
    sqlite_url: str, synchronous: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    run = CompiledStatement.run

    def told(self: CompiledStatement, *args: Any) -> int:
        threads.append(threading.get_ident())
        return run(self, *args)

    async def body() -> None:
        settings = Settings(fold_ms=600_000, synchronous=synchronous)
        async with AsyncStore.open(sqlite_url, settings=settings) as store:
            (recorder,) = await begun(store, 1)
            threads.clear()
            await recorder.feed(delta("more"))
            assert (threads == [threading.get_ident()]) == (synchronous == "normal")
            assert await text_in(store, recorder) == "begunmore"
            await recorder.close()

    monkeypatch.setattr(CompiledStatement, "run", told)
    asyncio.run(body())


async def test_the_loop_goes_on_while_another_process_holds_the_lock(sqlite_url: str, patient: Settings) -> None:
    """The chunk waits on the writer thread; were the loop blocked, nobody would give the lock back in time."""
    async with AsyncStore.open(sqlite_url, settings=patient) as store:
        (recorder,) = await begun(store, 1)
        with write_locked(store.path):
            waiting = asyncio.create_task(recorder.feed(delta(" waited")))
            for _ in range(20):
                await asyncio.sleep(0.005)
            assert not waiting.done()
        await waiting
        await recorder.feed(delta(" done"))
        assert await text_in(store, recorder) == "begun waited done"
        await recorder.close()


async def test_a_lock_that_is_never_given_back_is_said_and_the_chunk_may_be_fed_again(sqlite_url: str) -> None:
    settings = Settings(fold_ms=600_000, busy_timeout_ms=10)
    async with AsyncStore.open(sqlite_url, settings=settings, sleep=lambda seconds: None) as store:
        (recorder,) = await begun(store, 1)
        with write_locked(store.path), pytest.raises(StoreBusy):
            await recorder.feed(delta(" again"))
        await recorder.feed(delta(" again"))
        assert await text_in(store, recorder) == "begun again"
        await recorder.close()


async def test_a_chunk_waits_for_a_transaction_of_its_own_store(store: AsyncStore) -> None:
    (recorder,) = await begun(store, 1)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with store.begin() as tx:
            await tx.chat.prompts.put("held")
            entered.set()
            await leave.wait()

    holder = asyncio.create_task(hold())
    await entered.wait()
    fed = asyncio.create_task(recorder.feed(delta(" later")))
    await asyncio.sleep(0.02)
    leave.set()
    await asyncio.gather(holder, fed)
    assert await text_in(store, recorder) == "begun later"
    await recorder.close()


async def test_chunks_fed_to_one_recorder_all_at_once_keep_their_order(store: AsyncStore) -> None:
    session_id = await new_session(store)
    async with store.record(session_id) as recorder:
        for chunk in BEGINNING:
            await recorder.feed(chunk)
        await asyncio.gather(*(recorder.feed(delta(f"{number},")) for number in range(400)))
    assert await text_of(store, session_id) == "".join(f"{number}," for number in range(400))


async def test_whoever_finds_the_queue_full_waits_for_room(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        writer, gate = GroupCommitter(store.pinned, bound=3), threading.Event()
        done: list[int] = []
        first: FunctionTask[Any] = FunctionTask(lambda db: gate.wait(30))

        def noting(number: int) -> FunctionTask[Any]:
            return FunctionTask(lambda db: done.append(number))

        others = [noting(number) for number in range(20)]
        tasks = [asyncio.create_task(writer.run(first))]
        await asyncio.sleep(0.01)  # it is with the writer now; what follows waits on the loop
        tasks += [asyncio.create_task(writer.run(job)) for job in others]
        await asyncio.sleep(0.01)
        assert writer.waiting == 3
        tasks.pop().cancel()  # the last in line, who waits for room
        gate.set()
        outcomes = await asyncio.gather(*tasks)
        assert {(outcome.error, cancelled) for outcome, cancelled in outcomes} == {(None, None)}
        assert done == list(range(19))
        await writer.close()


# Blobs of an AsyncStore: sources and readers that are awaited, on one event loop with everything else.


LARGE = body(12 * PIECE)


async def chunks(content: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]
        await asyncio.sleep(0)


async def test_a_body_is_put_and_read_while_others_go_on(store: AsyncStore, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(LARGE)
    sources: list[Any] = [chunks(LARGE), path, BytesIO(LARGE), LARGE]
    blobs = await asyncio.gather(*(store.blobs.put(source) for source in sources))
    assert len({blob.sha256 for blob in blobs}) == 1
    digest = blobs[0].sha256

    async def read() -> bytes:
        return b"".join([piece async for piece in await store.blobs.open(digest)])

    assert set(await asyncio.gather(read(), read(), store.blobs.read(digest))) == {LARGE}
    async with store.begin() as tx:
        small = await tx.blobs.put(chunks(b"small"))
        assert [piece async for piece in await tx.blobs.open(small.sha256)] == [b"small"]
    reader = await store.blobs.open(digest, start=PIECE, end=PIECE + 5)
    assert [piece async for piece in reader] == [LARGE[PIECE : PIECE + 5]]
    async with store.read() as reading:
        left = await reading.blobs.open(digest)
    with pytest.raises(Closed):
        await anext(aiter(left))


@pytest.mark.parametrize("after", [0, 3])
async def test_a_put_that_is_cancelled_stores_nothing(database_url: str, after: int) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(after):
            yield bytes(PIECE)
        await asyncio.sleep(3600)
        yield b""

    async with AsyncStore.open(database_url) as store:
        putting = asyncio.create_task(store.blobs.put(endless()))
        await asyncio.sleep(0.2)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        assert (await store.blobs.list()).items == []
        assert (await store.blobs.put(chunks(b"other"))).size == 5
