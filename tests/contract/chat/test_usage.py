"""Token usage: each step once, into the message and the session, in one transaction."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persist.chat.storage.usage import COUNTERS
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, record, rollup, say, session_of, shown, text
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face
from tests.examples import examples

SDK = {"input_tokens": 1000, "cache_read_tokens": 600, "cache_write_tokens": 100, "output_tokens": 50, "reasoning_tokens": 20}


def use(store: Any, message: str, step: int = 0, **tokens: Any) -> None:
    store.chat.messages.record_step_usage(message, step, **{"input_tokens": 0, "output_tokens": 0, **tokens})


def test_a_step_is_counted_once_in_message_and_session(store: Any, clock: Any, raw: Raw, session: str) -> None:
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


def test_a_rewind_takes_back_what_was_counted_and_not_what_was_spent(store: Any, session: str) -> None:
    first = say(store, session, "one")
    use(store, say(store, session, "1", role="assistant"), input_tokens=10, cost_usd=1.0)
    store.chat.sessions.rewind(session, first)
    assert (rollup(store, session), session_of(store, session).cost_usd) == ((0, 0, 0, 0, 0, 0), 1.0)
    store.chat.sessions.unrewind(session, first)
    assert (rollup(store, session)[0], session_of(store, session).cost_usd) == (10, 1.0)


# A session's counters are the sums over its visible assistant messages since the latest compaction, whatever was done to it.


COUNTS = st.integers(0, 1000) | st.sampled_from([-1, 2**53, 2**60, 1.5, "7", None])
USAGE: st.SearchStrategy[Any] = st.dictionaries(st.sampled_from(COUNTERS), COUNTS, max_size=3) | st.sampled_from([None, 5, []])
METADATA: st.SearchStrategy[Any] = st.builds(lambda usage: {"usage": usage}, USAGE) | st.just({})
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99), st.integers(0, 99)), max_size=3)
MARK = st.integers(0, 4).map(lambda drawn: drawn == 0)
PLACE = st.integers(0, 50)
ACTS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(["user", "assistant", "assistant"]), METADATA, MARK),
    st.tuples(st.just("stream"), st.none() | PLACE, METADATA, METADATA, STEPS, st.sampled_from(["chunk", "turn"]), MARK),
    st.tuples(st.just("step"), PLACE, STEPS),
    st.tuples(st.just("edit"), PLACE, METADATA),
    st.tuples(st.just("rewind"), PLACE),
    st.tuples(st.just("unrewind"), PLACE),
    st.tuples(st.just("compact"), st.none() | PLACE),
    st.tuples(st.just("queue"), METADATA, MARK),
    st.tuples(st.just("fork"), PLACE),
    st.tuples(st.just("delete")),
)


def marker(wanted: bool, tail: str | None) -> list[dict[str, Any]]:
    return [{"type": "data-compaction", "data": {"summary": "before", "tail_start_id": tail}}] if wanted else []


def counted(usage: Any) -> list[int]:
    """The five counters of one message: what is no count is nothing."""
    usage = usage if isinstance(usage, dict) else {}
    return [count if type(count := usage.get(name)) is int and 0 < count <= 2**53 else 0 for name in COUNTERS]


def summed(messages: list[Any]) -> tuple[int, ...]:
    """What the counters say of these messages, in the order in which they are shown."""
    markers = [at for at, message in enumerate(messages) if any(part["type"] == "data-compaction" for part in message["parts"])]
    if markers:
        at = markers[-1]
        tail = [part["data"]["tail_start_id"] for part in messages[at]["parts"] if part["type"] == "data-compaction"][-1]
        ids = [message["id"] for message in messages]
        messages = messages[ids.index(tail) :] if tail in ids[:at] else messages[at:]
    spoken = [counted(message.get("metadata", {}).get("usage")) for message in messages if message["role"] == "assistant"]
    totals = [sum(counts[place] for counts in spoken) for place in range(len(COUNTERS))]
    return (*totals, sum(totals))


class Talk:
    """A session to which things are done, and what it is to say then."""

    def __init__(self, store: Any) -> None:
        self.store, self.session = store, create(store)

    def messages(self, *, hidden: bool = False) -> list[Any]:
        return shown(self.store, self.session, include_hidden=hidden)

    def one(self, place: int, *, role: str | None = None, hidden: bool = False) -> str | None:
        ids = [message["id"] for message in self.messages(hidden=hidden) if role in (None, message["role"])]
        return ids[place % len(ids)] if ids else None

    def run(self, what: str, *how: Any) -> None:
        getattr(self, what)(*how)
        assert rollup(self.store, self.session) == summed(self.messages()), (what, how)

    def append(self, role: str, metadata: Any, marks: bool) -> None:
        with self.store.begin() as tx:
            tx.chat.messages.append(self.session, role=role, parts=marker(marks, self.one(3)), metadata=metadata)

    def stream(self, place: int | None, first: Any, last: Any, steps: Any, policy: str, marks: bool) -> None:
        again = None if place is None else self.one(place, role="assistant")
        start = {"type": "start", "messageMetadata": first} | ({} if again is None else {"messageId": again})
        with self.store.record(self.session, save_on=policy) as recorder:
            recorder.feed_many([start, *text("answer", id="t")])
            if marks:
                recorder.feed({**marker(True, self.one(1))[0], "id": "c"})
            for step, spent, said in steps:
                recorder.step_usage(step, input_tokens=spent, output_tokens=said)
            recorder.feed({"type": "finish", "messageMetadata": last})

    def step(self, place: int, steps: Any) -> None:
        id = self.one(place, hidden=True)
        with self.store.begin() as tx:
            for step, spent, said in steps if id else ():
                tx.chat.messages.record_step_usage(id, step, input_tokens=spent, output_tokens=said)

    def edit(self, place: int, metadata: Any) -> None:
        if id := self.one(place, hidden=True):
            with self.store.begin() as tx:
                tx.chat.messages.update_metadata(id, metadata)

    def rewind(self, place: int) -> None:
        if id := self.one(place, role="user"):
            with self.store.begin() as tx:
                tx.chat.sessions.rewind(self.session, id)

    def unrewind(self, place: int) -> None:
        if id := self.one(place):
            with self.store.begin() as tx:
                tx.chat.sessions.unrewind(self.session, id)

    def compact(self, place: int | None) -> None:
        tail = None if place is None else self.one(place)
        with self.store.begin() as tx:
            tx.chat.messages.compact(self.session, summary="s", tail_start_id=tail, auto=True, summary_tokens=7)

    def queue(self, metadata: Any, marks: bool) -> None:
        with self.store.begin() as tx:
            tx.chat.messages.enqueue(self.session, parts=marker(marks, self.one(2)), metadata=metadata)
        assert rollup(self.store, self.session) == summed(self.messages())
        with self.store.begin() as tx:
            tx.chat.messages.claim_queued(self.session)

    def fork(self, place: int) -> None:
        if id := self.one(place):
            with self.store.begin() as tx:
                self.session = tx.chat.sessions.fork(self.session, id).id

    def delete(self) -> None:
        with self.store.begin() as tx:
            tx.chat.sessions.delete(self.session)
        self.session = create(self.store)


@on_one_face
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(ACTS, min_size=1, max_size=12))
def test_the_counters_are_the_sums_whatever_was_done(store: Any, acts: list[Any]) -> None:
    talk = Talk(store)
    for act in acts:
        talk.run(*act)


def test_usage_that_a_message_brings_counts_at_once(store: Any, session: str) -> None:
    with store.begin() as tx:
        tx.chat.messages.append(session, role="assistant", parts=[], metadata={"usage": {"input": 10, "output": 1}})
        tx.chat.messages.append(session, role="user", parts=[], metadata={"usage": {"input": 99}})
    assert rollup(store, session) == (10, 1, 0, 0, 0, 11)
    usage = {"usage": {"input": 100, "reasoning": 2}}
    record(store, session, [{"type": "start", "messageId": "m"}, *text("x"), {"type": "finish", "messageMetadata": usage}])
    assert rollup(store, session) == (110, 1, 2, 0, 0, 113)
    store.chat.messages.record_step_usage("m", 0, input_tokens=5, output_tokens=0)  # from now on the steps say it
    assert rollup(store, session) == (15, 1, 0, 0, 0, 16)


def test_a_message_without_usage_costs_no_statement_more(counted_store: Any, statements: list[str]) -> None:
    store, session = counted_store, create(counted_store)

    def spent(metadata: Any) -> int:
        with store.begin() as tx:
            statements.clear()
            tx.chat.messages.append(session, role="assistant", parts=[{"type": "text", "text": "x"}], metadata=metadata)
            return len(statements)

    plain = spent({})
    assert spent({"usage": {}}) == plain
    assert spent({"usage": {"input": 1}}) == plain + 1


@pytest.mark.parametrize("after", [True, False])
def test_only_what_is_before_a_compaction_reads_the_session_again(
    counted_store: Any, statements: list[str], open_raw: Any, database_url: str, after: bool
) -> None:
    store, session = counted_store, create(counted_store)
    raw: Raw = open_raw(database_url)
    ids = []
    for _ in range(2):
        with store.begin() as tx:
            ids.append(tx.chat.messages.append(session, role="assistant", parts=[]).id)
            if len(ids) == 1:
                tx.chat.messages.compact(session, summary="s", tail_start_id=None, auto=True, summary_tokens=7)
    statements.clear()
    store.chat.messages.record_step_usage(ids[after], 0, input_tokens=5, output_tokens=0)
    read = [statement for statement in statements if "chat_messages" in statement and "ORDER BY" in statement]
    assert len(read) == (1 if after else 3)
    assert rollup(store, session)[0] == (12 if after else 7)
    assert raw.value("SELECT prompt_tokens FROM chat_sessions") == (12 if after else 7)
