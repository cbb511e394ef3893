"""Families: runs that were created for other runs, lists of them, cancelling them together, and what they cost."""

from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge
from persist.workflows.schemas import FailureKind, WorkflowRun
from tests.contract.conftest import Raw
from tests.contract.workflows.scenes import ENDED, NOWHERE, TRIGGER, ask, claim, do, end, held, make, start, stored

TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def family(store: Any, depth: int = 3, wide: int = 2) -> list[list[WorkflowRun]]:
    """A root and its descendants, level by level."""
    levels = [[make(store)]]
    for _ in range(depth):
        levels.append([make(store, parent_run_id=parent.id) for parent in levels[-1] for _ in range(wide)])
    return levels


def statuses(store: Any, levels: list[list[WorkflowRun]]) -> set[str]:
    return {stored(store, run.id).status for level in levels for run in level}


def spend(store: Any, run: WorkflowRun, **used: Any) -> None:
    end(store, start(store, run), **used)


def test_a_child_names_its_parent(store: Any, other: Any) -> None:
    parent = make(store)
    child = make(store, parent_run_id=parent.id)
    assert (parent.parent_run_id, child.parent_run_id) == (None, parent.id)
    assert stored(other, child.id) == child
    assert stored(other, parent.id) == parent
    (shown,) = ask(store, "list", limit=1).items
    assert shown.parent_run_id == parent.id
    with pytest.raises(NotFound):
        make(store, id="own", parent_run_id="own")  # a circle cannot be made


@pytest.mark.parametrize("status", ENDED)
def test_a_run_that_has_ended_gets_no_child(store: Any, raw: Raw, status: str) -> None:
    parent = make(store, status=status)
    with pytest.raises(Conflict, match=f"has ended \\({status}\\)"):
        make(store, parent_run_id=parent.id)
    assert raw.count("workflow_runs") == 1


@pytest.mark.parametrize("once", [{"idempotency_key": "k"}, {"unique_trigger": True}])
def test_a_replay_returns_the_child_and_no_child_of_another_parent(store: Any, once: dict[str, Any]) -> None:
    parent, another = make(store, "p"), make(store, "p")
    child = make(store, parent_run_id=parent.id, **once)
    assert make(store, parent_run_id=parent.id, **once) == make(store, **once) == child
    with pytest.raises(Conflict, match="another parent"):
        make(store, parent_run_id=another.id, **once)
    do(store, "finish", parent.id, "succeeded")
    assert make(store, parent_run_id=parent.id, **once) == child


def test_children_are_listed_as_runs_are(store: Any, clock: Any) -> None:
    parent = make(store)
    children = []
    for number in range(5):
        clock.advance(seconds=1)
        children.append(make(store, parent_run_id=parent.id, status="queued" if number % 2 else "running"))
    make(store, parent_run_id=children[0].id)
    make(store)
    spend(store, children[4], cost_usd=0.5, input_tokens=7)
    page = ask(store, "children", parent.id, limit=3)
    rest = ask(store, "children", parent.id, limit=3, after=page.cursor)
    assert rest.cursor is None
    found = [*page.items, *rest.items]
    assert [run.id for run in found] == [run.id for run in reversed(children)]
    assert (found[0].total_tokens, found[0].cost_usd) == (7, 0.5)
    assert [run.id for run in ask(store, "children", parent.id, status="queued").items] == [children[3].id, children[1].id]
    with pytest.raises(InvalidValue):
        ask(store, "children", children[0].id, after=page.cursor)
    assert ask(store, "children", children[1].id).items == []


def test_without_cascade_only_the_run_is_cancelled(store: Any) -> None:
    levels = family(store, depth=1)
    assert do(store, "cancel", levels[0][0].id) is True
    assert statuses(store, levels[1:]) == {"running"}


def test_with_cascade_everything_below_that_has_not_ended_is_cancelled(store: Any, clock: Any) -> None:
    levels = family(store, depth=4)
    sibling = make(store)
    done = levels[2][0]
    do(store, "finish", done.id, "succeeded")  # what is below it has not ended
    before = stored(store, done.id)
    told: list[str] = []
    store.on_run_finished(lambda run: told.append(run.id))
    now = clock.advance(seconds=1)
    assert do(store, "cancel", levels[0][0].id, reason="too dear", cascade=True) is True
    everybody = [run.id for level in levels for run in level]
    for id in everybody:
        run = stored(store, id)
        if id == done.id:
            assert run == before
        else:
            assert (run.status, run.failure_kind, run.finished_at) == ("cancelled", FailureKind.CANCELLED, now)
            assert run.context == {"error": "too dear"}
    assert sorted([*told, done.id]) == sorted(everybody)
    assert stored(store, sibling.id).status == "running"
    assert do(store, "cancel", levels[0][0].id, cascade=True) is False
    assert do(store, "cancel", NOWHERE, cascade=True) is False


def test_a_family_below_a_run_that_has_ended_is_cancelled(store: Any) -> None:
    levels = family(store, depth=2)
    root = levels[0][0].id
    do(store, "finish", root, "succeeded")
    assert do(store, "cancel", root) is False
    assert do(store, "cancel", root, cascade=True) is True
    assert stored(store, root).status == "succeeded"
    assert statuses(store, levels[1:]) == {"cancelled"}


def test_workers_and_gates_of_cancelled_descendants_are_told(store: Any) -> None:
    parent = make(store)
    lease = held(store, parent_run_id=parent.id)
    gate = store.workflows.approvals.request(lease.run_id, gate="review", summary="?")
    do(store, "cancel", parent.id, cascade=True)
    run = stored(store, lease.run_id)
    assert (run.lease_owner, run.lease_token) == (None, lease.token + 1)
    assert store.workflows.approvals.get(gate.id).status == "rejected"
    assert claim(store) is None


def test_a_reason_that_is_too_large_cancels_nobody(store: Any) -> None:
    levels = family(store, depth=1)
    with pytest.raises(PayloadTooLarge):
        do(store, "cancel", levels[0][0].id, reason="x" * 100_000, cascade=True)
    assert statuses(store, levels) == {"running"}


def test_the_totals_of_a_family_are_those_of_all_its_executions(store: Any) -> None:
    levels = family(store, depth=3)
    root = levels[0][0]
    for number, run in enumerate(run for level in levels for run in level):
        used = {name: 10**position * (number + 1) for position, name in enumerate(TOKENS)}
        spend(store, run, cost_usd=0.25, **used)
        start(store, run)  # one that runs still
    spend(store, make(store), input_tokens=10**9, cost_usd=10**6)
    do(store, "finish", levels[1][0].id, "failed")
    do(store, "cancel", levels[1][1].id)
    total = sum(range(1, 16))
    assert ask(store, "family", root.id).model_dump() == {
        "run_id": root.id,
        "runs": 15,
        "by_status": {"running": 13, "failed": 1, "cancelled": 1},
        "executions": 30,
        "input_tokens": total,
        "cache_creation_input_tokens": 10 * total,
        "cache_read_input_tokens": 100 * total,
        "output_tokens": 1000 * total,
        "total_tokens": 1101 * total,
        "cost_usd": 15 * 0.25,
    }
    leaf = ask(store, "family", levels[3][0].id)
    assert (leaf.runs, leaf.executions, leaf.cost_usd) == (1, 2, 0.25)


def test_absurd_numbers_of_tokens_are_added_up_to_the_greatest(store: Any) -> None:
    levels = family(store, depth=1)
    for run in levels[1]:
        spend(store, run, input_tokens=2**63 - 1)
    found = ask(store, "family", levels[0][0].id)
    assert (found.input_tokens, found.total_tokens, found.output_tokens) == (2**63 - 1, 2**63 - 1, 0)


def adopt(raw: Raw, child: WorkflowRun, parent: str) -> None:
    raw.rows("UPDATE workflow_runs SET parent_run_id = ? WHERE id = ?", parent, child.id)


def test_a_circle_of_parents_has_an_end(store: Any, raw: Raw) -> None:
    levels = family(store, depth=2, wide=1)
    runs = [run for (run,) in levels]
    adopt(raw, runs[0], runs[2].id)
    for run in runs:
        spend(store, run, cost_usd=1.0)
    for run in runs:
        found = ask(store, "family", run.id)
        assert (found.runs, found.cost_usd) == (3, 3.0)
    alone = make(store)
    adopt(raw, alone, alone.id)
    assert [run.id for run in ask(store, "children", alone.id).items] == [alone.id]
    assert do(store, "finish", alone.id, "succeeded").status == "succeeded"
    assert do(store, "cancel", runs[1].id, cascade=True) is True
    assert statuses(store, levels) == {"cancelled"}


def test_children_outlive_a_parent_that_is_gone(store: Any, raw: Raw) -> None:
    levels = family(store, depth=2)
    root, child = levels[0][0], levels[1][0]
    for level in levels:
        for run in level:
            spend(store, run, cost_usd=1.0)
    raw.rows("DELETE FROM workflow_runs WHERE id = ?", root.id)
    assert stored(store, child.id).parent_run_id == root.id
    assert len(ask(store, "children", root.id).items) == 2
    found = ask(store, "family", root.id)
    assert (found.runs, found.cost_usd) == (6, 6.0)
    assert do(store, "finish", child.id, "succeeded").status == "succeeded"
    assert do(store, "cancel", root.id, cascade=True) is True
    assert statuses(store, levels[2:]) == {"cancelled"}
    with pytest.raises(NotFound):
        make(store, trigger_id=TRIGGER, parent_run_id=root.id)
