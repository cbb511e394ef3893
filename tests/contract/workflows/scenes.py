"""Short ways to say what the tests of runs say all the time, each verb in a transaction of its own."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import LeaseLost
from persist.workflows.schemas import Lease, RunStatus, WorkflowRun
from tests.async_portal import Portal

HOUR = timedelta(hours=1)
NOWHERE = "run_nowhere"
TRIGGER = "acme/shop#7"
NESTED = {"pr": {"number": 7, "labels": ["ä", "日本", "😀"], "draft": None}, "": [1.5, True], "nul": "\x00", "half": "\ud83d"}
STATUSES = list(RunStatus)
EVERY_COLUMN = re.compile(r"(SELECT|[.,])\s*\*")
"""In a statement that selects whatever there is."""

ENDED = [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED]
NOT_ENDED = [status for status in STATUSES if status not in ENDED]


def do(store: Any, verb: str, *args: Any, **options: Any) -> Any:
    """A writing verb of runs."""
    return getattr(store.workflows.runs, verb)(*args, **options)


def ask(store: Any, verb: str, *args: Any, **options: Any) -> Any:
    """A reading verb of runs."""
    return getattr(store.workflows.runs, verb)(*args, **options)


def make(store: Any, workflow_name: str = "build", **options: Any) -> WorkflowRun:
    """A run of build, running, or what the options make of it."""
    run: WorkflowRun = do(store, "create", workflow_name, **{"trigger_id": TRIGGER, "current_phase": "plan", **options})
    return run


def queue(store: Any, **options: Any) -> str:
    """The id of a queued run."""
    return make(store, status="queued", **options).id


def stored(store: Any, id: str) -> WorkflowRun:
    run: WorkflowRun = ask(store, "get", id)
    return run


def claim(store: Any, worker: str = "w1", *, lease: timedelta = HOUR, **options: Any) -> Lease | None:
    found: Lease | None = do(store, "claim", worker, lease=lease, **options)
    return found


def taken(store: Any, worker: str = "w1", *, lease: timedelta = HOUR, **options: Any) -> Lease:
    """The lease on the next run, which there is."""
    found = claim(store, worker, lease=lease, **options)
    assert found is not None
    return found


def held(store: Any, worker: str = "w1", *, lease: timedelta = HOUR, **options: Any) -> Lease:
    """A lease on a new run, which nothing else is queued before."""
    id = queue(store, **options)
    found = taken(store, worker, lease=lease)
    assert found.run_id == id
    return found


def start(store: Any, run: WorkflowRun | None = None, *, skill: str = "build:plan", **options: Any) -> str:
    """The id of an execution that runs, of that run or of the trigger alone."""
    of_run = {} if run is None else {"workflow_run_id": run.id, "trigger_id": run.trigger_id}
    with store.begin() as tx:
        given = {"trigger_type": "webhook", "trigger_id": TRIGGER, "skill": skill, **of_run, **options}
        return str(tx.workflows.executions.start(**given).id)


def end(store: Any, id: str, *, success: bool = True, **options: Any) -> None:
    assert store.workflows.executions.finish(id, success=success, **options)


def result(store: Any, id: str) -> tuple[bool | None, str | None]:
    """What became of an execution: success and error."""
    execution = store.workflows.executions.get(id)
    return execution.success, execution.error


class Around:
    """`store.step` or `store.phase` of either face, entered and left by a synchronous test, which sets attributes inside."""

    def __init__(self, block: Any, portal: Portal) -> None:
        self.block = getattr(block, "_target", block)
        self._portal = portal if hasattr(self.block, "__aenter__") else None

    def __enter__(self) -> Any:
        return self.block.__enter__() if self._portal is None else self._portal.call(self.block.__aenter__)

    def __exit__(self, *raised: Any) -> None:
        if self._portal is None:
            self.block.__exit__(*raised)
        else:
            self._portal.call(lambda: self.block.__aexit__(*raised))


def writes(store: Any, id: str, execution: str, lease: Lease | None) -> dict[str, Callable[[], Any]]:
    """Every write that a worker makes on its run, each in a transaction of its own."""

    def executions(verb: str, *args: Any, **options: Any) -> Callable[[], Any]:
        def write() -> Any:
            with store.begin() as tx:
                return getattr(tx.workflows.executions, verb)(*args, **options, lease=lease)

        return write

    def pause_for_approval() -> Any:
        return store.workflows.approvals.pause_for_approval(id, gate="g", summary="?", marker=("code", None), lease=lease)

    return {
        "append_phase": lambda: do(store, "append_phase", id, "code", lease=lease),
        "merge_scratch": lambda: do(store, "merge_scratch", id, {"a": 1}, lease=lease),
        "update_node_status": lambda: do(store, "update_node_status", id, "lint", "done", lease=lease),
        "start": executions("start", trigger_type="t", trigger_id="t", skill="build:x", workflow_run_id=id),
        "set_output": executions("set_output", execution, "text"),
        "finish execution": executions("finish", execution, success=True),
        "pause_for_approval": pause_for_approval,
        "pause": lambda: do(store, "pause", id, lease=lease),
        "finish": lambda: do(store, "finish", id, "succeeded", lease=lease),
    }


def assert_all_lost(store: Any, id: str, execution: str, lease: Lease | None) -> None:
    """That each write is refused, says so, and changes nothing."""
    before = stored(store, id)
    for name, write in writes(store, id, execution, lease).items():
        with pytest.raises(LeaseLost) as lost:
            write()
        assert (lost.value.run_id, lost.value.token) == (id, None if lease is None else lease.token), name
    assert stored(store, id) == before
    assert store.workflows.executions.output_text(execution) is None
    assert len(store.workflows.executions.for_run(id)) == 1
