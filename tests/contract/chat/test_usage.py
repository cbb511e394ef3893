"""Token usage: each step once, into the message and the session, in one transaction."""

from typing import Any

import pytest

from persist.errors import InvalidValue, NotFound
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, record, rollup, say, session_of, shown, text
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face

SDK = {
    "input_tokens": 1000,
    "cache_read_tokens": 600,
    "cache_write_tokens": 100,
    "output_tokens": 50,
    "reasoning_tokens": 20,
}


def use(store: Any, message: str, step: int = 0, **tokens: Any) -> None:
    with store.begin() as tx:
        tx.chat.messages.record_step_usage(message, step, **{"input_tokens": 0, "output_tokens": 0, **tokens})


def test_a_step_is_counted_once_in_message_and_session(store: Any, clock: Any, raw: Raw, session: str) -> None:
    """(c) 11"""
    message = say(store, session, "hi", role="assistant")
    at = clock.advance(seconds=1)
    for _ in range(3):
        use(store, message, **SDK)
    assert rollup(store, session) == (300, 50, 20, 600, 100, 1070)
    usage = {"input": 300, "output": 50, "reasoning": 20, "cache_read": 600, "cache_write": 100}
    assert shown(store, session)[0]["metadata"] == {"usage": usage}
    assert session_of(store, session).updated_at == at
    assert raw.count("chat_step_usage") == 1


def test_the_first_report_of_a_step_stands(store: Any, session: str) -> None:
    message = say(store, session, "hi", role="assistant")
    use(store, message, 3, input_tokens=5)
    use(store, message, 3, input_tokens=500, cost_usd=9.0)
    assert rollup(store, session)[0] == 5
    assert session_of(store, session).cost_usd == 0.0


def test_steps_messages_and_costs_add_up(store: Any, session: str) -> None:
    one, two = (say(store, session, "hi", role="assistant") for _ in range(2))
    use(store, one, 0, input_tokens=10, output_tokens=1, cost_usd=0.25)
    use(store, one, 1, input_tokens=20, output_tokens=2, cost_usd=0.5)
    use(store, two, 0, input_tokens=40, reasoning_tokens=4)
    assert rollup(store, session) == (70, 3, 4, 0, 0, 77)
    assert session_of(store, session).cost_usd == 0.75
    assert [message["metadata"]["usage"]["input"] for message in shown(store, session)] == [30, 40]


def test_input_is_never_negative(store: Any, session: str) -> None:
    message = say(store, session, "hi", role="assistant")
    use(store, message, input_tokens=10, cache_read_tokens=8, cache_write_tokens=8)
    assert rollup(store, session) == (0, 0, 0, 8, 8, 16)


def test_usage_in_a_chunk_is_not_counted(store: Any, session: str) -> None:
    record(store, session, [{"type": "start-step"}, {"type": "finish-step", "usage": {"inputTokens": 5}}, {"type": "finish"}])
    assert rollup(store, session) == (0, 0, 0, 0, 0, 0)
    assert "metadata" not in shown(store, session)[0]


@each("policy", ["chunk", "step", "turn"])
def test_the_recorder_counts_steps_of_its_message(store: Any, policy: str) -> None:
    session = create(store)
    with store.record(session, save_on=policy, model=MODEL) as recorder:
        recorder.step_usage(0, **SDK)  # before there is a message
        recorder.feed_many([{"type": "start-step"}, *text("x"), {"type": "finish-step"}])
        recorder.step_usage(0, **SDK)
        recorder.step_usage(1, input_tokens=1, output_tokens=1, cost_usd=0.5)
        recorder.feed({"type": "finish", "messageMetadata": {"usage": {"input": 99}}})
    assert rollup(store, session) == (301, 51, 20, 600, 100, 1072)
    assert session_of(store, session).cost_usd == 0.5
    counted = {"input": 301, "output": 51, "reasoning": 20, "cache_read": 600, "cache_write": 100}
    assert shown(store, session)[0]["metadata"] == {"model": MODEL, "usage": counted}


def test_the_rollup_is_what_a_rewind_leaves_visible(store: Any, session: str) -> None:
    """(c) 12"""
    first = say(store, session, "one")
    use(store, say(store, session, "1", role="assistant"), input_tokens=10, cost_usd=1.0)
    say(store, session, "two")
    use(store, say(store, session, "2", role="assistant"), input_tokens=20, cost_usd=1.0)
    assert rollup(store, session)[0] == 30
    last_seen = shown(store, session)[1]["id"]
    with store.begin() as tx:
        assert tx.chat.sessions.rewind(session, first) == 3
    assert rollup(store, session) == (0, 0, 0, 0, 0, 0)
    with store.begin() as tx:
        tx.chat.sessions.unrewind(session, first)
    assert rollup(store, session)[0] == 30
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, shown(store, session)[2]["id"])
    assert rollup(store, session)[0] == 10
    with store.begin() as tx:
        tx.chat.sessions.unrewind(session, last_seen)
    assert rollup(store, session)[0] == 30
    assert session_of(store, session).cost_usd == 2.0  # spent is spent


def test_usage_of_a_hidden_message_does_not_count_until_it_is_shown(store: Any, session: str) -> None:
    first = say(store, session, "one")
    hidden = say(store, session, "1", role="assistant")
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, first)
    use(store, hidden, input_tokens=10, cost_usd=1.0)
    assert (rollup(store, session)[0], session_of(store, session).cost_usd) == (0, 1.0)
    with store.begin() as tx:
        tx.chat.sessions.unrewind(session, first)
    assert rollup(store, session)[0] == 10


@on_one_face
@each(
    "bad",
    [
        {"input_tokens": -1},
        {"input_tokens": 1.5},
        {"output_tokens": None},
        {"output_tokens": True},
        {"cost_usd": float("nan")},
        {"cost_usd": -0.1},
        {"cache_read_tokens": 2**63},
    ],
)
def test_counts_are_whole_and_not_negative(store: Any, bad: dict[str, Any]) -> None:
    session = create(store)
    message = say(store, session, "hi", role="assistant")
    with pytest.raises(InvalidValue):
        use(store, message, **bad)
    with store.record(session) as recorder, pytest.raises(InvalidValue):
        recorder.step_usage(0, **{"input_tokens": 0, "output_tokens": 0, **bad})
    for step in (-1, "0", 1.0):
        with pytest.raises(InvalidValue):
            use(store, message, step)  # type: ignore[arg-type]  # the wrong type is the point
    with pytest.raises(NotFound):
        use(store, "msg_nowhere")
    assert rollup(store, session) == (0, 0, 0, 0, 0, 0)


def test_a_new_session_starts_at_nothing(store: Any) -> None:
    assert rollup(store, create(store)) == (0, 0, 0, 0, 0, 0)
