"""Which status of a run follows which."""

from itertools import product

import pytest

from persist.errors import TransitionError
from persist.workflows.schemas import ACTIVE, TERMINAL, TRANSITIONS, RunStatus, allowed, check_transition
from tests.cases import each

MAY = {
    "queued": "running cancelled",
    "running": "paused succeeded failed cancelled queued",
    "paused": "running succeeded failed cancelled",
    "succeeded": "",
    "failed": "running",
    "cancelled": "running",
}
PAIRS = list(product(RunStatus, RunStatus))


@each(("current", "requested"), PAIRS, ids=lambda status: str(status))
def test_a_status_follows_another_or_is_refused(current: RunStatus, requested: RunStatus) -> None:
    may = requested in MAY[current].split()
    assert allowed(current, requested) is may
    if may:
        check_transition("run_1", current, requested)
        return
    with pytest.raises(TransitionError) as refused:
        check_transition("run_1", current, requested)
    assert (refused.value.current, refused.value.requested) == (current.value, requested.value)
    assert "run_1" in refused.value.subject


def test_every_status_has_its_row() -> None:
    assert {status.value for status in TRANSITIONS} == set(MAY) == {status.value for status in RunStatus}


def test_nothing_follows_a_word_that_this_version_does_not_know() -> None:
    for status in RunStatus:
        assert not allowed("dreaming", status)
    with pytest.raises(TransitionError) as refused:
        check_transition("run_1", "dreaming", RunStatus.FAILED)
    assert refused.value.current == "dreaming"


def test_the_words_for_the_end_and_for_work_at_hand() -> None:
    assert {"succeeded", "failed", "cancelled"} == TERMINAL
    assert set(ACTIVE) == {"running", "paused"}


def test_an_end_is_left_by_a_restart_alone() -> None:
    assert {following for status in TERMINAL for following in TRANSITIONS[status]} == {RunStatus.RUNNING}
