"""What the processes of the tests of families run: `python -m tests.concurrency.family_worker URL`.

Each takes commands from stdin, one JSON list a line, at once, and answers each on stdout with a JSON value.
"""

import json
import sys
from typing import Any

from persist import Store
from persist.errors import Conflict, NotFound, TransitionError
from persist.workflows.schemas import Lease


def end(store: Store, child: str, verb: str, lease: dict[str, Any] | None = None) -> bool:
    """End a child -> whether this call has done it."""
    runs, approvals = store.workflows.runs, store.workflows.approvals
    held = None if lease is None else Lease.model_validate(lease)
    try:
        if verb == "cancel":
            return runs.cancel(child)
        if verb == "cascade":
            return runs.cancel(child, cascade=True)
        if verb == "reject":
            (gate,) = approvals.pending(workflow_run_id=child)
            return approvals.resolve_and_fail(gate.id).status == "failed"
        if held is not None and verb == "complete":
            return runs.complete(held).status == "succeeded"
        if held is not None and verb == "release":
            runs.release(held, error="503")
            return True
        return (
            runs.finish(child, "failed" if verb == "fail" else "succeeded", error="503" if verb == "fail" else None) is not None
        )
    except (Conflict, TransitionError):
        return False


def grow(store: Store, parent: str, many: int) -> int:
    """Create a chain of runs below the parent, end every second one, and stop where a run has ended -> how many were created."""
    created = 0
    try:
        for number in range(many):
            child = store.workflows.runs.create("child", trigger_id="t", current_phase="p", parent_run_id=parent)
            created += 1
            if number % 2:
                end(store, child.id, "finish")
            else:
                parent = child.id
    except (Conflict, NotFound):
        pass
    return created


def expire(store: Store) -> list[str]:
    return [gate.id for gate in store.workflows.approvals.expire_due()]


COMMANDS: dict[str, Any] = {"end": end, "grow": grow, "expire": expire}

if __name__ == "__main__":
    with Store.open(sys.argv[1]) as opened:
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            command, *arguments = json.loads(line)
            print(json.dumps(COMMANDS[command](opened, *arguments)), flush=True)
