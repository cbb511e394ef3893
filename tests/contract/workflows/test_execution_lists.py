"""Lists of executions: their order, their pages, and what no list reads."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.workflows.schemas import Execution
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.making import (
    HARD_TEXT,
    NOT_LABELS,
    NOT_LIMITS,
    NOT_OPTIONAL_LABELS,
    SKILL,
    TRIGGER,
    done,
    execution,
    executions,
    finish,
    ids,
    make_run,
    pages,
    plant_execution,
    refused,
    refused_at,
    start,
)
from tests.contract.workflows.scenes import EVERY_COLUMN


@pytest.fixture
def ten(store: Any, clock: Any) -> list[str]:
    """Ten executions, oldest first; pairs of them share their instant."""
    made = []
    for number in range(10):
        clock.advance(seconds=number % 2)
        made.append(start(store, skill=("a:x", "b:x", "a:y")[number % 3], trigger_id=f"t{number % 2}"))
    return made


# ---------------------------------------------------------------- order and pages


def test_newest_started_first_and_ids_break_ties(store: Any, ten: list[str]) -> None:
    assert list(pages(store)) == [ten[::-1]]
    with store.read() as tx:
        assert ids(tx.workflows.executions.running()) == ten[::-1]


def test_no_executions_are_one_empty_page(store: Any) -> None:
    assert list(pages(store)) == [[]]
    with store.read() as tx:
        assert tx.workflows.executions.running() == []
        assert tx.workflows.executions.recent(SKILL) == []


@each(("limit", "sizes"), [(1, [1] * 10), (3, [3, 3, 3, 1]), (5, [5, 5]), (10, [10]), (11, [10])])
def test_pages_hold_every_execution_once(store: Any, ten: list[str], limit: int, sizes: list[int]) -> None:
    found = list(pages(store, limit=limit))
    assert [len(page) for page in found] == sizes
    assert [id for page in found for id in page] == ten[::-1]


def test_what_starts_while_paging_moves_nothing(store: Any, clock: Any, ten: list[str]) -> None:
    seen: list[str] = []
    for page in pages(store, limit=3):
        seen += page
        clock.advance(seconds=1)
        start(store)
    assert seen == ten[::-1]


def test_skill_and_trigger_filter_alone_and_together(store: Any, ten: list[str]) -> None:
    def expected(skill: str | None, trigger: str | None) -> list[str]:
        rows = [execution(store, id) for id in ten[::-1]]
        return ids(row for row in rows if skill in (None, row.skill) and trigger in (None, row.trigger_id))

    for skill in (None, "a:x", "a:y", "a", "A:X", "%"):
        for trigger in (None, "t0", "t1", "t"):
            assert executions(store, skill=skill, trigger_id=trigger) == expected(skill, trigger)
    assert [id for page in pages(store, skill="a:x", limit=2) for id in page] == expected("a:x", None)


def test_a_cursor_belongs_to_its_list_and_filters(store: Any, ten: list[str]) -> None:
    with store.read() as tx:
        verbs = tx.workflows.executions
        cursor = verbs.list(skill="a:x", limit=1).cursor
        assert verbs.list(skill="a:x", limit=2, after=cursor).items
        for other in ({}, {"skill": "b:x"}, {"skill": "a:x", "trigger_id": "t0"}, {"skill": "a:x", "error_contains": "a"}):
            with pytest.raises(InvalidValue, match="cursor"):
                verbs.list(after=cursor, **other)
        for page in (verbs.list(trigger_id="t0", limit=1), verbs.list(error_contains="t0", limit=1)):
            if page.cursor is not None:
                with pytest.raises(InvalidValue, match="cursor"):
                    verbs.list(skill="t0", after=page.cursor)


def test_recent_is_the_newest_of_one_skill(store: Any, ten: list[str]) -> None:
    of_skill = [id for number, id in enumerate(ten) if number % 3 == 0][::-1]
    with store.read() as tx:
        verbs = tx.workflows.executions
        assert ids(verbs.recent("a:x")) == of_skill
        assert ids(verbs.recent("a:x", limit=2)) == of_skill[:2]
        assert verbs.recent("a") == []


def test_recent_is_ten_unless_told(store: Any) -> None:
    made = [start(store) for _ in range(12)]
    with store.read() as tx:
        assert ids(tx.workflows.executions.recent(SKILL)) == made[:1:-1]


def test_running_is_what_has_not_finished(store: Any, ten: list[str]) -> None:
    finish(store, ten[3])
    finish(store, ten[7], success=False)
    with store.read() as tx:
        found = tx.workflows.executions.running()
    assert ids(found) == [id for id in ten[::-1] if id not in (ten[3], ten[7])]
    assert {row.success for row in found} == {None}


def test_lists_show_the_same_values_as_get(store: Any) -> None:
    run = make_run(store).id
    full = {"cost_usd": 0.5, "extension_status": {"a": [1]}, "error": HARD_TEXT, "turns": 2, "stop_reason": "x"}
    id = start(store, repo="acme/site", issue_number=1, workflow_run_id=run, session_id="log")
    with store.read() as tx:
        assert tx.workflows.executions.running() == [tx.workflows.executions.get(id)]
    finish(store, id, success=False, **full)
    with store.read() as tx:
        verbs = tx.workflows.executions
        one = [verbs.get(id)]
        assert verbs.list().items == verbs.recent(SKILL) == verbs.for_run(run) == one


# ---------------------------------------------------------------- what no list and no record reads


def test_only_the_verbs_for_output_text_read_it(counted_store: Any, statements: list[str]) -> None:
    store = counted_store
    assert "output_text" not in Execution.model_fields
    run = make_run(store).id
    id = done(store, workflow_run_id=run)
    with store.begin() as tx:
        tx.workflows.executions.set_output(id, "x" * 300_000)
    statements.clear()
    with store.read() as tx:
        verbs = tx.workflows.executions
        verbs.get(id)
        assert len(verbs.list(skill=SKILL, trigger_id=TRIGGER).items) == 1
        verbs.list(error_contains="a")
        assert len(verbs.recent(SKILL)) == 1
        verbs.running()
        assert len(verbs.for_run(run)) == 1
        verbs.should_run(SKILL, TRIGGER)
        verbs.is_running(SKILL, TRIGGER)
        verbs.is_completed(SKILL, TRIGGER)
        verbs.consecutive_failures(SKILL)
        verbs.stats()
        verbs.daily_stats(2)
        verbs.hourly_stats(2)
        verbs.chat_threads()
        verbs.chat_thread(TRIGGER)
    on_executions = [statement for statement in statements if re.search(r"\bexecutions\b", statement)]
    assert len(on_executions) >= 15
    assert not [statement for statement in on_executions if "output_text" in statement or EVERY_COLUMN.search(statement)]
    with store.read() as tx:
        assert tx.workflows.executions.output_text(id) == "x" * 300_000
    assert "output_text" in "".join(statements)


def test_a_list_is_one_statement(counted_store: Any, statements: list[str]) -> None:
    for _ in range(5):
        start(counted_store)
    with counted_store.read() as tx:
        tx.workflows.executions.list(limit=2)
    statements.clear()
    with counted_store.read() as tx:
        tx.workflows.executions.list(limit=2)
    assert len([statement for statement in statements if "executions" in statement]) == 1


# ---------------------------------------------------------------- bad values


def test_lists_refuse_what_they_cannot_mean(store: Any) -> None:
    run = make_run(store).id
    id = start(store, workflow_run_id=run)
    with store.begin() as tx:
        verbs = tx.workflows.executions
        for name in ("skill", "trigger_id", "error_contains"):
            refused(verbs.list, name, NOT_OPTIONAL_LABELS)
        refused(verbs.list, "error_contains", ["x" * 1001])
        assert verbs.list(error_contains="%" * 1000).items == []
        refused(verbs.list, "limit", [*NOT_LIMITS, 1001])
        refused(verbs.list, "after", [*NOT_LABELS, "nonsense", "a" * 100])
        refused(verbs.recent, "limit", [*NOT_LIMITS, 1001], SKILL)
        refused_at(verbs.recent, 0, "skill", [*NOT_LABELS, None], SKILL)
        refused_at(verbs.for_run, 0, "id", [*NOT_LABELS, None], run)
        assert ids(verbs.list(limit=1000).items) == [id]


def test_instants_of_any_age_page(store: Any, raw: Raw) -> None:
    at = datetime(2001, 9, 9, 1, 46, 40, 1000, tzinfo=UTC)
    made = [plant_execution(raw, f"e{number}", at - timedelta(milliseconds=number // 2), skill="s") for number in range(8)]
    expected = sorted(made, key=lambda id: (-(int(id[1:]) // 2), id), reverse=True)
    assert [id for page in pages(store, limit=3) for id in page] == expected
