"""Calls of models: what is kept of each, who writes them, and that none is counted twice."""

from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist import Store, otel
from persist.errors import InvalidValue
from persist.maintenance import doctor
from persist.settings import Settings
from persist.usage.writing import SUMS
from tests.cases import each
from tests.contract.chat.scenes import eventually
from tests.contract.conftest import Raw, pages_of
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
    calls: list[Any] = store.usage.calls.list(**(of or BOX)).items
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
    page = store.usage.calls.list(**BOX, limit=2)
    assert [call.seq for call in store.usage.calls.list(**BOX, limit=2, after=page.cursor).items] == [6]


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
    [("model", {"owner": "maria"}), ("model", {"within_budget": True}), ("token_input", {"model": "m", "token_input": 2**60})],
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
    session = store.chat.sessions.create(agent="build", model=model, owner="maria").id
    with store.record(session) as recorder:
        recorder.feed({"type": "start"})
        recorder.step_usage(0, input_tokens=10, output_tokens=5, cache_read_tokens=4, reasoning_tokens=2, cost_usd=0.2500019)
        recorder.feed_many([{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "hi"}])
        recorder.step_usage(0, input_tokens=10, output_tokens=5)
        recorder.step_usage(1, input_tokens=1, output_tokens=1)
        recorder.feed({"type": "finish"})
    with store.begin() as tx:
        (message,) = tx.chat.messages.list(session)
        tx.chat.messages.record_step_usage(message["id"], 1, input_tokens=1, output_tokens=1)
    last, first = listed(store, session_id=session)
    assert (first.model, first.provider, first.agent, first.owner) == ("large", "example", "build", "maria")
    assert (first.token_input, first.token_cache_read, first.cost_usd_micros) == (6, 4, 250_002)
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


def test_executions_are_calls_of_their_run_unless_others_count_them(store: Any) -> None:
    with store.begin() as tx:
        flows = tx.workflows
        run = flows.runs.create("triage", trigger_id="t", current_phase="plan", concurrency_key="owner:maria")
        about = {"trigger_type": "t", "trigger_id": "t", "workflow_run_id": run.id}
        first, silent = (flows.executions.start(skill=f"triage:{name}", **about).id for name in ("plan", "code"))
        used = {"input_tokens": 7, "output_tokens": 3, "cache_creation_input_tokens": 2, "cost_usd": 0.5, "duration_ms": 9}
        flows.executions.finish(silent, success=True, **used, counted_elsewhere=True)
        flows.executions.finish(first, success=False, error="503", model="large", provider="example", **used)
        flows.executions.finish(first, success=True, model="large", **used)
        phase = flows.phases.begin(run.id, "review")
        flows.phases.finish(phase, model="small", output_tokens=1)
    review, plan = listed(store, run_id=run.id)
    assert (plan.source, plan.workflow, plan.owner, plan.operation) == (f"execution:{first}", "triage", "maria", "triage:plan")
    assert (plan.token_input, plan.token_cache_write, plan.cost_usd_micros, plan.error) == (7, 2, 500_000, "503")
    assert (review.model, review.token_output) == ("small", 1)
    assert [(one.group, one.calls, one.errors) for one in sums(store, "by_group", "model")] == [("large", 1, 1), ("small", 1, 0)]


def test_on_postgres_who_waits_for_a_number_asks_once(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked again, with its sums locked by then, would wait for one who waits for these sums."""
    seen = seen_statements(monkeypatch)
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with Store.open(postgres_url) as store, psycopg.connect(postgres_url, autocommit=True) as raw, ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            tx.usage.calls.record(model="large", at=NOON, **BOX)
            second = pool.submit(record, store)
            assert eventually(lambda: raw.execute(waiting).fetchone() is not None)
        assert second.result()
    assert len([one for one in seen if "usage_calls" in one and "INSERT" in one]) == 2


# Sums of calls: equal to what adding up all calls gives, however they come.


HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FIGURES = ("token_input", "token_output", "cost_usd_micros")
SPANS = {"by_day": DAY, "by_hour": HOUR}

calls = st.fixed_dictionaries(
    {
        # clocks that jump: back and forth over midnight, and years
        "at": st.sampled_from(
            [NOON, NOON + HOUR, NOON + 13 * HOUR, NOON - DAY, NOON + 1000 * DAY, NOON + timedelta(microseconds=1)]
        ),
        "model": st.sampled_from(["large", "small"]),
        "owner": st.sampled_from(["maria", "tom", None]),
        "scope": st.sampled_from([BOX, {"session_id": "ses"}]),
        "key": st.sampled_from([None, None, "a", "b", "c"]),
        "error": st.sampled_from([None, "503"]),
        **{name: st.none() | st.integers(0, 2**53) for name in FIGURES},
    }
)


def expected(written: list[dict[str, Any]], length: timedelta | None, group: str | None) -> dict[tuple[Any, Any], Counter[str]]:
    """The sums of calls by the beginning of their hour or day and their group, added up one by one."""
    found: dict[tuple[Any, Any], Counter[str]] = defaultdict(Counter)
    for call in written:
        at = call["at"].replace(minute=0, second=0, microsecond=0)
        start = None if length is None else at.replace(hour=0) if length == DAY else at
        one = found[start, None if group is None else call[group] or ""]
        one.update({name: call[name] or 0 for name in FIGURES})
        one.update(calls=1, errors=call["error"] is not None, unpriced=call["cost_usd_micros"] is None)
    return found


@given(st.lists(calls, max_size=12))
def test_sums_equal_those_of_all_calls(told: list[dict[str, Any]]) -> None:
    """A window of two calls is trimmed all the while; what comes again within it is counted once."""
    with Store.open("sqlite:///:memory:", settings=Settings(usage_calls_keep=2, usage_calls_trim_every=1)) as store:
        written, windows = [], {"instance_id": [], "session_id": []}  # type: ignore[var-annotated]  # lists of keys
        for call in told:
            of = next(iter(call["scope"]))
            fresh = call["key"] is None or call["key"] not in windows[of]
            assert record(store, **{name: value for name, value in call.items() if name != "scope"}, **call["scope"]) is fresh
            if fresh:
                written.append(call)
                windows[of] = [*windows[of], call["key"]][-2:]
        for verb, group in ((verb, group) for verb in SPANS for group in (None, "model", "owner")):
            seen = {
                (one.starts_at, one.group): {name: getattr(one, name) for name in SUMS} for one in sums(store, verb, group=group)
            }
            known = expected(written, SPANS[verb], group)
            assert seen == {key: {name: counted[name] for name in SUMS} for key, counted in known.items()}
        by_owner = {(None, one.group): one.cost_usd_micros for one in sums(store, "by_group", "owner")}
        assert by_owner == {key: counted["cost_usd_micros"] for key, counted in expected(written, None, "owner").items()}


def test_ranges_filters_and_pages(store: Any) -> None:
    for hours, owner, cost in ((0, "maria", 5), (1, "tom", 9), (25, "maria", 9), (26, None, 9)):
        record(store, cost, at=NOON + hours * HOUR, owner=owner, model="large" if owner else "small")

    def costs(verb: str, *args: Any, **given: Any) -> list[int]:
        return [one.cost_usd_micros for one in sums(store, verb, *args, **given)]

    assert costs("by_day") == [18, 14]
    assert costs("by_day", NOON + 13 * HOUR) == [18]
    assert costs("by_day", until=NOON + 12 * HOUR) == [14]
    assert costs("by_day", owner="maria") == [9, 5]
    assert costs("by_day", owner="") == [9]
    assert costs("by_hour", NOON + HOUR, NOON + 26 * HOUR) == [9, 9]
    assert costs("by_model", NOON, NOON + 2 * HOUR) == [14]
    assert [one.group for one in sums(store, "by_group", "owner")] == ["maria", "", "tom"]
    assert costs("by_model", owner="tom", scope="instance:box") == [9]
    with store.read() as tx:
        for verb, args, group in (("by_day", (), "owner"), ("by_group", ("owner",), None)):
            more = {} if group is None else {"group": group}
            sums_of = getattr(tx.usage, verb)
            assert [one for page in pages_of(sums_of, *args, **more, limit=1) for one in page] == sums_of(*args, **more).items


def test_the_last_day_of_the_calendar_has_a_sum(store: Any) -> None:
    record(store, 1, at=datetime.max.replace(tzinfo=UTC))
    assert [one.calls for verb in ("by_hour", "by_day", "by_model") for one in sums(store, verb)] == [1, 1, 1]


def test_a_sum_stops_at_what_64_bits_hold(store: Any) -> None:
    """A thousand absurd calls neither fail nor wrap."""
    with store.begin() as tx:
        for _ in range(1025):
            tx.usage.calls.record(model="large", at=NOON, token_input=2**53, **BOX)
    assert [one.token_input for one in sums(store, "by_day")] == [2**63 - 1]
