"""The page of the queue: what is ready, delayed or held and why, limits, schedules, and their switches."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persist import Store
from persist.testing import FrozenClock
from persist.ui.pages.queue import SECTION
from tests.ui.visitor import Visitor


def queued(state: Store, workflow: str, count: int = 1, **options: Any) -> None:
    with state.begin() as tx:
        for number in range(count):
            tx.workflows.runs.create(
                workflow, trigger_id=f"{workflow}/{number}", current_phase="wait", status="queued", **options
            )


def test_an_empty_queue_says_what_would_fill_it(visitor: Visitor) -> None:
    main = visitor.get("/queue").main
    assert "0 ready" in main
    assert "No run is ready to start." in main
    assert "There are no limits." in main
    assert "There are no schedules." in main


def test_runs_are_ready_delayed_or_held_for_a_reason(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    queued(state, "free", 2)
    queued(state, "off")
    queued(state, "full", 2)
    queued(state, "keyed", concurrency_key="agent:ann")
    queued(state, "later", not_before=clock() + timedelta(hours=2))
    with state.begin() as tx:
        tx.workflows.workflow_overrides.set("off", enabled=False, by="ines")
        tx.workflows.limits.set("workflow:full", 1, 5, timedelta(minutes=1))
        tx.usage.budgets.set("agent:ann", "total", 0)
    with state.begin() as tx:
        assert tx.workflows.runs.claim("w-1", lease=timedelta(minutes=1), workflow_name="full")
    main = visitor.get("/queue").main
    assert "5 ready" in main
    assert "1 delayed" in main
    assert "3 held" in main
    assert "free - 2 now ready" in main
    assert "off - 1 now held the workflow is switched off" in main
    assert "full - 1 now held 1 of 1 run at once under workflow:full" in main
    assert "keyed agent:ann 1 now held the budget agent:ann is used up" in main
    assert "1 of 1 full" in main
    assert "1 of 5 in 1 min" in main
    assert "later/0 now delayed in 2 h" in main


def test_queued_runs_have_pages_and_json_is_that_of_the_command(state: Store, visitor: Visitor) -> None:
    queued(state, "many", 3)
    first = visitor.json("/queue", limit=2)
    assert [item["trigger_id"] for item in first["items"]] == ["many/0", "many/1"]
    main = visitor.get("/queue", limit=2, after=first["cursor"]).main
    assert "many/2" in main
    assert "many/0" not in main
    assert visitor.get("/queue", after="nonsense").status == 400


def test_schedules_tell_their_next_fires_there_and_here(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    clock.set(datetime(2026, 3, 28, 12, tzinfo=UTC))
    with state.begin() as tx:
        tx.workflows.schedules.set("nightly", workflow_name="report", cron="30 2 * * *", timezone="Europe/Berlin")
        tx.workflows.schedules.set("moved", workflow_name="report", cron="0 9 * * *")
        tx.workflows.cron_overrides.set("moved", schedule="0 7 * * *", by="ines")
    page = visitor.get("/queue")
    # the clocks of Berlin skip half past two on the 29th
    assert "Sun 29 Mar 2026 03:00:00 CEST in 13 h · 2026-03-29 01:00 UTC" in page.main
    assert "Mon 30 Mar 2026 02:30:00 CEST" in page.main
    assert "Tue 31 Mar 2026 02:30:00 CEST" in page.main
    assert "01 Apr 2026 02:30" not in page.main
    assert "0 7 * * * UTC, instead of 0 9 * * *" in page.main
    assert "Sun 29 Mar 2026 07:00:00 UTC" in page.main


def test_a_schedule_that_cannot_fire_says_why(state: Store, visitor: Visitor) -> None:
    with state.begin() as tx:
        tx.workflows.schedules.set("odd", workflow_name="report", cron="0 9 * * *")
        tx.workflows.cron_overrides.set("odd", schedule="@reboot")
    assert "cannot be scheduled" in visitor.get("/queue").main


@pytest.mark.parametrize("on", [True, False])
def test_switches_of_workflows_and_schedules(state: Store, changer: Visitor, on: bool) -> None:
    queued(state, "a/b")
    with state.begin() as tx:
        tx.workflows.schedules.set("daily", workflow_name="a/b", cron="0 9 * * *")
        tx.workflows.workflow_overrides.set("a/b", enabled=not on)
        tx.workflows.cron_overrides.set("daily", enabled=not on)
    page = changer.get("/queue")
    word = "on" if on else "off"
    for address in (f"/queue/workflows/a%252Fb/{word}", f"/queue/schedules/daily/{word}"):
        assert address in page.text
        assert changer.post(address, back="/queue").headers["location"] == "/queue"
    assert f"Switched the schedule daily {word}" in changer.get("/queue").main
    with state.read() as tx:
        (workflow,), (cron,) = tx.workflows.workflow_overrides.all(), tx.workflows.cron_overrides.all()
    assert (workflow.enabled, workflow.updated_by, cron.enabled, cron.updated_by) == (on, "ui", on, "ui")


def test_who_only_looks_switches_nothing(state: Store, visitor: Visitor) -> None:
    queued(state, "flow")
    assert "<form" not in visitor.get("/queue").text
    for action in SECTION.actions:
        assert visitor.post(action.path.format(name="flow")).status == 403
    with state.read() as tx:
        assert not tx.workflows.workflow_overrides.all()
