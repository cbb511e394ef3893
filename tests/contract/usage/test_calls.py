"""Calls of models: what is kept of each, who writes them, and that none is counted twice."""

import re
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from persist import Store, otel
from persist.errors import InvalidValue
from persist.maintenance import doctor
from persist.settings import Settings
from tests.cases import each
from tests.contract.conftest import Raw
from tests.contract.faces import every_way
from tests.contract.otel.scenes import real
from tests.contract.usage.scenes import BOX, NOON, record, sums
from tests.statement_log import seen_statements

SECOND = timedelta(seconds=1)
TOLD: dict[str, Any] = {
    "provider": "example",
    "operation": "chat",
    "agent": "build",
    "owner": "maria",
    "workspace": "project",
    "workflow": "triage",
    "task_id": "t1",
    "run_id": "run_1",
    "trace_id": "0af7",
    "span_id": "b7ad",
    "token_input": 5,
    "token_output": 4,
    "token_cache_read": 3,
    "token_cache_write": 2,
    "token_reasoning": 1,
    "cost_usd_micros": 70,
    "duration_ms": 12,
    "error": "503",
}


def listed(store: Any, **of: str) -> list[Any]:
    with store.read() as tx:
        calls: list[Any] = tx.usage.calls.list(**(of or BOX)).items
    return calls


@every_way
def test_a_call_is_kept_as_it_was_told(store: Any) -> None:
    assert record(store, **TOLD, **BOX, key="k") is True
    (call,) = listed(store)
    assert {name: getattr(call, name) for name in TOLD} == TOLD
    assert (call.scope, call.seq, call.source, call.model, call.occurred_at) == ("instance:box", 1, "k", "large", NOON)
    record(store)
    newest = listed(store)[0]
    assert (newest.seq, newest.cost_usd_micros, newest.agent, newest.run_id) == (2, None, "", None)
    assert record(store, key="k") is False
    assert [call.seq for call in listed(store)] == [2, 1]


def test_a_window_keeps_the_calls_written_last_of_each_scope(open_store: Any) -> None:
    store = open_store(settings=Settings(usage_calls_keep=3, usage_calls_trim_every=2))
    for number in range(8):
        record(store, 1, at=NOON - number * SECOND)
        record(store, 1, session_id="ses")
    assert [call.seq for call in listed(store)] == [8, 7, 6]
    assert len(listed(store, session_id="ses")) == 3
    assert [(one.calls, one.cost_usd_micros) for one in sums(store, "by_day")] == [(16, 16)]
    with store.read() as tx:
        page = tx.usage.calls.list(**BOX, limit=2)
        assert [call.seq for call in tx.usage.calls.list(**BOX, limit=2, after=page.cursor).items] == [6]


def test_a_sample_with_a_model_is_a_call_too(store: Any) -> None:
    """A sample without one stays what it was."""
    with store.begin() as tx:
        sample = tx.telemetry.usage.sample
        plain = sample(at=NOON, token_input=1, **BOX)
        told = sample(at=NOON, token_input=2, cost_usd_micros=9, model="large", owner="maria", workspace_id="w", key="k", **BOX)
        again = sample(at=NOON, token_input=2, cost_usd_micros=9, model="large", key="k", **BOX)
    assert (plain.token_input, told.token_input, again.token_input) == (1, 3, 3)
    (call,) = listed(store)
    assert (call.token_input, call.cost_usd_micros, call.owner, call.workspace) == (2, 9, "maria", "w")
    assert [one.calls for one in sums(store, "by_model")] == [1]


@each(
    ("path", "given"),
    [
        ("model", {"owner": "maria"}),
        ("model", {"within_budget": True}),
        ("model", {"model": ""}),
        ("token_reasoning", {"model": "m", "token_reasoning": -1}),
        ("token_input", {"model": "m", "token_input": 2**60}),
        ("error", {"model": "m", "error": 503}),
        ("key", {"model": "m", "key": ""}),
        ("workspace_id", {"model": "m", "workspace_id": ""}),
    ],
)
def test_a_sample_of_bad_values_writes_nothing(store: Any, path: str, given: dict[str, Any]) -> None:
    with store.begin() as tx:
        with pytest.raises(InvalidValue) as refused:
            tx.telemetry.usage.sample(at=NOON, **BOX, **given)
        assert tx.telemetry.usage.totals(**BOX).samples == 0
    assert (refused.value.path, listed(store)) == (path, [])


@every_way
def test_steps_of_a_recorded_turn_are_calls_of_the_session(store: Any) -> None:
    model = {"provider_id": "example", "model_id": "large"}
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model=model, owner="maria").id
    with store.record(session) as recorder:
        recorder.feed({"type": "start"})
        recorder.step_usage(0, input_tokens=10, output_tokens=5, cache_read_tokens=4, reasoning_tokens=2, cost_usd=0.25)
        recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "hi"}])
        recorder.step_usage(0, input_tokens=10, output_tokens=5)
        recorder.step_usage(1, input_tokens=1, output_tokens=1)
        recorder.feed({"type": "finish"})
    with store.begin() as tx:
        (message,) = tx.chat.messages.list(session)
        tx.chat.messages.record_step_usage(message["id"], 1, input_tokens=1, output_tokens=1)
    last, first = listed(store, session_id=session)
    assert (first.model, first.provider, first.agent, first.owner) == ("large", "example", "build", "maria")
    assert (first.token_input, first.token_cache_read, first.cost_usd_micros) == (6, 4, 250_000)
    assert (first.token_output, first.token_reasoning) == (7, 2), "a recorder counts reasoning apart, a call as output"
    assert (last.source, last.cost_usd_micros) == (f"step:{message['id']}:1", None)
    (day,) = sums(store, "by_day", group="owner")
    assert (day.group, day.calls, day.unpriced, day.token_output) == ("maria", 2, 1, 8)
    with store.begin() as tx:
        tx.usage.budgets.set("owner:maria", "total", max_tokens=100)
        tx.chat.messages.record_step_usage(message["id"], 2, input_tokens=10, output_tokens=5, reasoning_tokens=3)
        (standing,), counted = tx.usage.budgets.standings("owner:maria"), tx.chat.sessions.get(session)
    (_, answer) = otel.spans(real(store))
    spent = sum(answer.attributes[f"gen_ai.usage.{kind}_tokens"] for kind in ("input", "output"))
    assert standing.tokens == counted.total_tokens == spent == 6 + 4 + 5 + 2 + 1 + 1 + 10 + 5 + 3


def test_a_number_without_a_successor_stops_no_writer(database_url: str) -> None:
    """Another program may write any number; calls and samples go on from the highest that has a successor."""
    with Store.open(database_url) as store, closing(Raw(database_url)) as raw:
        for number in range(2):
            record(store, 1, key=f"k{number}")
            store.telemetry.usage.sample(at=NOON + number * SECOND, token_input=1, **BOX)
        for table in ("usage_calls", "usage_samples"):
            raw.rows(f"UPDATE {table} SET seq = ? WHERE seq = 2", 2**63 - 1)
        assert (record(store, 1, key="k2"), record(store, 1, key="k1")) == (True, False)
        for second in (5, 5, 1):
            store.telemetry.usage.sample(at=NOON + second * SECOND, token_input=1, model="large", **BOX)
        assert [call.seq for call in listed(store)] == [2**63 - 1, 5, 4, 3, 2, 1]
        assert sorted(raw.rows("SELECT seq FROM usage_samples")) == [(1,), (3,), (4,)]
        (finding,) = doctor(store, fix=True)
        assert (finding.code, finding.subject, finding.fixed) == ("call_number", "a call of instance:box", True)
        assert [call.source for call in listed(store)] == ["k1", None, None, None, "k2", "k0"]
        assert doctor(store) == []
        if raw.is_sqlite:
            for odd in (1e300, "zz", b"zz"):
                raw.rows("UPDATE usage_calls SET seq = ? WHERE seq = (SELECT max(seq) FROM usage_calls)", odd)
                assert record(store, 1)


def test_executions_that_name_a_model_are_calls_of_their_run(store: Any) -> None:
    with store.begin() as tx:
        flows = tx.workflows
        run = flows.runs.create("triage", trigger_id="t", current_phase="plan", concurrency_key="owner:maria")
        about = {"trigger_type": "t", "trigger_id": "t", "workflow_run_id": run.id}
        first, silent = (flows.executions.start(skill=f"triage:{name}", **about).id for name in ("plan", "code"))
        used = {"input_tokens": 7, "output_tokens": 3, "cache_creation_input_tokens": 2, "cost_usd": 0.5, "duration_ms": 9}
        flows.executions.finish(silent, success=True, **used)
        flows.executions.finish(first, success=False, error="503", model="large", provider="example", **used)
        flows.executions.finish(first, success=True, model="large", **used)
        phase = flows.phases.begin(run.id, "review")
        flows.phases.finish(phase, model="small", output_tokens=1)
    review, plan = listed(store, run_id=run.id)
    assert (plan.source, plan.workflow, plan.owner, plan.operation) == (f"execution:{first}", "triage", "maria", "triage:plan")
    assert (plan.token_input, plan.token_cache_write, plan.cost_usd_micros, plan.error) == (7, 2, 500_000, "503")
    assert (review.model, review.token_output) == ("small", 1)
    assert [(one.group, one.calls, one.errors) for one in sums(store, "by_group", "model")] == [("large", 1, 1), ("small", 1, 0)]


def test_a_call_takes_few_statements(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call, its sums by hour and day at once, and the budgets: in a file only where there are any."""
    seen = seen_statements(monkeypatch)

    def statements(store: Store) -> list[str]:
        seen.clear()
        store.telemetry.usage.sample(at=NOON, model="large", owner="maria", token_input=1, **BOX)
        return [one.split(None, 1)[0] for one in seen if re.search(r"usage_(calls|rollups|budgets|spending)", one)]

    with Store.open(database_url) as store:
        statements(store)
        assert statements(store) == ["INSERT", "INSERT"] + ["SELECT"] * (store.path is None)
        store.usage.budgets.set("owner:maria", "total", max_tokens=100)
        assert statements(store) == ["INSERT", "INSERT", "SELECT", "INSERT"]
        (standing,) = store.usage.budgets.standings("owner:maria")
        assert standing.tokens == 3
        found = store.usage.by_hour().items, store.usage.by_day().items
        assert [(one.calls, one.token_input) for sums in found for one in sums] == [(3, 3), (3, 3)]
