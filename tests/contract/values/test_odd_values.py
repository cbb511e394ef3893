"""Values at the edge of the domain: refused before the first write, or kept the same on both databases."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.framework_state.checkpoints.schemas import Blob, Write
from tests.cases import each

DEEP: Any = []
for _ in range(20_000):
    DEEP = [DEEP]
UNPRINTABLE = [10**5000, DEEP]


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize("odd", UNPRINTABLE, ids=["a number of 5001 digits", "a list 20,000 deep"])
def test_a_value_that_cannot_be_shown_is_refused_like_any_other(store: Any, odd: Any) -> None:
    with store.begin() as tx:
        tx.chat.sessions.create(agent="a", model={}, id="s")
        calls: list[Callable[[], Any]] = [
            lambda: tx.chat.messages.append("s", role=odd, parts=[]),
            lambda: tx.workflows.approvals.pending(kind=odd),
            lambda: tx.conversations.messages.put({"id": "m", "created_at": 0, "role": "user", "content": 1, UNPRINTABLE[0]: 1}),
            lambda: tx.chat.sessions.update_metadata("s", {"a": {UNPRINTABLE[0]: 1}}),
            lambda: tx.chat.messages.record_step_usage("m", 0, input_tokens=1, output_tokens=1, cost_usd=odd),
        ]
        for call in calls:
            with pytest.raises(InvalidValue):
                call()
        assert tx.chat.messages.list("s") == []


@each(
    "given",
    [
        {"head": ("msgpack", b"")},
        {"head": Blob("msgpack", "text")},  # type: ignore[arg-type]  # that is the point
        {"values": {"c": ("1", Blob("msgpack", None))}},  # type: ignore[arg-type]  # that is the point
        {"values": {"c": Blob("msgpack", b"")}},
        {"values": {"c": ("1", ["not a blob"])}},
        {"versions": {"c": 1}},
        {"versions": {"\x00": "1"}},
        {"partial": ["a", 1]},
    ],
)
def test_a_checkpoint_of_something_else_is_refused(store: Any, given: dict[str, Any]) -> None:
    with store.begin() as tx:
        with pytest.raises(InvalidValue):
            tx.checkpoints.states.put("t", "1", **{"head": Blob("msgpack", b""), **given})
        with pytest.raises(InvalidValue):
            tx.checkpoints.states.put_writes("t", "1", [Write(2**63, "c", Blob("msgpack", b""))], task_id="x")
        assert tx.checkpoints.threads.list().items == []


def test_minus_zero_is_zero(store: Any) -> None:
    message = {"id": "m", "created_at": -0.0, "role": "user", "content": 1}
    with store.begin() as tx:
        id = tx.workflows.executions.start(trigger_type="t", trigger_id="t", skill="s").id
        tx.workflows.executions.finish(id, success=True, cost_usd=-0.0)
        assert repr(tx.workflows.executions.get(id).cost_usd) == "0.0"
        assert tx.conversations.messages.put(message).created_at == datetime(1970, 1, 1, tzinfo=UTC)


def test_text_of_a_class_of_its_own_is_kept_as_text(store: Any) -> None:
    with store.begin() as tx:
        tx.conversations.progressions.create("p")
        tx.conversations.progressions.replace("p", [Name("m")])
        assert [type(id) for id in tx.conversations.progressions.get("p")] == [str]


def test_the_last_microsecond_of_the_calendar_can_be_read(store: Any) -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    with store.begin() as tx:
        tx.conversations.sessions.create(id="s", created_at=last)
        tx.conversations.branches.create("s", id="b", created_at=last)
        tx.conversations.messages.put({"id": "m", "created_at": last, "role": "user", "content": 1})
    with store.read() as tx:
        for kept in (tx.conversations.branches.get("b"), tx.conversations.messages.get("m")):
            assert last - kept.created_at < timedelta(milliseconds=1)


def test_absurd_counts_leave_totals_readable(store: Any) -> None:
    maximum = 2**63 - 1
    with store.begin() as tx:
        tx.workflows.runs.create("w", trigger_id="t", current_phase="p", id="r")
        for _ in range(2):
            id = tx.workflows.executions.start(trigger_type="t", trigger_id="t", skill="chat", workflow_run_id="r").id
            tx.workflows.executions.finish(id, success=True, input_tokens=maximum, output_tokens=maximum, cost_usd=1e300)
        for second in range(2):
            at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
            tx.telemetry.usage.sample(at=at, token_input=maximum, token_output=2**62 + 1 - second, instance_id="i")
        (run,) = tx.workflows.runs.list().items
        assert (run.total_tokens, run.cost_usd) == (maximum, 2e300)
        assert tx.workflows.executions.daily_stats(365)[-1].total_tokens in (0, maximum)
        assert tx.workflows.executions.chat_threads()[0].total_tokens == maximum
        totals = tx.telemetry.usage.totals(instance_id="i")
        assert (totals.token_input, totals.token_cache_read) == (maximum, None)
        assert totals.token_output == 2**63 - 1
        with pytest.raises(InvalidValue):
            tx.workflows.executions.finish(id, success=True, cost_usd=1.7e308)


@pytest.mark.parametrize("odd", [{}, ["text-delta"], None, 5, b"text-delta"], ids=repr)
def test_a_chunk_of_a_type_that_is_no_text_is_refused_while_a_part_grows(store: Any, odd: Any) -> None:
    store.chat.sessions.create(agent="a", model={}, id="s")
    with store.record("s") as recorder:
        for chunk in ({"type": "start", "messageId": "m"}, {"type": "text-start", "id": "t"}):
            recorder.feed(chunk)
        with pytest.raises(InvalidValue):
            recorder.feed({"type": odd, "id": "t", "delta": "x"})
        recorder.feed({"type": "text-delta", "id": "t", "delta": "on"})
    assert [part["text"] for part in store.chat.messages.get("m")["parts"]] == ["on"]


def test_events_of_a_whole_number_say_what_is_stored(open_store: Any) -> None:
    store = open_store(events=True)
    with store.begin() as tx:
        tx.checkpoints.memories.put(("a",), "k", {}, ttl_minutes=10)
        tx.chat.sessions.create(agent="a", model={}, id="s")
    (event,) = store.events.read("memory:a")
    assert [repr(change["row"].get("ttl_minutes")) for change in event.data["changes"]] == ["10.0"]
    (event,) = store.events.read("s")
    assert repr(event.data["changes"][0]["row"]["cost_usd"]) == "0.0"
