"""The page of what models used and cost."""

from datetime import timedelta
from typing import Any

import pytest

from persist import Store
from persist.testing import FrozenClock
from tests.ui.visitor import Visitor

DAY = timedelta(days=1)
EVIL = '<script>alert("1")</script>\x1b[2J'


def called(state: Store, model: str, cost: int | None, ago: timedelta = timedelta(), **about: Any) -> None:
    at = state.runtime.clock() - ago
    state.usage.calls.record(model=model, at=at, session_id="s", cost_usd_micros=cost, token_input=1000, token_output=20, **about)


def test_what_yesterday_cost_and_on_which_model_is_said_first(state: Store, visitor: Visitor) -> None:
    called(state, "large", 1_500_000, DAY, agent="build")
    called(state, "small", 250_000, DAY, agent="build")
    called(state, "small", 40_000, agent="plan")
    called(state, "large", 9_000_000, 2 * DAY, agent="plan")
    main = visitor.get("/usage").main
    assert "Yesterday Thursday, January 01, 2026, in UTC It cost $1.7500 in 2 calls, most of it on large ." in main
    assert "Today so far: $0.0400 in 1 call." in main
    assert "2026-01-01: $1.7500" in main, "the bars say what they show"
    called(state, "other", 1_400_000, DAY)
    assert "the largest part of it on large" in visitor.get("/usage").main
    assert "all on small" in visitor.get("/usage", agent="build", model="small").main


def test_a_cost_whose_model_nobody_named_leads_nowhere(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    with state.begin() as tx:
        run = tx.workflows.runs.create("triage", trigger_id="one", current_phase="s").id
        made = tx.workflows.executions.start(skill="s", trigger_type="t", trigger_id="i", workflow_run_id=run)
        tx.workflows.executions.finish(made.id, success=True, cost_usd=1.25)
    clock.advance(delta=DAY)
    page = visitor.get("/usage")
    assert "It cost $1.2500 in 1 call, all without a model that was named. no model named $1.2500" in page.main
    assert "model=" not in page.text


def test_lines_are_of_days_or_of_groups_in_a_range_and_lead_on(state: Store, visitor: Visitor) -> None:
    for number in range(3):
        called(state, f"m{number}", 1_000_000 * (number + 1), number * DAY, owner="maria")
    called(state, "m3", None, owner="otto", error="too long")
    page = visitor.get("/usage", by="model")
    table = page.main.partition("Usage by model")[2]
    assert table.index("m2 $3.0000") < table.index("m1 $2.0000") < table.index("m0 $1.0000")
    assert 'href="/usage?by=day&amp;model=m2"' in page.text
    assert "m3 $0.00 + 1 unpriced" in page.main
    day = visitor.get("/usage", by="model", since="2026-01-01", until="2026-01-01").main.partition("Usage by model")[2]
    assert ("m1 $2.0000" in day, "m0 $1.0000" in day) == (True, False)
    first = visitor.get("/usage", by="model", owner="maria", limit=2)
    assert ("m2" in first.main, "next page" in first.main) == (True, True)
    (after,) = {part.split("&", 1)[0] for part in first.text.split("after=")[1:]}
    rest = visitor.get("/usage", by="model", owner="maria", limit=2, after=after.split('"')[0]).main
    assert ("m0 $1.0000" in rest, "first page" in rest) == (True, True)


def test_json_is_that_of_the_command(state: Store, visitor: Visitor) -> None:
    called(state, "large", 1_500_000)
    found = visitor.json("/usage", by="model", since="30d")
    assert [(one["group"], one["calls"], one["cost_usd_micros"]) for one in found["items"]] == [("large", 1, 1_500_000)]
    assert (found["cursor"], found["uncounted"]) == (None, {"runs": 0, "cost_usd_micros": 0})


def test_what_executions_cost_that_no_sum_has_is_said_beside(state: Store, visitor: Visitor) -> None:
    with state.begin() as tx:
        run = tx.workflows.runs.create("triage", trigger_id="one", current_phase="s").id
        made = tx.workflows.executions.start(skill="s", trigger_type="t", trigger_id="i", workflow_run_id=run)
        tx.workflows.executions.finish(made.id, success=True, cost_usd=1.25, counted_elsewhere=True)
    assert "executions of 1 run cost $1.2500 that no sum has" in visitor.get("/usage").main


def test_budgets_say_how_full_they_are(state: Store, visitor: Visitor) -> None:
    assert "No budgets." in visitor.get("/usage").main
    state.usage.budgets.set("owner:maria", "day", 2_000_000, timezone="Europe/Berlin")
    state.usage.budgets.set("agent:build", "total", max_tokens=1000)
    called(state, "large", 1_700_000, owner="maria", agent="build")
    main = visitor.get("/usage").main
    assert "owner:maria day Europe/Berlin how full the budget is 85 % $1.7000 of $2.0000" in main
    assert "agent:build total how full the budget is used up $1.7000 1,020 of 1,000 never" in main


@pytest.mark.parametrize("query", [{"since": "soon"}, {"since": "2026-13-01"}, {"until": "9999-12-31"}, {"by": "colour"}])
def test_what_cannot_be_asked_is_refused_with_a_sentence(visitor: Visitor, query: dict[str, str]) -> None:
    answer = visitor.get("/usage", None, **query)
    assert (answer.status, "Cannot be asked like this" in answer.main) == (400, True)


def test_hostile_names_and_odd_times_are_shown(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    called(state, EVIL, 1_000_000, DAY)
    now = clock()
    for at in (now.replace(year=1), now.replace(year=9999)):
        state.usage.calls.record(model=EVIL, at=at, session_id="s", owner="x" * 500)
    for by in ("day", "hour", "model", "owner", "scope"):
        answer = visitor.get("/usage", by=by)
        assert (answer.status, "<script>alert" in answer.text, "\x1b" in answer.text) == (200, False, False)
    assert "&lt;script&gt;alert" in visitor.get("/usage", by="model").text


def test_an_empty_page_says_what_would_fill_it(visitor: Visitor) -> None:
    main = visitor.get("/usage").main
    assert "No model was called." in main
    assert "tx.usage.calls.record adds a call of your own" in main


def test_what_many_executions_cost_is_added_up_when_it_is_asked_for(
    state: Store, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with state.begin() as tx:
        run = tx.workflows.runs.create("triage", trigger_id="one", current_phase="s").id
        made = tx.workflows.executions.start(skill="s", trigger_type="t", trigger_id="i", workflow_run_id=run)
        tx.workflows.executions.finish(made.id, success=True, cost_usd=1.25, counted_elsewhere=True)
    monkeypatch.setattr("persist.ui.pages.usage.has_many_executions", lambda work: True)
    found = visitor.get("/usage", by="model")
    assert ("$1.2500" in found.main, "What executions cost that no sum has" in found.main) == (False, True)
    assert "/usage?by=model&amp;beside=1" in found.text
    assert "executions of 1 run cost $1.2500 that no sum has" in visitor.get("/usage", by="model", beside=1).main
