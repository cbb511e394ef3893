"""The same calls on SQLite and on Postgres, in any order: the same transcripts, rollups, results and errors."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from pydantic import BaseModel

from persist import Store
from persist.errors import PersistError
from persist.testing import FrozenClock
from tests.contract.chat.scenes import MODEL, approval, call, output, text
from tests.examples import examples

PIECES = ["a", "Hello ", "", "\x00", "\ud83d", "\ude00", "ü\u2028", '"\\', "%s ?"]
JSON = st.recursive(
    st.sampled_from([None, True, 0, -1, 2**64 - 1, 1.5, 1e16, -0.0, "", "x\x00", "\ud83d", "ß"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "\x00", "\ud83d"]), inner, max_size=2),
    max_leaves=5,
)
METADATA = st.none() | st.dictionaries(st.sampled_from(["k", "o", "title", "ephemeral", "usage", "agent"]), JSON, max_size=3)
PARTS = st.lists(st.sampled_from(PIECES).map(lambda words: {"type": "text", "text": words}), max_size=2)
TEXT = st.lists(st.sampled_from(PIECES), max_size=4).map(lambda pieces: text(*pieces))
CALL_IDS = st.sampled_from(["call_0", "call_1"])
CHUNKS = st.one_of(
    TEXT,
    TEXT.map(lambda chunks: chunks[:-1]),
    st.tuples(CALL_IDS, JSON).map(lambda pair: [call("bash", *pair)]),
    st.tuples(CALL_IDS, JSON).map(lambda pair: [output(*pair)]),
    CALL_IDS.map(lambda id: [call("bash", id), approval(f"ap-{id}", id)]),
    st.lists(st.sampled_from(['{"a": [', "1, ", "tru", '"x', "\\ud8", "]}"]), max_size=4).map(
        lambda pieces: [
            {"type": "tool-input-start", "toolCallId": "call_1", "toolName": "bash"},
            *({"type": "tool-input-delta", "toolCallId": "call_1", "inputTextDelta": piece} for piece in pieces),
        ]
    ),
    JSON.map(lambda value: [{"type": "data-x", "id": "d", "data": value}]),
    METADATA.map(lambda value: [{"type": "message-metadata", "messageMetadata": value}]),
    st.sampled_from(["start", "start-step", "finish-step", "finish", "abort", "unknown", "text-end"]).map(
        lambda kind: [{"type": kind, "id": "nothing open"} if kind == "text-end" else {"type": kind}]
    ),
    st.just([{"type": "error", "errorText": "overloaded"}]),
)
STREAM = st.lists(CHUNKS, max_size=8).map(lambda groups: [chunk for group in groups for chunk in group])
OPTIONS = st.fixed_dictionaries(
    {"save_on": st.sampled_from(["chunk", "step", "turn"])},
    optional={"model": st.just({"model_id": "other"}), "agent": st.just("plan"), "system_prompt": st.just("Be brief.")},
)
NUMBER = st.integers(0, 12)
COUNT = st.integers(0, 1000)


class Side:
    """One store, and short names for the ids that it minted, in the order they were first seen."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.names: dict[str, str] = {}
        self.sessions: list[str] = []

    def name(self, id: str) -> str:
        return self.names.setdefault(id, f"#{len(self.names)}")

    def plain(self, value: Any) -> Any:
        """Comparable: named ids, models as dicts, and types told apart."""
        if isinstance(value, BaseModel):
            return self.plain(value.model_dump())
        if isinstance(value, dict):
            return {key: self.plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, str):
            return self.name(value) if value[:4] in ("ses_", "msg_", "prt_") and len(value) == 30 else value
        return value if isinstance(value, datetime | None) else (type(value).__name__, repr(value))

    def attempt(self, function: Callable[["Side"], Any]) -> Any:
        try:
            return self.plain(function(self))
        except PersistError as error:
            return type(error).__name__

    def messages(self, session: int) -> list[str]:
        """Every message of a session that has a place: the visible, the hidden, then the queued ones."""
        with self.store.read() as tx:
            listed = [message["id"] for message in tx.chat.messages.list(self.sessions[session], include_hidden=True)]
            return [*listed, *(message.id for message in tx.chat.messages.queued(self.sessions[session]))]

    def view(self, session: str) -> Any:
        with self.store.read() as tx:
            return self.plain(
                [
                    tx.chat.messages.list(session, include_hidden=True),
                    tx.chat.messages.list(session),
                    tx.chat.messages.queued(session),
                    tx.chat.messages.model_view(session),
                    tx.chat.sessions.get(session),
                    tx.chat.sessions.children(session),
                ]
            )


class SideBySide(RuleBasedStateMachine):
    """Every rule runs on both sides, and must end alike."""

    sides: tuple[Side, Side]
    clock: FrozenClock

    def both(self, function: Callable[[Side], Any]) -> Any:
        one, two = (side.attempt(function) for side in self.sides)
        assert one == two
        return one

    def verb(self, path: str, *args: Any, **fields: Any) -> Any:
        """`tx.chat.<path>`; a callable argument is given the side and makes the argument."""
        group, name = path.split(".")

        def run(side: Side) -> Any:
            made = [arg(side) if callable(arg) else arg for arg in args]
            named = {key: value(side) if callable(value) else value for key, value in fields.items()}
            with side.store.begin() as tx:
                return getattr(getattr(tx.chat, group), name)(*made, **named)

        return self.both(run)

    def session(self, number: int) -> Callable[[Side], str]:
        return lambda side: side.sessions[number % len(side.sessions)]

    def message(self, session: int, number: int) -> Callable[[Side], str]:
        def pick(side: Side) -> str:
            found = side.messages(session % len(side.sessions))
            return found[number % len(found)] if found else "msg_nowhere"

        return pick

    def discover(self) -> None:
        """Take in what was created or forked, and let go of what was deleted."""
        for side in self.sides:
            with side.store.read() as tx:
                side.sessions = sorted(session.id for session in tx.chat.sessions.list(include_archived=True, limit=1000).items)

    @initialize(chunks=STREAM)
    def talk(self, chunks: Any) -> None:
        """Something to rewind, fork, answer and claim."""
        self.verb("sessions.create", agent="build", model=MODEL, metadata={"title": "Talk"})
        self.discover()
        for words in ("one", "two"):
            self.verb("messages.append", self.session(0), role="user", parts=[{"type": "text", "text": words}])
            self.feed(0, [*text(words), call("bash", "call_0"), approval("ap-call_0", "call_0"), *chunks], {})
            self.verb("messages.enqueue", self.session(0), parts=[{"type": "text", "text": f"after {words}"}])

    @invariant()
    def they_agree(self) -> None:
        self.discover()
        one, two = self.sides
        assert len(one.sessions) == len(two.sessions)
        for mine, theirs in zip(one.sessions, two.sessions, strict=True):
            assert one.view(mine) == two.view(theirs)
        self.both(_listed)

    @rule(seconds=st.sampled_from([0.001, 1, 61, 400, -5]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    @rule(metadata=METADATA)
    def create(self, metadata: Any) -> None:
        self.verb("sessions.create", agent="plan", model=MODEL, metadata=metadata)

    @rule(session=NUMBER, role=st.sampled_from(["user", "assistant", "system", "tool"]), parts=PARTS, metadata=METADATA)
    def append(self, session: int, role: str, parts: Any, metadata: Any) -> None:
        self.verb("messages.append", self.session(session), role=role, parts=parts, metadata=metadata)

    @rule(session=NUMBER, parts=PARTS, metadata=METADATA, delivery=st.none() | st.sampled_from(["d1", "d2"]))
    def enqueue(self, session: int, parts: Any, metadata: Any, delivery: str | None) -> None:
        trigger = {} if delivery is None else {"trigger": {"delivery_id": delivery}}
        self.verb("messages.enqueue", self.session(session), parts=parts, metadata={**(metadata or {}), **trigger})

    @rule(session=NUMBER, tools=st.sampled_from([(), ("bash",)]))
    def claim(self, session: int, tools: tuple[str, ...]) -> None:
        self.verb("messages.claim_queued", self.session(session), human_input_tools=tools)

    @rule(session=NUMBER, message=NUMBER)
    def cancel(self, session: int, message: int) -> None:
        self.verb("messages.cancel_queued", self.message(session, -1 - message % 3))

    @rule(session=NUMBER, message=NUMBER, verb=st.sampled_from(["rewind", "unrewind"]))
    def rewind(self, session: int, message: int, verb: str) -> None:
        self.verb(f"sessions.{verb}", self.session(session), self.message(session, message))

    @precondition(lambda self: len(self.sides[0].sessions) < 6)
    @rule(session=NUMBER, message=NUMBER, metadata=METADATA)
    def fork(self, session: int, message: int, metadata: Any) -> None:
        self.verb("sessions.fork", self.session(session), self.message(session, message), metadata=metadata)

    @rule(session=NUMBER, message=st.none() | NUMBER, tokens=COUNT)
    def compact(self, session: int, message: int | None, tokens: int) -> None:
        tail = None if message is None else self.message(session, message)
        fields = {"summary": "so far", "auto": False, "summary_tokens": tokens}
        self.verb("messages.compact", self.session(session), tail_start_id=tail, **fields)

    @rule(session=NUMBER, chunks=STREAM, options=OPTIONS)
    def record(self, session: int, chunks: Any, options: Any) -> None:
        self.feed(session, chunks, options)

    @rule(session=NUMBER, message=NUMBER, chunks=STREAM, options=OPTIONS)
    def resume(self, session: int, message: int, chunks: Any, options: Any) -> None:
        self.feed(session, chunks, options, resumed=message)

    @rule(session=NUMBER, chunks=STREAM, options=OPTIONS, tokens=COUNT)
    def record_many(self, session: int, chunks: Any, options: Any, tokens: int) -> None:
        self.feed(session, chunks, options, tokens=tokens)

    def feed(self, session: int, chunks: Any, options: Any, *, resumed: int | None = None, tokens: int | None = None) -> None:
        def run(side: Side) -> Any:
            start = [] if resumed is None else [{"type": "start", "messageId": self.message(session, resumed)(side)}]
            with side.store.record(self.session(session)(side), **options) as recorder:
                if tokens is None:
                    for chunk in [*start, *chunks]:
                        recorder.feed(chunk)
                else:
                    recorder.step_usage(0, input_tokens=tokens, output_tokens=1, cost_usd=0.25)
                    recorder.feed_many([*start, *chunks])
                return [recorder.message_id, recorder.ignored]

        self.both(run)

    @rule(session=NUMBER, id=CALL_IDS, approved=st.booleans())
    def answer(self, session: int, id: str, approved: bool) -> None:
        self.verb("messages.answer_approval", self.session(session), f"ap-{id}", approved=approved)

    @rule(session=NUMBER, message=NUMBER, step=st.integers(0, 2), tokens=st.tuples(COUNT, COUNT, COUNT, COUNT, COUNT))
    def use(self, session: int, message: int, step: int, tokens: tuple[int, ...]) -> None:
        names = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")
        counts = dict(zip(names, tokens, strict=True))
        self.verb("messages.record_step_usage", self.message(session, message), step, **counts, cost_usd=0.5)

    @rule(session=NUMBER, message=NUMBER, patch=METADATA)
    def patch(self, session: int, message: int, patch: Any) -> None:
        self.verb("messages.update_metadata", self.message(session, message), patch or {})
        self.verb("sessions.update_metadata", self.session(session), patch or {})
        self.verb(f"sessions.{'archive' if message % 2 else 'unarchive'}", self.session(session))

    @precondition(lambda self: len(self.sides[0].sessions) > 2)
    @rule(session=NUMBER)
    def delete(self, session: int) -> None:
        self.verb("sessions.delete", self.session(session))

    @rule(session=st.none() | NUMBER)
    def repair(self, session: int | None) -> None:
        self.verb("messages.repair_interrupted", None if session is None else self.session(session))


def _listed(side: Side) -> Any:
    with side.store.read() as tx:
        return tx.chat.sessions.list(limit=100).items


def test_sqlite_and_postgres_agree(sqlite_url: str, postgres_url: str) -> None:
    clock = FrozenClock()
    with Store.open(sqlite_url, clock=clock) as one, Store.open(postgres_url, clock=clock) as two:

        class Machine(SideBySide):
            def __init__(self) -> None:
                super().__init__()
                self.clock = clock
                for store in (one, two):  # each example begins with no session
                    with store.begin() as tx:
                        for session in tx.chat.sessions.list(include_archived=True, limit=1000).items:
                            tx.chat.sessions.delete(session.id)
                self.sides = (Side(one), Side(two))

        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=examples(8),
                stateful_step_count=25,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
