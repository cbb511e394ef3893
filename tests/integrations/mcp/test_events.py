"""Events of a session come back as they were stored, in order, in pages, until retention deletes them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.server.streamable_http import EventMessage
from mcp.shared.exceptions import MCPError
from mcp.types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from sqlalchemy import update

from persist import AsyncStore, Store
from persist.errors import InvalidValue, UnsupportedEngine
from persist.framework_state.replay_streams.models import messages
from persist.integrations.mcp import InvalidMessage, PersistEventStore, PersistSessionManager, SessionBinding, UnboundEventStore
from persist.testing import FrozenClock
from tests.integrations.kits import Do
from tests.integrations.mcp.scenes import Answer, Client, running, server

HARD: dict[str, Any] = {
    "z": "NUL \x00, half \ud83d, lead \ufdd0",
    "a": [2**63 - 1, 10**30, -0.0, 1e300, float("inf"), None, True, {}],
    "": {"b": 1, "a": 2},
}


def note(number: int) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"n": number})


async def replayed(store: Any, id: str) -> tuple[str | None, list[EventMessage]]:
    found: list[EventMessage] = []

    async def keep(event: EventMessage) -> None:
        found.append(event)

    return await store.replay_events_after(id, keep), found


def test_every_kind_of_message_comes_back_equal(events: PersistEventStore, do: Do) -> None:
    session = events.for_session("a")
    given: list[Any] = [
        JSONRPCNotification(jsonrpc="2.0", method="n"),
        JSONRPCNotification(jsonrpc="2.0", method="n", params=HARD),
        JSONRPCRequest(jsonrpc="2.0", id="seven", method="r", params={}),
        JSONRPCResponse(jsonrpc="2.0", id=2**63, result=HARD),
        JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=-1, message="no", data=[HARD])),
    ]
    priming = do(session.store_event("7", None))
    ids = [do(session.store_event("7", message)) for message in given]
    assert [priming, *ids] == sorted({priming, *ids})
    stream, found = do(replayed(session, priming))
    assert stream == "7"
    assert [event.event_id for event in found] == ids
    assert [event.message for event in found] == given
    assert [event.message.model_fields_set for event in found] == [message.model_fields_set for message in given]
    assert list(found[1].message.params) == list(HARD)


@pytest.mark.parametrize("wrong", [{"a": b"x"}, {"a": (1,)}, {"a": {1: 2}}, {"a": {"b": {1}}}, {"a": object()}])
def test_what_json_would_change_is_refused(events: PersistEventStore, do: Do, wrong: dict[str, Any]) -> None:
    session = events.for_session("a")
    before = do(session.store_event("1", None))
    with pytest.raises(InvalidMessage) as caught:
        do(session.store_event("1", JSONRPCNotification.model_construct(jsonrpc="2.0", method="n", params=wrong)))
    assert isinstance(caught.value, InvalidValue)
    assert isinstance(caught.value, MCPError)
    assert caught.value.message == str(caught.value)
    assert do(replayed(session, before)) == ("1", [])


@pytest.mark.parametrize("name", ["", "_GET_stream", "\x00\ud83d", "\ufdd0", "x" * 600])
def test_any_request_id_names_a_stream(events: PersistEventStore, do: Do, name: str) -> None:
    session = events.for_session("\x00")
    first = do(session.store_event(name, None))
    do(session.store_event(name, note(1)))
    stream, found = do(replayed(session, first))
    assert stream == name
    assert [event.message for event in found] == [note(1)]


def test_retention_by_count_and_by_age(store: Store | AsyncStore, do: Do, clock: FrozenClock) -> None:
    session = PersistEventStore(store, max_events_per_stream=3, max_age=timedelta(minutes=5)).for_session("a")
    ids = [do(session.store_event("1", note(number))) for number in range(5)]
    other = do(session.store_event("2", note(9)))
    assert do(replayed(session, ids[1])) == (None, [])
    assert [event.message for event in do(replayed(session, ids[2]))[1]] == [note(3), note(4)]
    clock.advance(seconds=301)
    assert do(replayed(session, ids[2])) == (None, [])
    new = do(session.store_event("1", note(5)))
    forever = PersistEventStore(store, max_events_per_stream=None, max_age=None).for_session("a")
    assert do(replayed(forever, other)) == (None, [])
    assert do(replayed(forever, new)) == ("1", [])


def test_a_callback_is_awaited_outside_of_any_transaction_and_pages_are_small(
    store: Store | AsyncStore, do: Do, caplog: pytest.LogCaptureFixture
) -> None:
    session = PersistEventStore(store, page_size=2).for_session("a")
    first = do(session.store_event("1", None))
    for number in range(5):
        do(session.store_event("1", note(number)))
    found: list[Any] = []

    async def write_meanwhile(event: EventMessage) -> None:
        found.append(event.message)
        if len(found) < 4:  # a writer would wait for a transaction that is open
            await session.store_event("1", note(10 + len(found)))

    assert do(session.replay_events_after(first, write_meanwhile)) == "1"
    assert found == [*map(note, range(5)), note(11), note(12), note(13)]


def test_an_event_that_somebody_spoilt_is_left_out(
    database_url: str, events: PersistEventStore, do: Do, caplog: pytest.LogCaptureFixture
) -> None:
    session = events.for_session("a")
    first = do(session.store_event("1", None))
    for number in range(3):
        do(session.store_event("1", note(number)))
    with Store.open(database_url) as other, other.begin() as tx:
        tx._work.change(update(messages).where(messages.c.position == 3).values(message="{"))
    with caplog.at_level(logging.WARNING, "persist"):
        assert [event.message for event in do(replayed(session, first))[1]] == [note(0), note(2)]
    assert "left out" in caplog.text


class InMemory:
    """The example of the SDK, with one store for each session."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, Any]] = []

    async def store_event(self, stream: str, message: Any) -> str:
        self.events.append((str(len(self.events)), stream, message))
        return self.events[-1][0]

    async def replay_events_after(self, last: str, send: Callable[[EventMessage], Awaitable[None]]) -> str | None:
        at = next((number for number, event in enumerate(self.events) if event[0] == last), None)
        if at is None:
            return None
        for id, stream, message in self.events[at + 1 :]:
            if stream == self.events[at][1] and message is not None:
                await send(EventMessage(message, id))
        return self.events[at][1]


STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["1", "2", "_GET_stream"]), st.sampled_from([None, 1, 2, 3])), max_size=12
)


@pytest.fixture
def one_store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        yield store


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_each_session_behaves_as_a_store_in_memory_of_its_own(one_store: Store, steps: list[tuple[str, str, Any]]) -> None:
    events = PersistEventStore(one_store, page_size=2)
    ours = {name: events.for_session(name) for name in "ab"}
    theirs = {name: InMemory() for name in "ab"}

    async def scene() -> None:
        ids: list[tuple[str, str, str]] = []
        for session, stream, number in steps:
            message = None if number is None else note(number)
            mine = await ours[session].store_event(stream, message)
            ids.append((session, mine, await theirs[session].store_event(stream, message)))
        for owner, mine, other in ids:
            for session in "ab":
                got, found = await replayed(ours[session], mine)
                if session != owner:
                    assert (got, found) == (None, [])
                    continue
                wanted, expected = await replayed(theirs[session], other)
                assert (got, [event.message for event in found]) == (wanted, [event.message for event in expected])
        for one in ours.values():
            await one.delete()

    asyncio.run(scene())


def test_a_session_of_too_long_a_name_is_refused_by_every_verb(events: PersistEventStore, do: Do) -> None:
    session = events.for_session("x" * 700)
    for call in (session.store_event("1", note(1)), session.delete()):
        with pytest.raises(InvalidMessage, match="700 bytes") as caught:
            do(call)
        assert isinstance(caught.value, MCPError)
    assert do(replayed(session, "rpl_1")) == (None, [])


# Two clients whose requests have the same numbers are each sent their own messages again, and nobody else's.


def lowlevel() -> Any:
    return server()._lowlevel_server


async def two_clients(app: Any, kind: type[Client] = Client) -> None:
    """Both open a session and call the tool at once; then each asks for what followed its own first event, and the other's."""
    one, two = kind(app), kind(app)
    opened = [await one.open(), await two.open()]
    assert one.session != two.session
    answers: dict[str, Answer] = {}

    async def talk(client: Client, who: str) -> None:
        answers[who] = await client.talk(who)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk, one, "one")
        tasks.start_soon(talk, two, "two")
    for client, other, who in ((one, two, "one"), (two, one, "two")):
        said = [f"{who} 0", f"{who} 1", f"{who} is done"]
        priming, *sent = answers[who].events
        assert priming[1] is None
        assert answers[who].said == said
        again = await client.resume(priming[0], until=lambda answer: len(answer.said) == 3)
        assert again.said == said
        assert [id for id, message in again.events if message is not None] == [id for id, _ in sent]
        later = await client.resume(sent[0][0], until=lambda answer: len(answer.said) == 2)
        assert later.said == said[1:]
        assert (await other.resume(priming[0])).events == []  # and it ends at once
    first = opened[0].events[-1][0]
    assert (await two.resume(first)).events == []


async def test_a_manager_gives_each_session_its_own_store(events: PersistEventStore) -> None:
    async with running(PersistSessionManager(lowlevel(), events)) as app:
        await two_clients(app)


async def test_a_binding_does_so_for_a_manager_that_somebody_else_makes(events: PersistEventStore) -> None:
    talker = server()
    app = SessionBinding(talker.streamable_http_app(event_store=events))
    async with talker.session_manager.run():
        await two_clients(app)


def test_on_trio_a_store_serves_too(events: PersistEventStore, store: Store | AsyncStore) -> None:
    async def scene() -> None:
        async with running(PersistSessionManager(lowlevel(), events)) as app:
            await two_clients(app)

    if isinstance(store, Store):
        anyio.run(scene, backend="trio")
        return

    async def refused() -> None:
        with pytest.raises(UnsupportedEngine, match="Store"):
            await events.for_session("a").store_event("1", None)

    anyio.run(refused, backend="trio")


def test_a_store_that_nobody_bound_refuses(events: PersistEventStore, do: Do) -> None:
    async def nothing(_: Any) -> None:
        raise AssertionError

    with pytest.raises(UnboundEventStore, match="PersistSessionManager"):
        do(events.store_event("1", None))
    with pytest.raises(UnboundEventStore, match="PersistSessionManager"):
        do(events.replay_events_after("rpl_1", nothing))


def test_what_a_deleted_session_was_sent_is_found_until_it_is_pruned(
    events: PersistEventStore, store: Store | AsyncStore, do: Do
) -> None:
    async def scene() -> str:
        async with running(PersistSessionManager(lowlevel(), events)) as app:
            client = Client(app)
            await client.open()
            await client.talk("one")
            session = client.session
            assert (await client.close()).status == 200
            assert (await client.resume("rpl_1")).status == 404
            assert session is not None
            return session

    session = do(scene())
    assert do(events.for_session(session).delete()) is True
    assert do(events.for_session(session).delete()) is False
