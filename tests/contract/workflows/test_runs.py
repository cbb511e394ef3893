"""One run: created, read, found by its trigger, and what holds for every verb that writes to one."""

from datetime import timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue, TransitionError
from persist.workflows.schemas import RunStatus, WorkflowRun
from tests.contract.conftest import Raw
from tests.contract.workflows.making import plant
from tests.contract.workflows.scenes import ENDED, NESTED, NOT_ENDED, NOWHERE, STATUSES, TRIGGER, ask, do, make, stored


def test_a_run_comes_back_as_it_was_created(store: Any, other: Any, clock: Any) -> None:
    made = make(store, context=NESTED, repo="shop", issue_number=7, max_restarts=5, id="run_1")
    now = clock()
    given: dict[str, Any] = {
        **{"id": "run_1", "workflow_name": "build", "trigger_id": TRIGGER, "repo": "shop", "issue_number": 7},
        **{"current_phase": "plan", "status": RunStatus.RUNNING, "restart_count": 0, "max_restarts": 5, "lease_token": 0},
        **{"started_at": now, "updated_at": now, "priority": 0, "attempt": 1, "phase_history": [], "context": NESTED},
    }
    assert made == WorkflowRun(**{**dict.fromkeys(WorkflowRun.model_fields), **given})
    assert stored(other, "run_1") == made


def test_what_is_left_out_has_its_default(store: Any) -> None:
    made = make(store)
    assert made.id.startswith("run_")
    assert (made.status, made.max_restarts) == (RunStatus.RUNNING, 3)
    assert (made.repo, made.issue_number, made.context) == (None, None, None)
    assert make(store).id != made.id


def test_an_empty_context_is_not_an_absent_one(store: Any) -> None:
    assert make(store, context={}).context == {}


def test_a_run_begins_in_any_status(store: Any, clock: Any) -> None:
    for status in STATUSES:
        made = make(store, status=status.value)
        assert made.status is status
        assert made.finished_at == (clock() if status in ENDED else None)


@pytest.mark.parametrize("status", STATUSES)
def test_a_trigger_leads_to_its_run_that_has_not_ended(store: Any, status: RunStatus) -> None:
    made = make(store, status=status)
    make(store, trigger_id="another")
    assert ask(store, "get_by_trigger", TRIGGER) == (made if status in NOT_ENDED else None)
    assert ask(store, "has_run_for_trigger", TRIGGER) is True


def test_of_several_runs_of_a_trigger_the_newest_counts(store: Any, clock: Any) -> None:
    old = make(store, id="run_9")
    clock.advance(seconds=1)
    paused = make(store, status="paused", id="run_5")
    assert ask(store, "get_by_trigger", TRIGGER) == paused
    same_instant = make(store, status="queued", id="run_6")
    assert ask(store, "get_by_trigger", TRIGGER) == same_instant
    clock.advance(seconds=1)
    make(store, status="failed")
    assert ask(store, "get_by_trigger", TRIGGER) == same_instant
    for run in (same_instant, paused):
        do(store, "cancel", run.id)
    assert ask(store, "get_by_trigger", TRIGGER) == old


def test_an_unknown_trigger_has_no_run(store: Any) -> None:
    make(store)
    assert ask(store, "get_by_trigger", "another") is None
    assert ask(store, "has_run_for_trigger", "another") is False


SWITCHES: list[tuple[str, tuple[Any, ...]]] = [
    ("cancel", ()),
    ("pause", ()),
    ("resume", ()),
    ("admit", ()),
    ("expire_queued", ("too late",)),
    ("requeue", ()),
    ("restart", ()),
]


def test_switching_an_unknown_run_is_false(store: Any) -> None:
    made = make(store)
    for verb, more in SWITCHES:
        assert do(store, verb, NOWHERE, *more) is False
    assert ask(store, "count") == 1
    assert stored(store, made.id) == made


def test_a_word_that_this_version_does_not_know_is_shown_and_left_alone(store: Any, clock: Any, raw: Raw) -> None:
    """A newer program on the same database may have statuses of its own."""
    run = {"workflow_name": "build", "trigger_id": TRIGGER, "current_phase": "plan", "status": "dreaming"}
    id = plant(raw, "workflow_runs", id="run_new", **run, started_at=clock(), updated_at=clock())
    found = stored(store, id)
    assert (found.status, found.max_restarts, found.phase_history) == ("dreaming", None, [])
    assert [run.status for run in ask(store, "list").items] == ["dreaming"]
    for verb, more in SWITCHES:
        assert do(store, verb, id, *more) is False
    with pytest.raises(TransitionError) as refused:
        do(store, "finish", id, "failed")
    assert (refused.value.current, refused.value.requested) == ("dreaming", "failed")
    assert do(store, "recover_interrupted") == ([], [])
    assert do(store, "claim", "w", lease=timedelta(hours=1)) is None
    assert stored(store, id) == found


# What a run gathers while it goes through its phases: history, scratch and the statuses of its nodes.


def test_phases_are_kept_in_order_and_the_last_is_the_current_one(store: Any, other: Any, clock: Any) -> None:
    made = make(store)
    instants = []
    for phase, entry in [("plan", {"success": True, "summary": "é"}), ("code", None), ("review", ["a", 1])]:
        clock.advance(seconds=1)
        instants.append(clock().isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        changed = do(store, "append_phase", made.id, phase, entry)
    history = [
        {"phase": "plan", "timestamp": instants[0], "success": True, "summary": "é"},
        {"phase": "code", "timestamp": instants[1]},
        {"phase": "review", "timestamp": instants[2], "value": ["a", 1]},
    ]
    assert changed == made.model_copy(update={"current_phase": "review", "phase_history": history, "updated_at": clock()})
    assert stored(other, made.id) == changed


def test_an_entry_that_is_no_object_is_a_value(store: Any) -> None:
    for entry in [0, False, "", [], "done", 1.5]:
        (item,) = do(store, "append_phase", make(store).id, "plan", entry).phase_history
        assert (item["value"], type(item["value"])) == (entry, type(entry))
        assert item.keys() == {"phase", "timestamp", "value"}


def test_an_entry_may_bring_its_own_instant(store: Any) -> None:
    (item,) = do(store, "append_phase", make(store).id, "plan", {"phase": "plan", "timestamp": "yesterday"}).phase_history
    assert item == {"phase": "plan", "timestamp": "yesterday"}


def test_an_entry_of_another_phase_is_refused(store: Any) -> None:
    made = make(store)
    with store.begin() as tx:
        for other_phase in ("code", 7, None, ""):
            with pytest.raises(InvalidValue) as refused:
                tx.workflows.runs.append_phase(made.id, "plan", {"phase": other_phase})
            assert refused.value.path == "entry.phase"
            with pytest.raises(InvalidValue):
                tx.workflows.runs.finish(made.id, "failed", terminal_marker=("plan", {"phase": other_phase}))
        assert tx.workflows.runs.get(made.id) == made


def test_scratch_is_merged_at_its_top_level(store: Any, other: Any, clock: Any) -> None:
    made = make(store, context={"kept": 1})
    do(store, "merge_scratch", made.id, {"plan": {"a": 1, "b": 2}, "loops": 1})
    clock.advance(seconds=1)
    changed = do(store, "merge_scratch", made.id, {"plan": {"c": 3}, "gone": None, "ü": NESTED})
    scratch = {"plan": {"c": 3}, "loops": 1, "gone": None, "ü": NESTED}
    assert changed == made.model_copy(update={"scratch": scratch, "updated_at": clock()})
    assert stored(other, made.id) == changed


def test_an_empty_patch_makes_scratch_an_object(store: Any) -> None:
    assert do(store, "merge_scratch", make(store).id, {}).scratch == {}


def test_a_nodes_status_is_set_and_others_stay(store: Any, other: Any, clock: Any) -> None:
    made = make(store)
    do(store, "update_node_status", made.id, "lint", "running")
    do(store, "update_node_status", made.id, "test", {"state": "failed", "tries": 2})
    clock.advance(seconds=1)
    changed = do(store, "update_node_status", made.id, "lint", None)
    nodes = {"lint": None, "test": {"state": "failed", "tries": 2}}
    assert changed == made.model_copy(update={"node_statuses": nodes, "updated_at": clock()})
    assert stored(other, made.id) == changed
