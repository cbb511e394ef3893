"""The table of allowed status transitions of a run. Pure."""

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
"""By status, the statuses that may follow. A failed or cancelled run returns to running only by `restart`."""

TERMINAL = frozenset({_SUCCEEDED, _FAILED, _CANCELLED})
ACTIVE = (_RUNNING, _PAUSED)
"""The statuses that `list_active` shows."""


def allowed(current: str, requested: RunStatus) -> bool:
    """Whether the requested status may follow; nothing may follow a status that this version does not know."""
    return requested in TRANSITIONS.get(current, frozenset())  # type: ignore[call-overload]  # a StrEnum is found by its text


def check_transition(run_id: str, current: str, requested: RunStatus) -> None:
    """Raises TransitionError unless the requested status may follow."""
    if not allowed(current, requested):
        raise TransitionError(f"workflow run {run_id!r}", str(current), str(requested))
