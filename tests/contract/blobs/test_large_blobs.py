"""A large body is put in short transactions: nobody sees half of it, others write in between, and memory stays what it is."""

import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest

from persist import Settings, Store
from persist.blobs.content import PIECE, Content
from persist.blobs.repository import next_step, staging
from persist.errors import NotFound
from persist.maintenance import maintain, prune
from persist.testing import FrozenClock
from tests.contract.blobs.body_stores import MemoryBlobStore
from tests.contract.conftest import Raw
from tests.contract.faces import every_way

LARGE = Random(18).randbytes(18 * PIECE)
DIGEST = sha256(LARGE).hexdigest()


def begin(store: Store, steps: int) -> None:
    """The first steps of a put whose process dies then."""
    todo, result = staging(Content(BytesIO(LARGE)), "image/png"), None
    for _ in range(steps):
        step = next_step(todo, result)
        assert step is not None
        result = step.do(store.blobs)


@every_way
def test_a_large_body(store: Any, raw: Raw, face: str) -> None:
    blob = store.blobs.put(iter([LARGE]), "image/png")
    assert store.blobs.put(LARGE, "image/jpeg").media_type == "image/png"
    assert store.blobs.put(BytesIO(LARGE)).size == len(LARGE)
    assert store.blobs.read(blob.sha256) == LARGE
    assert (raw.count("blobs"), raw.count("blob_pieces")) == (1, 18)


@every_way
def test_a_large_body_outside(open_store: Callable[..., Any], face: str) -> None:
    memory = MemoryBlobStore()
    with open_store(blobs=memory) as store:
        for _ in range(2):
            assert store.blobs.put([LARGE]).sha256 == DIGEST
        assert store.blobs.read(DIGEST) == LARGE
    assert (memory.puts, memory.bodies) == (1, {DIGEST: LARGE})


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_put_that_died_half_way_is_seen_by_nobody(database_url: str, clock: FrozenClock, steps: int) -> None:
    with Store.open(database_url, clock=clock) as store:
        begin(store, steps)
        assert store.blobs.list().items == []
        for verb in (store.blobs.get, store.blobs.read, store.blobs.open):
            with pytest.raises(NotFound):
                verb(DIGEST)
        assert not store.blobs.delete(DIGEST)
        # another one completes it
        assert store.blobs.put(LARGE).size == len(LARGE)
        assert store.blobs.read(DIGEST) == LARGE


@pytest.mark.parametrize("named", [False, True], ids=["put", "named by a message"])
@pytest.mark.parametrize("outside_then", [False, True])
def test_it_is_completed_where_bodies_belong_by_now(
    database_url: str, clock: FrozenClock, outside_then: bool, named: bool
) -> None:
    memory, roomy = MemoryBlobStore(), Settings(max_json_bytes=2 * len(LARGE))
    then, now = (memory, None) if outside_then else (None, memory)
    with Store.open(database_url, clock=clock, blobs=then) as store:
        begin(store, 1 if outside_then else 3)
        assert memory.bodies == {}
    part = {"type": "file", "mediaType": "text/plain", "url": f"data:text/plain;base64,{b64encode(LARGE).decode()}"}
    with Store.open(database_url, clock=clock, blobs=now, settings=roomy) as store:
        if named:
            session = store.chat.sessions.create(agent="build", model={})
            store.chat.messages.append(session.id, role="user", parts=[part])
            assert store.chat.messages.list(session.id)[0]["parts"] == [part]
        else:
            store.blobs.put(LARGE)
        assert store.blobs.read(DIGEST) == LARGE
    assert list(memory.bodies.values()) == ([] if outside_then else [LARGE])


@pytest.mark.parametrize("how", ["prune", "maintain"])
def test_what_such_a_put_left_is_pruned(database_url: str, clock: FrozenClock, raw: Raw, how: str) -> None:
    with Store.open(database_url, clock=clock) as store:
        begin(store, 3)
        maintain(store)
        assert raw.count("blob_pieces") == 16  # its process may still be at it
        clock.advance(delta=timedelta(days=1, seconds=1))
        if how == "maintain":
            maintain(store)
        else:
            assert prune(store, "blobs", older_than=timedelta(days=1)).tables == {"blobs": 1, "blob_pieces": 16}
        assert (raw.count("blobs"), raw.count("blob_pieces")) == (0, 0)


def work(*arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.contract.blobs.memory_worker", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(worker: "subprocess.Popen[str]") -> int:
    """By how many bytes the memory of the worker grew."""
    said, complaint = worker.communicate(timeout=300)
    assert worker.returncode == 0, complaint
    return int(said)


@pytest.mark.long
def test_two_processes_that_put_the_same_bytes_at_once_both_succeed(database_url: str) -> None:
    with Store.open(database_url) as store:
        for worker in [work(database_url, 24 * PIECE) for _ in range(2)]:
            ended(worker)
        assert [blob.size for blob in store.blobs.list().items] == [24 * PIECE, 5]


@pytest.mark.long
@pytest.mark.parametrize("place", ["database", "folder"])
def test_memory_does_not_grow_with_the_body(sqlite_url: str, tmp_path: Path, place: str) -> None:
    folder = [] if place == "database" else [tmp_path / "bodies"]
    assert ended(work(sqlite_url, 192 * PIECE, *folder)) < 48 * PIECE
