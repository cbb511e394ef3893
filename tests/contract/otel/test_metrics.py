"""What a store counts: `metrics` on both faces, and the logger of statements."""

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest

from persist import AsyncStore
from persist.errors import BudgetExceeded, LeaseLost, NotFound, StoreBusy
from persist.settings import Settings
from persist.workflows import Worker
from persist.workflows.schemas import WorkflowRun
from tests.contract.chat.scenes import MODEL, create, say, text, turn
from tests.contract.faces import every_way
from tests.contract.otel.scenes import fail_after_writing


@every_way
def test_transactions_are_counted_by_how_they_ended(store: Any) -> None:
    before = store.metrics(database=False).transactions
    session = create(store)
    fail_after_writing(store, session, ZeroDivisionError())
    store.chat.sessions.list()
    with store.begin():
        assert store.metrics(database=False).writing == 1
    after = store.metrics(database=False)
    grown = {name: number - before[name] for name, number in after.transactions.items()}
    assert (grown["committed"], grown["rolled_back"], grown["unknown"]) == (2, 1, 0)
    assert grown["read"] == 1
    assert (after.writing, after.reading) == (0, 0)
    assert after.wait_seconds > 0 < after.connections
    assert json.loads(after.model_dump_json()) == after.model_dump()


@every_way
def test_recorders_are_counted(store: Any) -> None:
    session = create(store)
    chunks = turn(*text("héllo", "wörld"))
    with store.record(session) as recorder:
        for chunk in chunks:
            recorder.feed(chunk)
        running = store.metrics(database=False)
        assert (running.recorders, running.chunks) == (1, len(chunks))
    done = store.metrics(database=False)
    assert (done.recorders, done.recorders_ended, done.chunks, done.text_bytes) == (0, 1, len(chunks), 12)
    assert done.folds == 1
    assert done.recorder_commits >= len(chunks) - 3
    assert (done.groups > 0) == (done.largest_group > 0) == hasattr(store, "_target"), "an AsyncStore commits in groups"
    assert done.grouped >= done.groups


@every_way
def test_a_recorder_counts_from_when_it_is_entered(open_store: Any) -> None:
    store = open_store(settings=Settings(record_within_budget=True))
    session, made = create(store), []
    made.append(store.record(session))
    made.append(store.record("ses_unknown"))
    with pytest.raises(NotFound), made[1]:
        pass
    with store.begin() as tx:
        tx.usage.budgets.set("agent:build", "total", max_tokens=0)
    made.append(store.record(session))
    with pytest.raises(BudgetExceeded), made[2]:
        pass
    found = store.metrics(database=False)
    assert (found.recorders, found.recorders_ended) == (0, 0)
    with store.begin() as tx:
        tx.usage.budgets.delete("agent:build", "total")
    with made[2]:
        assert store.metrics(database=False).recorders == 1
    found = store.metrics(database=False)
    assert (found.recorders, found.recorders_ended) == (0, 1)


def test_a_recorder_whose_entering_is_cancelled_is_not_open(database_url: str) -> None:
    """It may be entered again, as after any other failure to enter."""

    async def main() -> None:
        async with await AsyncStore.open(database_url) as store:
            session = (await store.chat.sessions.create(agent="build", model=MODEL)).id
            cancelled = 0
            for steps in range(8):
                recorder = store.record(session)
                task = asyncio.ensure_future(recorder.__aenter__())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                ended = await asyncio.gather(task, return_exceptions=True)
                cancelled += isinstance(ended[0], asyncio.CancelledError)
                if ended[0] is recorder:
                    await recorder.close()
                assert (await store.metrics(database=False)).recorders == 0
                if ended[0] is not recorder:
                    async with recorder:
                        await recorder.feed({"type": "start"})
                        assert (await store.metrics(database=False)).recorders == 1
            found = await store.metrics(database=False)
            assert (found.recorders, found.recorders_ended, cancelled > 0) == (0, 8, True)

    asyncio.run(main())


def test_what_waits_in_the_database_is_asked_for(store: Any, clock: Any) -> None:
    for number in range(3):
        store.workflows.runs.create("triage", trigger_id=f"issue/{number}", current_phase="plan", status="queued")
    clock.advance(seconds=90)
    found = store.metrics()
    assert (found.queue_depth, found.queue_age_seconds) == (3, 90.0)
    assert (found.event_log_lag, found.consumers) == (0, {})
    store.workflows.runs.claim("worker", lease=timedelta(minutes=1))
    assert store.metrics().queue_depth == 2
    assert store.metrics(database=False).queue_depth is None


def test_consumers_that_are_behind(store: Any) -> None:
    store.switch_events(True)
    store.events.consumers.create("mirror", at="now")
    create(store)
    create(store)
    found = store.metrics()
    assert found.event_log_lag == found.consumers["mirror"] == 2


def test_retries_are_counted_by_cause(open_store: Any) -> None:
    store = open_store(sleep=lambda seconds: None)
    tries: list[int] = []

    def contended(tx: Any) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise StoreBusy(0.0)

    store.transact(contended)
    assert store.metrics(database=False).retries == {"lock": 2}


def test_a_lost_lease_is_counted(store: Any) -> None:
    inner = getattr(store, "_target", store)
    store.workflows.runs.create("triage", trigger_id="issue/1", current_phase="plan", status="queued")

    def lose(run: WorkflowRun) -> None:
        raise LeaseLost(run.id, run.lease_token, "another worker has it.")

    Worker(getattr(inner, "_store", inner), {"triage": lose}, name="worker").run(until_idle=True)
    assert store.metrics(database=False).leases_lost == 1


@every_way
def test_each_statement_is_logged_without_values(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    session = create(store)
    with caplog.at_level(logging.DEBUG, "persist.statements"):
        say(store, session, "swordfish")
        with store.record(session, model=MODEL) as recorder:
            for chunk in turn(*text("sword", "fish")):
                recorder.feed(chunk)
        store.chat.messages.list(session)
    told: list[Any] = [record for record in caplog.records if record.name == "persist.statements"]
    assert "swordfish" not in caplog.text
    assert session not in caplog.text
    assert {"ChatMessages.append", "feed()", "ChatMessages.list"} <= {record.verb for record in told}
    inserts = [record for record in told if record.verb == "ChatMessages.append" and "chat_parts" in record.sql]
    assert [record.rows for record in inserts] == [1]
    assert all(record.seconds >= 0 for record in told)
    assert any("chat_part_deltas" in record.sql for record in told)
    caplog.clear()
    say(store, session, "quiet")
    assert not [record for record in caplog.records if record.name == "persist.statements"]


def test_values_are_logged_where_they_are_asked_for(open_store: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(settings=Settings(log_statement_values=True))
    session = create(store)
    with caplog.at_level(logging.DEBUG, "persist.statements"):
        say(store, session, "swordfish")
    assert "swordfish" in caplog.text
