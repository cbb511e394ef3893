"""What a run gathers while it goes through its phases: history, scratch and the statuses of its nodes."""

from typing import Any

import pytest

from persist.errors import InvalidValue
from tests.contract.workflows.scenes import BAD_LABELS, NESTED, do, make, stored

# ---------------------------------------------------------------- phases


def test_phases_are_kept_in_order_and_the_last_is_the_current_one(store: Any, other: Any, clock: Any) -> None:
    """(d) 2"""
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


def test_a_phase_has_a_name(store: Any) -> None:
    made = make(store)
    for bad in BAD_LABELS:
        with pytest.raises(InvalidValue) as refused:
            do(store, "append_phase", made.id, bad)
        assert refused.value.path == "phase"
    assert stored(store, made.id) == made


# ---------------------------------------------------------------- scratch


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


def test_a_patch_that_cannot_be_kept_changes_nothing(store: Any) -> None:
    made = make(store)
    changed = do(store, "merge_scratch", made.id, {"a": 1})
    unkept: list[Any] = [{"k": object()}, {"ok": 1, "k": float("inf")}, {1: 2}, [], "text", None, 7]
    with store.begin() as tx:
        for bad in unkept:
            with pytest.raises(InvalidValue) as refused:
                tx.workflows.runs.merge_scratch(made.id, bad)
            assert refused.value.path.startswith("scratch")
        assert tx.workflows.runs.get(made.id) == changed


# ---------------------------------------------------------------- nodes


def test_a_nodes_status_is_set_and_others_stay(store: Any, other: Any, clock: Any) -> None:
    made = make(store)
    do(store, "update_node_status", made.id, "lint", "running")
    do(store, "update_node_status", made.id, "test", {"state": "failed", "tries": 2})
    clock.advance(seconds=1)
    changed = do(store, "update_node_status", made.id, "lint", None)
    nodes = {"lint": None, "test": {"state": "failed", "tries": 2}}
    assert changed == made.model_copy(update={"node_statuses": nodes, "updated_at": clock()})
    assert stored(other, made.id) == changed


def test_a_node_has_a_name(store: Any) -> None:
    made = make(store)
    for bad in BAD_LABELS:
        with pytest.raises(InvalidValue) as refused:
            do(store, "update_node_status", made.id, bad, "running")
        assert refused.value.path == "node"
    assert stored(store, made.id) == made


def test_a_node_status_is_json(store: Any) -> None:
    made = make(store)
    with pytest.raises(InvalidValue) as refused:
        do(store, "update_node_status", made.id, "lint", {"at": object()})
    assert refused.value.path == "node_statuses.lint.at"
    assert stored(store, made.id) == made
