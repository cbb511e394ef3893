"""Which status may follow which: a run, as a pure table."""

from persist.errors import TransitionError
from persist.workflows.schemas import RunStatus

_QUEUED, _RUNNING, _PAUSED = RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.PAUSED
_SUCCEEDED, _FAILED, _CANCELLED = RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED

TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    _QUEUED: frozenset({_RUNNING, _CANCELLED}),
    _RUNNING: frozenset({_PAUSED, _SUCCEEDED, _FAILED, _CANCELLED, _QUEUED}),
    _PAUSED: frozenset({_RUNNING, _SUCCEEDED, _FAILED, _CANCELLED}),
    _SUCCEEDED: frozenset(),
    _FAILED: frozenset({_RUNNING}),
    _CANCELLED: frozenset({_RUNNING}),
}
"""A failed or cancelled run goes back to running by `restart` alone."""

TERMINAL = frozenset({_SUCCEEDED, _FAILED, _CANCELLED})
ACTIVE = (_RUNNING, _PAUSED)
"""What `list_active` shows: work that somebody may be waiting for."""


def allowed(current: str, requested: RunStatus) -> bool:
    """Whether the status may follow; nothing follows a word this version does not know."""
    return requested in TRANSITIONS.get(current, frozenset())  # type: ignore[call-overload]  # a StrEnum is found by its text


def check_transition(run_id: str, current: str, requested: RunStatus) -> None:
    """TransitionError unless the status may follow."""
    if not allowed(current, requested):
        raise TransitionError(f"workflow run {run_id!r}", str(current), str(requested))
