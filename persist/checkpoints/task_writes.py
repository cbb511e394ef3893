"""What tasks wrote after a checkpoint: its rows, and the statement that stores them."""

from collections.abc import Mapping, Sequence
from typing import Any

from persist.checkpoints import validation
from persist.checkpoints.models import pending, threads
from persist.checkpoints.schemas import Write
from persist.checkpoints.values import thread_key
from persist.db.expressions.upsert import insert_missing, upsert
from persist.db.statements.prepared import Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import required_label
from persist.errors import InvalidValue

WriteRow = Mapping[str, Any]

_MAKE_THREAD = Statement(insert_missing(threads, "id"))
WRITE = Statement(upsert(pending, "thread_id", "namespace", "checkpoint_id", "task_id", "idx", where="excluded.idx < 0"))
"""Stores a write unless it is there already; one with an `idx` below 0 is replaced. Its thread has to exist."""


def checked_writes(
    thread_id: str, checkpoint_id: str, writes: Sequence[Write], *, task_id: str, task_path: str = "", namespace: str = ""
) -> list[WriteRow]:
    """The rows of a task's writes."""
    task = {
        **thread_key(thread_id, namespace),
        "checkpoint_id": required_label("checkpoint_id", checkpoint_id),
        "task_id": required_label("task_id", task_id, empty=True),
        "task_path": required_label("task_path", task_path, empty=True),
    }
    given = validation.items("writes", writes, Write)
    validation.check_blobs("writes", [write.value for write in given])
    return [
        {
            **task,
            "idx": _index(write.idx),
            "channel": required_label("channel", write.channel, empty=True),
            "kind": write.value.kind,
            "data": write.value.data,
        }
        for write in given
    ]


def store_writes(work: UnitOfWork, rows: Sequence[WriteRow]) -> None:
    """Store the writes of one task, and create their thread if needed."""
    if not rows:
        return
    now = work.now()
    with work.batch(last=True) as batch:
        batch.run(_MAKE_THREAD, id=rows[0]["thread_id"], created_at=now, updated_at=now)
        batch.run_many(WRITE, rows)


def _index(value: object) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise InvalidValue("idx", "expected a whole number that fits 64 bits.")
    return value
