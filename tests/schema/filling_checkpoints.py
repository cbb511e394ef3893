"""Something of every table of checkpoints, made through the public API, and what a reader sees of it."""

from typing import Any

from persist import Store
from persist.framework_state.checkpoints.schemas import Blob, Loaded, Write
from persist.store.transaction import Transaction

HARD = "Naïve\x00 text \ud83d stays what it was."
_THREAD = "thread-1"


def fill_checkpoints(store: Store) -> None:
    """A thread of two checkpoints whose list grew, with writes, and memories, of which one has vectors and expires."""
    said = [Blob("msgpack", bytes([number])) for number in range(3)]
    with store.begin() as tx:
        states = tx.checkpoints.states
        states.put(
            _THREAD,
            "1",
            head=Blob("msgpack", b"\x00\xff"),
            run_id="run-1",
            metadata={"note": HARD},
            versions={"said": "1"},
            values={"said": ("1", said[:2])},
        )
        states.put_writes(_THREAD, "1", [Write(0, "said", said[2]), Write(-1, "error", said[0])], task_id="task", task_path="~a")
        states.put(
            _THREAD,
            "2",
            head=Blob("msgpack", b""),
            parent_id="1",
            versions={"said": "2", "whole": "1"},
            values={"said": ("2", said), "whole": ("1", said[0])},
            partial=["other"],
        )
        memories = tx.checkpoints.memories
        memories.put(("people", "maria"), "likes", {"text": HARD}, ttl_minutes=10**9, embeddings={"text": b"\x00\x00\x80?"})
        memories.put(("people",), "count", {"n": 1})


def checkpoints_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    checkpoints = tx.checkpoints
    rows = checkpoints.states.page(thread_id=_THREAD) if checkpoints.threads.list().items else []
    return {
        "threads": {thread.id: thread.model_dump(mode="json") for thread in checkpoints.threads.list().items},
        "checkpoints": {one.checkpoint.id: _loaded(one) for one in checkpoints.states.load(rows)},
        "memories": {memory.key: memory.model_dump(mode="json") for memory in checkpoints.memories.list()},
        "vectors": {key: {"bytes": data.hex()} for _, key, data in checkpoints.memories.embeddings()},
    }


def _loaded(found: Loaded) -> dict[str, Any]:
    row = found.checkpoint
    return {
        "parent": row.parent_id,
        "run": row.run_id,
        "metadata": row.metadata,
        "partial": row.partial,
        "versions": row.versions,
        "head": _hex(row.head),
        "values": {
            channel: _hex(value) if isinstance(value, Blob) else [_hex(piece) for piece in value]
            for channel, value in found.values.items()
        },
        "writes": [[write.task_id, write.channel, _hex(write.value)] for write in found.writes],
    }


def _hex(blob: Blob) -> str:
    return f"{blob.kind} {blob.data.hex()}"
