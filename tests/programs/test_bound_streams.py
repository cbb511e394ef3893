"""Values as streams of bytes: what a row may lead to, and the async face."""

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.errors import InvalidValue, NotFound, PayloadTooLarge
from persist.programs import audit, open_run_file, subagent
from persist.settings import Settings
from tests.programs.bound import MB, attached, bind_file, read
from tests.programs.raw_rows import put
from tests.programs.test_attachments import bind, resolve
from tests.programs.test_hostile_files import soon

# ---------------------------------------------------------------- what others put into the row


@pytest.mark.parametrize("stored", ["../secret.md", "state.db", "attachments/link.md", "attachments/pipe.md"])
def test_a_stream_is_of_nothing_but_an_attachment(
    run_file: Store, run: str, file: Path, folder: Path, outside: Path, stored: str, system: str
) -> None:
    (folder / "link.md").symlink_to(outside)
    os.mkfifo(folder / "pipe.md")
    with sqlite3.connect(file) as raw:
        put(raw, "x", stored)
    raw.close()
    refused = soon(lambda: read(run_file, run, "x"))
    assert isinstance(refused, InvalidValue), refused


def test_a_stream_of_what_was_replaced_is_the_newer_one(run_file: Store, run: str, file: Path, source: Path) -> None:
    bind(run_file, run, "x", "one" * 50_000)
    with run_file.read() as tx, open_run_file(file) as other:
        assert len(tx.programs.bindings.list(run)) == 1
        bind_file(other, run, "x", source)
        with tx.programs.bindings.open_file(run, "x") as stream:
            assert stream.read() == source.read_bytes()
    (file.parent / "attachments" / attached(file)[0]).unlink()
    with pytest.raises(NotFound) as caught:
        read(run_file, run, "x")
    assert caught.value.kind == "attachment"


def test_a_value_that_fits_is_read_whole(file: Path, run: str, run_file: Store, source: Path) -> None:
    bind_file(run_file, run, "x", source)
    with open_run_file(file, settings=Settings(max_text_bytes=MB)) as store:
        with pytest.raises(PayloadTooLarge) as caught:
            resolve(store, run, "x")
        assert read(store, run, "x") == source.read_bytes()
    assert (caught.value.path, caught.value.size, caught.value.limit) == ("attachment_path", source.stat().st_size, MB)
    assert "open_file" in str(caught.value)


# ---------------------------------------------------------------- the async face


def test_a_cancelled_task_leaves_no_file(run_file: Store, run: str, file: Path, source: Path, meanwhile: Any) -> None:
    bind(run_file, run, "x", "as it was")

    async def cancelled() -> None:
        async with AsyncStore.open(f"sqlite:///{file}") as store:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            meanwhile(lambda: loop.call_soon_threadsafe(task.cancel))
            with pytest.raises(asyncio.CancelledError):
                await subagent(store, run).bindings.bind_file("x", source)
            task.uncancel()
            assert attached(file) == []
            stream = await subagent(store, run).bindings.open_file("x")
            assert stream.read() == b"as it was"

    asyncio.run(cancelled())
    assert (resolve(run_file, run, "x"), audit(run_file, run)) == ("as it was", [])


def test_a_handle_that_nobody_awaited_works_too(run_file: Store, run: str, file: Path) -> None:
    """Only its run and its frame were not looked for."""

    async def use() -> None:
        async with AsyncStore.open(f"sqlite:///{file}") as store:
            handle = subagent(store, run)
            await handle.bindings.bind("x", "1")
            assert (await handle.bindings.resolve("x")).value == "1"
            with pytest.raises(NotFound):
                await subagent(store, "nobody").bindings.bind("x", "1")
            with pytest.raises(NotFound):
                await subagent(store, "nobody")

    asyncio.run(use())
