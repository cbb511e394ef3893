"""Something of every table of agents' tasks, made through the public API, and what a reader sees of it."""

from typing import Any

from persist import Store
from persist.framework_state.agent_tasks.schemas import Piece
from persist.store.transaction import Transaction


def fill_agent_tasks(store: Store) -> None:
    """A task that goes on, with an artifact in two parts, one of another owner that ended, and a webhook of each."""
    pieces = [Piece("history", 0, 0, b"\x00\xff"), Piece("artifact", 0, -1, b"a"), Piece("artifact", 0, 0, b"b")]
    with store.begin() as tx:
        tasks, webhooks = tx.agent_tasks.tasks, tx.agent_tasks.webhooks
        tasks.save("ann", "t1", state="working", head=b"head", pieces=pieces, context_id="c1", status_key="1")
        tasks.save("", "t1", state="completed", head=b"", pieces=[], final=True)
        webhooks.set("t1", "w1", owner="ann", data=b"\x00")
        webhooks.set("t2", "", owner="", data=b"gone")


def agent_tasks_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    found = [one for owner in ("ann", "") for one in tx.agent_tasks.tasks.list(owner).items]
    hooks = [one for task in ("t1", "t2") for one in tx.agent_tasks.webhooks.list(task)]
    return {
        "agent_tasks": {one.task.id: {**one.task.model_dump(mode="json"), "head": one.head.hex()} for one in found},
        "agent_task_pieces": {
            one.task.id: {"pieces": [[piece.kind, piece.position, piece.part, piece.data.hex()] for piece in one.pieces]}
            for one in found
        },
        "agent_task_webhooks": {
            f"{one.task_id}/{one.owner}/{one.id}": {"data": one.data.hex(), "at": one.updated_at.isoformat()} for one in hooks
        },
    }
