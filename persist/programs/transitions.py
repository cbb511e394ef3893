"""Tables of allowed status transitions. Pure. A status that only raw writers use may become anything."""

from persist.errors import TransitionError
from persist.programs.schemas import SETTLED, ExecutionStatus, RunStatus

_RUNS: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.RUNNING: frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.INTERRUPTED}),
    RunStatus.INTERRUPTED: frozenset({RunStatus.RUNNING}),
    RunStatus.FAILED: frozenset({RunStatus.RUNNING}),
    RunStatus.COMPLETED: frozenset(),
}

_EXECUTIONS: dict[ExecutionStatus, frozenset[ExecutionStatus]] = {
    ExecutionStatus.PENDING: frozenset({ExecutionStatus.EXECUTING, ExecutionStatus.FAILED, ExecutionStatus.SKIPPED}),
    ExecutionStatus.EXECUTING: SETTLED,
    ExecutionStatus.COMPLETED: frozenset(),
    ExecutionStatus.FAILED: frozenset({ExecutionStatus.EXECUTING}),
    ExecutionStatus.SKIPPED: frozenset(),
}
"""failed -> executing is a retry."""


def check_run(id: str, current: str | None, to: RunStatus) -> None:
    """Raises TransitionError unless a run may change to that status."""
    allowed = _RUNS.get(current) if isinstance(current, RunStatus) else None
    if allowed is not None and to not in allowed:
        raise TransitionError(f"program run {id}", str(current), to.value)


def check_execution(id: int, current: str | None, to: ExecutionStatus) -> None:
    """Raises TransitionError unless an execution may change to that status."""
    allowed = _EXECUTIONS.get(current) if isinstance(current, ExecutionStatus) else None
    if allowed is not None and to not in allowed:
        raise TransitionError(f"execution {id}", str(current), to.value)
