"""One book of costs: what is spent without the name of a model, in a session's own figures, and in dollars of every kind."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from persist.errors import InvalidValue
from tests.async_portal import Portal
from tests.cases import each
from tests.contract.faces import every_way
from tests.contract.usage.scenes import BOX, NOON, budget, record, sums, used
from tests.contract.workflows.scenes import Around

HOUR = timedelta(hours=1)


def queued(tx: Any) -> str:
    run: str = tx.workflows.runs.create("triage", trigger_id="t", current_phase="plan", status="queued").id
    return run


@every_way
def test_a_cost_without_a_model_counts_for_sums_and_budgets(store: Any) -> None:
    with store.begin() as tx:
        first, second = queued(tx), queued(tx)
        tx.usage.budgets.set("workflow:triage", "day", max_cost_usd=Decimal("0.005"))
        lease = tx.workflows.runs.claim("worker", lease=HOUR)
        made = tx.workflows.executions.start(
            skill="s", trigger_type="t", trigger_id="t", workflow_run_id=lease.run_id, lease=lease
        )
        tx.workflows.executions.finish(made.id, success=True, input_tokens=5, cost_usd=0.01, lease=lease)
        tx.workflows.executions.finish(made.id, success=True, cost_usd=0.01, lease=lease)
        assert tx.workflows.runs.claim("worker", lease=HOUR) is None
    assert lease.run_id in (first, second)
    assert used(store, "workflow:triage") == [(10_000, 5, 100)]
    assert [(one.group, one.calls, one.cost_usd_micros) for one in sums(store, "by_model")] == [("", 1, 10_000)]


@pytest.mark.parametrize(
    ("used", "calls"), [({}, 0), ({"cost_usd": 0.0}, 0), ({"input_tokens": 9}, 0), ({"model": "m"}, 1), ({"cost_usd": 1}, 1)]
)
def test_an_execution_without_a_cost_is_a_call_only_of_a_model(store: Any, used: dict[str, Any], calls: int) -> None:
    with store.begin() as tx:
        made = tx.workflows.executions.start(skill="chat", trigger_type="t", trigger_id="t")
        tx.workflows.executions.finish(made.id, success=True, **used)
        assert sum(one.calls for one in tx.usage.by_model().items) == calls


@every_way
def test_what_a_failed_phase_used_counts(store: Any, portal: Portal) -> None:
    run = store.workflows.runs.create("triage", trigger_id="t", current_phase="plan").id
    with pytest.raises(ZeroDivisionError), Around(store.phase(run, "plan"), portal) as phase:  # noqa: PT012  # leaving raises
        phase.use(cost_usd=Decimal("0.25"), input_tokens=7)
        raise ZeroDivisionError
    with pytest.raises(InvalidValue), Around(store.phase(run, "code"), portal) as phase:  # noqa: PT012  # leaving raises
        phase.use(cost_usd=0.5, model="large")
        phase.entry = {"at": NOON}
    with store.read() as tx:
        executions = tx.workflows.executions.for_run(run)
        assert [(one.success, one.cost_usd) for one in executions] == [(False, 0.25), (False, 0.5)]
        found = tx.usage.by_model().items
    assert [(one.group, one.cost_usd_micros, one.errors) for one in found] == [("large", 500_000, 1), ("", 250_000, 1)]


@every_way
def test_a_call_of_a_session_counts_in_its_own_figures_once(store: Any) -> None:
    session = store.chat.sessions.create(agent="build", model={}).id
    told = {"token_input": 10, "token_output": 5, "token_reasoning": 2, "token_cache_read": 3, "session_id": session}
    assert record(store, 500_000, key="k", **told)
    assert not record(store, 500_000, key="k", **told)
    assert record(store, session_id=session, cost_usd=0.25)
    assert record(store, 9, session_id="another")
    with store.begin() as tx:
        message = tx.chat.messages.append(session, role="assistant", parts=[{"type": "text", "text": "hi"}])
        tx.chat.messages.record_step_usage(message.id, 0, input_tokens=1, output_tokens=1, cost_usd=Decimal("0.125"))
        found = tx.chat.sessions.get(session)
    assert (found.prompt_tokens, found.completion_tokens, found.reasoning_tokens, found.cache_read) == (11, 4, 2, 3)
    assert (found.total_tokens, found.cost_usd) == (20, 0.875)
    counted = [(one.group, one.calls, one.cost_usd_micros) for one in sums(store, "by_group", "scope")]
    assert counted == [(f"session:{session}", 3, 875_000), ("session:another", 1, 9)]


@pytest.mark.parametrize("cost", [Decimal("0.0125"), 0.0125])
def test_costs_are_dollars_of_either_kind(store: Any, cost: Any) -> None:
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model={}).id
        tx.usage.calls.record(model="m", at=NOON, cost_usd=cost, session_id=session)
        tx.telemetry.usage.sample(at=NOON, model="m", cost_usd=cost, **BOX)
        made = tx.workflows.executions.start(skill="chat", trigger_type="t", trigger_id="t")
        tx.workflows.executions.finish(made.id, success=True, model="m", cost_usd=cost)
        message = tx.chat.messages.append(session, role="assistant", parts=[])
        tx.chat.messages.record_step_usage(message.id, 0, input_tokens=1, output_tokens=1, cost_usd=cost)
        limited = tx.usage.budgets.set("owner:maria", max_cost_usd=cost)
        assert [one.cost_usd_micros for one in tx.usage.by_group("scope").items] == [25_000, 12_500, 12_500]
        assert (limited.max_cost_usd_micros, tx.chat.sessions.get(session).cost_usd) == (12_500, 0.025)


@each("cost", ["0.01", True, Decimal("NaN"), Decimal("sNaN"), Decimal(-1), Decimal("1e400"), 1e12, float("inf")])
def test_what_is_no_cost_is_refused_by_its_name_and_kind(store: Any, cost: Any) -> None:
    with store.begin() as tx, pytest.raises(InvalidValue) as refused:
        tx.usage.calls.record(model="m", cost_usd=cost, **BOX)
    assert refused.value.path.startswith("cost_usd")
    if not isinstance(cost, Decimal | float):
        assert f"got {type(cost).__name__}." in str(refused.value)


def test_a_cost_is_given_once(store: Any) -> None:
    with store.begin() as tx:
        with pytest.raises(InvalidValue, match="give one of the two"):
            tx.usage.calls.record(model="m", cost_usd=1, cost_usd_micros=1_000_000, **BOX)
        with pytest.raises(InvalidValue, match="give one of the two"):
            tx.usage.budgets.set("owner:maria", "day", 1, max_cost_usd=1)
        assert not tx.usage.by_model().items
    budget(store, "owner:maria", max_cost_usd=2)
    assert used(store, "owner:maria") == [(0, 0, 0)]


@each("told", [{"input_token": 1}, {"output_tokens": 1}, {"input_tokens": 1.5}, {"cost_usd": "1"}])
def test_a_recorder_refuses_usage_when_it_is_told(store: Any, told: dict[str, Any]) -> None:
    session = store.chat.sessions.create(agent="build", model={}).id
    given = {"input_tokens": 1, "output_tokens": 1, **told} if "output_tokens" not in told else told
    with store.record(session) as recorder:
        recorder.feed({"type": "start"})
        with pytest.raises(InvalidValue) as refused:
            recorder.step_usage(0, **given)
        recorder.step_usage(0, input_tokens=1, output_tokens=1, cost_usd=Decimal("0.5"))
        recorder.feed({"type": "finish"})
    assert refused.value.path == next(iter(told.keys() - {"output_tokens"}), "input_tokens")
    assert store.chat.sessions.get(session).cost_usd == 0.5
