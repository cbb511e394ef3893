"""Blobs of an AsyncStore: sources and readers that are awaited, on one event loop with everything else."""

import asyncio
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from persist import AsyncStore
from persist.blobs.content import PIECE
from persist.errors import Closed

LARGE = b"".join(number.to_bytes(4, "big") for number in range(12 * PIECE // 4))


async def chunks(content: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]
        await asyncio.sleep(0)


def test_a_body_is_put_and_read_while_others_go_on(database_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncStore.open(database_url) as store:
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

    asyncio.run(run())


@pytest.mark.parametrize("after", [0, 3])
def test_a_put_that_is_cancelled_stores_nothing(database_url: str, after: int) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(after):
            yield bytes(PIECE)
        await asyncio.sleep(3600)
        yield b""

    async def run() -> None:
        async with AsyncStore.open(database_url) as store:
            putting = asyncio.create_task(store.blobs.put(endless()))
            await asyncio.sleep(0.2)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
            assert (await store.blobs.list()).items == []
            assert (await store.blobs.put(chunks(b"other"))).size == 5

    asyncio.run(run())
