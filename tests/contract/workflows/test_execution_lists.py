"""Lists of executions: their order, their pages, and what no list reads; and chats as their executions show them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persist.workflows.schemas import ChatThread, Execution
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.workflows.making import (
    HARD_TEXT,
    SKILL,
    TRIGGER,
    done,
    execution,
    executions,
    finish,
    ids,
    make_run,
    pages,
    plant,
    plant_execution,
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


def test_recent_is_the_newest_of_one_skill(store: Any, ten: list[str]) -> None:
    of_skill = [id for number, id in enumerate(ten) if number % 3 == 0][::-1]
    with store.read() as tx:
        verbs = tx.workflows.executions
        assert ids(verbs.recent("a:x")) == of_skill
        assert ids(verbs.recent("a:x", limit=2)) == of_skill[:2]
        assert verbs.recent("a") == []


def test_recent_is_ten_unless_told(store: Any) -> None:
    made = [start(store) for _ in range(12)]
    assert ids(store.workflows.executions.recent(SKILL)) == made[:1:-1]


def test_running_is_what_has_not_finished(store: Any, ten: list[str]) -> None:
    finish(store, ten[3])
    finish(store, ten[7], success=False)
    found = store.workflows.executions.running()
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


def test_only_the_verbs_for_output_text_read_it(counted_store: Any, statements: list[str]) -> None:
    store = counted_store
    assert "output_text" not in Execution.model_fields
    run = make_run(store).id
    id = done(store, workflow_run_id=run)
    store.workflows.executions.set_output(id, "x" * 300_000)
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
    assert store.workflows.executions.output_text(id) == "x" * 300_000
    assert "output_text" in "".join(statements)


def test_instants_of_any_age_page(store: Any, raw: Raw) -> None:
    at = datetime(2001, 9, 9, 1, 46, 40, 1000, tzinfo=UTC)
    made = [plant_execution(raw, f"e{number}", at - timedelta(milliseconds=number // 2), skill="s") for number in range(8)]
    expected = sorted(made, key=lambda id: (-(int(id[1:]) // 2), id), reverse=True)
    assert [id for page in pages(store, limit=3) for id in page] == expected


# Chats as their executions show them, with and without the messaging session.


NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
CHAT: dict[str, Any] = {"skill": "chat", "trigger_type": "chat"}


def thread(store: Any, trigger_id: str) -> ChatThread | None:
    found: ChatThread | None = store.workflows.executions.chat_thread(trigger_id)
    return found


def threads(store: Any, **options: Any) -> list[str]:
    return [one.session_id for one in store.workflows.executions.chat_threads(**options)]


def plant_session(raw: Raw, id: str) -> str:
    who = {"platform": "slack", "channel_id": "C1", "user_id": id}
    return plant(raw, "messaging_sessions", id=id, **who, created_at=NOW, last_activity_at=NOW)


def plant_message(raw: Raw, session_id: str, role: str, content: str, at: datetime) -> None:
    plant(raw, "messaging_messages", session_id=session_id, role=role, content=content, timestamp=at)


def test_a_thread_sums_up_its_turns(store: Any, raw: Raw) -> None:
    used = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 1000}
    plant_execution(
        raw, "e2", NOW + 60 * SECOND, trigger_id="mse_1", **CHAT, finished_at=NOW + 70 * SECOND, cost_usd=0.25, **used
    )
    plant_execution(raw, "e1", NOW, trigger_id="mse_1", **CHAT, finished_at=NOW + 500 * SECOND, input_tokens=1, success=False)
    plant_execution(raw, "e3", NOW + 80 * SECOND, trigger_id="mse_1", **CHAT)
    plant_execution(raw, "other", NOW - SECOND, trigger_id="mse_1", skill="build:plan", input_tokens=9)
    expected = ChatThread(
        session_id="mse_1",
        started_at=NOW,
        last_activity_at=NOW + 500 * SECOND,
        turns=3,
        total_tokens=126,
        cost_usd=0.25,
        last_message=None,
    )
    assert thread(store, "mse_1") == expected
    assert store.workflows.executions.chat_threads() == [expected]


def test_a_thread_without_numbers_has_zeros(store: Any) -> None:
    start(store, trigger_id="mse_1", **CHAT)
    found = thread(store, "mse_1")
    assert found is not None
    assert (found.turns, found.total_tokens, found.cost_usd, type(found.cost_usd)) == (1, 0, 0.0, float)
    assert found.started_at == found.last_activity_at == NOW


def test_a_running_turn_is_activity_from_its_start(store: Any, clock: Any) -> None:
    done(store, trigger_id="mse_1", **CHAT)
    later = clock.advance(seconds=60)
    start(store, trigger_id="mse_1", **CHAT)
    found = thread(store, "mse_1")
    assert found is not None
    assert (found.started_at, found.last_activity_at) == (NOW, later)


def test_latest_activity_first_and_ids_break_ties(store: Any, raw: Raw) -> None:
    for id, started, finished in (("old", 0, 900), ("b", 50, None), ("a", 10, 50), ("newest start", 60, None)):
        ended = None if finished is None else NOW + finished * SECOND
        plant_execution(raw, id, NOW + started * SECOND, trigger_id=id, **CHAT, finished_at=ended)
    assert threads(store) == ["old", "newest start", "a", "b"]
    assert threads(store, limit=2) == ["old", "newest start"]


def test_twenty_unless_told(store: Any) -> None:
    for number in range(22):
        start(store, trigger_id=f"mse_{number:02}", **CHAT)
    assert len(threads(store)) == 20
    assert len(threads(store, limit=1000)) == 22


def test_the_newest_words_of_the_assistant_are_shown(store: Any, raw: Raw) -> None:
    for session in ("mse_1", "mse_2"):
        start(store, trigger_id=plant_session(raw, session), **CHAT)
        assert thread(store, session) is not None
    plant_message(raw, "mse_1", "assistant", "newest", NOW + 2 * SECOND)
    plant_message(raw, "mse_1", "assistant", "inserted later, said earlier", NOW)
    plant_message(raw, "mse_1", "user", "a question", NOW + 3 * SECOND)
    plant_message(raw, "mse_2", "user", "no answer yet", NOW)
    shown = {one.session_id: one.last_message for one in store.workflows.executions.chat_threads()}
    assert shown == {"mse_1": "newest", "mse_2": None}
    plant_message(raw, "mse_1", "assistant", "newest of the same instant", NOW + 2 * SECOND)
    found = thread(store, "mse_1")
    assert found is not None
    assert (found.last_message, found.turns) == ("newest of the same instant", 1)


def test_what_the_assistant_said_is_any_text(store: Any) -> None:
    with store.begin() as tx:
        session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C1", user_id="U1")
        tx.messaging.messages.add(session.id, role="assistant", content=HARD_TEXT)
    start(store, trigger_id=session.id, **CHAT)
    found = thread(store, session.id)
    assert found is not None
    assert found.last_message == HARD_TEXT


def test_a_thread_outlives_its_messaging_session(store: Any, raw: Raw) -> None:
    start(store, trigger_id=plant_session(raw, "mse_1"), **CHAT)
    plant_message(raw, "mse_1", "assistant", "hello", NOW)
    raw.rows("DELETE FROM messaging_messages")
    raw.rows("DELETE FROM messaging_sessions")
    found = thread(store, "mse_1")
    assert found is not None
    assert (found.turns, found.last_message) == (1, None)


def test_a_session_without_turns_is_no_thread(store: Any, raw: Raw) -> None:
    start(store, trigger_id=plant_session(raw, "mse_1"), skill="chat:x")
    assert thread(store, "mse_1") is None
    assert thread(store, "unknown") is None
    assert threads(store) == []


def test_older_threads_follow_the_last_one_that_was_shown(store: Any, raw: Raw) -> None:
    for number in range(7):
        plant_execution(raw, f"e{number}", NOW + (number // 2) * SECOND, trigger_id=f"mse_{number}", **CHAT)
    everything = threads(store)
    assert len(everything) == 7
    found: list[str] = []
    while page := threads(store, limit=3, before=found[-1] if found else None):
        found += page
    assert found == everything
