"""The first page."""

from datetime import timedelta

import pytest

from persist import Store
from persist.testing import FrozenClock
from tests.ui.test_approvals import asked, gate
from tests.ui.visitor import Visitor


def test_a_new_store_says_what_would_fill_the_page(visitor: Visitor) -> None:
    main = visitor.get("/").main
    for sentence in ("Nothing waits for a person.", "No workflow runs.", "No answer is being written.", "No run is ready."):
        assert sentence in main
    assert "0 wait for a person" in main


def test_it_tells_what_runs_waits_failed_and_cost(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    gate(state, "deploy", summary="Shall it go out?")
    session, _ = asked(state, approval={"id": "ap"})
    with state.begin() as tx:
        tx.workflows.runs.create("review", trigger_id="pr", current_phase="read", status="queued")
        failed = tx.workflows.runs.create("import", trigger_id="feed", current_phase="fetch").id
        tx.workflows.runs.finish(failed, "failed", error="the feed answered 504")
        tx.usage.budgets.set("owner:ines", "day", 1_000_000)
        tx.usage.calls.record(model="m", owner="ines", session_id=session, cost_usd_micros=900_000, at=clock())
        tx.usage.calls.record(model="m", owner="ines", session_id=session, cost_usd_micros=2_000, at=clock() - timedelta(days=1))
    with state.begin() as tx:
        assert tx.workflows.runs.claim("worker-7", lease=timedelta(minutes=5))
    clock.advance(seconds=60)
    with state.begin() as tx:
        tx.workflows.runs.create("digest", trigger_id="d", current_phase="write", status="queued")
    clock.advance(seconds=120)
    with state.record(session) as recorder:
        recorder.feed({"type": "start", "messageId": "m-1"})
        main = visitor.get("/").main
        recorder.feed({"type": "finish"})
    assert "2 wait for a person 1 running 1 answers being written 1 failed in 24 hours 1 ready in the queue" in main
    assert "flow-deploy: deploy yes or no 3 min ago Shall it go out?" in main
    assert "Tidy up: bash approval" in main
    assert "review read began 3 min ago · by worker-7, whose lease ends in 2 min" in main
    assert "Tidy up live coder for ines · began now" in main
    assert "import failed · error 3 min ago in fetch the feed answered 504" in main
    assert "$0.9000 cost today" in main
    assert "$0.9020 in all" in main
    assert "owner:ines each day" in main
    assert "$0.9000 of $1.00" in main
    assert "the oldest waits for 2 min" in main


def test_days_that_are_over_are_looked_at_again_after_a_while(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    def spend(micros: int, days: int) -> None:
        with state.begin() as tx:
            tx.usage.calls.record(model="m", instance_id="i", cost_usd_micros=micros, at=clock() - timedelta(days=days))

    spend(1_000_000, 1)
    assert "$1.0000 in all" in visitor.get("/").main
    spend(2_000_000, 2)
    spend(4_000_000, 0)
    assert "$5.0000 in all" in visitor.get("/").main
    clock.advance(seconds=700)
    assert "$7.0000 in all" in visitor.get("/").main


def test_the_day_before_yesterday_is_over(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    with state.begin() as tx:
        tx.workflows.runs.finish(tx.workflows.runs.create("old", trigger_id="t", current_phase="p").id, "failed", error="x")
    clock.advance(delta=timedelta(hours=25))
    assert "No run that began in the last 24 hours failed." in visitor.get("/").main


def test_json_is_that_of_runs_stats(state: Store, visitor: Visitor) -> None:
    gate(state, "deploy")
    found = visitor.json("/")
    assert found["runs"]["paused"] == 1
    assert set(found) == {"runs", "executions", "days"}


@pytest.mark.parametrize("path", ["/", "/approvals", "/runs", "/queue"])
def test_few_statements_however_much_there_is(statements: list[str], state: Store, visitor: Visitor, path: str) -> None:
    """Nothing is read once per row."""
    counts = []
    visitor.get(path)  # the first look opens a connection
    for _ in range(2):
        for number in range(3):
            gate(state, f"g{number}")
            asked(state, approval={"id": "ap"})
            with state.begin() as tx:
                run = tx.workflows.runs.create("import", trigger_id="feed", current_phase="fetch").id
                tx.workflows.runs.create("r", trigger_id="t", current_phase="p")
                tx.workflows.runs.create(f"q{number}", trigger_id="t", current_phase="p", status="queued")
                tx.workflows.schedules.set(f"s{number}", workflow_name="r", cron="@daily")
                tx.workflows.runs.finish(run, "failed", error="x")
        statements.clear()
        assert visitor.get(path).status == 200
        counts.append(len(statements))
    assert counts[0] == counts[1] <= 30
