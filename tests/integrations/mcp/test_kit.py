"""persist's conformance kit: our store passes it, and so does one in memory, of which each fault is found by its check."""

import asyncio
from collections.abc import Awaitable, Callable

from mcp.server.streamable_http import EventMessage, EventStore
from mcp.types import JSONRPCMessage

from persist import AsyncStore, Store
from persist.integrations.mcp import PersistEventStore
from persist.testing.conformance import mcp
from tests.contract.faces import every_way
from tests.integrations.kits import Do, require_all, require_faults_found

Send = Callable[[EventMessage], Awaitable[None]]


@every_way
def test_our_store_conforms(store: Store | AsyncStore, do: Do) -> None:
    require_all(do, mcp.CHECKS, PersistEventStore(store).for_session)


class InMemory:
    """Makes stores of sessions that conform; those below have a fault each."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, JSONRPCMessage | None]] = []

    def __call__(self, session_id: str) -> EventStore:
        return Bound(self, session_id)

    def new_id(self, session: str) -> str:
        return f"{len(self.events):09}-{session}"

    async def store(self, session: str, stream: str, message: JSONRPCMessage | None) -> str:
        id = self.new_id(session)
        self.events.append((session, stream, id, None if message is None else message.model_copy(deep=True)))
        return id

    def place(self, session: str, id: str) -> int | None:
        found = [number for number, one in enumerate(self.events) if (one[0], one[2]) == (session, id)]
        return found[0] if found else None

    def following(self, place: int) -> list[EventMessage]:
        session, stream, _, _ = self.events[place]
        found = [one for one in self.events[place + 1 :] if one[:2] == (session, stream)]
        return [EventMessage(message, id) for _, _, id, message in found if message is not None]

    async def replay(self, session: str, id: str, send: Send) -> str | None:
        place = self.place(session, id)
        if place is None:
            return None
        for event in self.following(place):
            await send(event)
        return self.events[place][1]


class Bound(EventStore):
    def __init__(self, of: InMemory, session: str) -> None:
        self.of, self.session = of, session

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        return await self.of.store(self.session, stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: Send) -> str | None:
        return await self.of.replay(self.session, last_event_id, send_callback)


class Inclusive(InMemory):
    def following(self, place: int) -> list[EventMessage]:
        return super().following(place - 1)


class Guessing(InMemory):
    def place(self, session: str, id: str) -> int | None:
        found = super().place(session, id)
        return 0 if found is None and self.events else found


class Hopeful(InMemory):
    async def store(self, session: str, stream: str, message: JSONRPCMessage | None) -> str:
        return await super().store(session, stream, message or mcp._note("nothing"))


class OneStream(InMemory):
    def following(self, place: int) -> list[EventMessage]:
        session = self.events[place][0]
        return [EventMessage(one[3], one[2]) for one in self.events[place + 1 :] if one[0] == session and one[3] is not None]


class Unbound(InMemory):
    def __call__(self, session_id: str) -> EventStore:
        return super().__call__("everybody")


class Counting(InMemory):
    def new_id(self, session: str) -> str:
        return f"{sum(one[0] == session for one in self.events)}"


class Dumping(InMemory):
    def following(self, place: int) -> list[EventMessage]:
        found = super().following(place)
        return [EventMessage(type(event.message).model_validate(event.message.model_dump()), event.event_id) for event in found]


class FirstPage(InMemory):
    def following(self, place: int) -> list[EventMessage]:
        return super().following(place)[:100]


class Locked(InMemory):
    sending = False

    async def store(self, session: str, stream: str, message: JSONRPCMessage | None) -> str:
        if self.sending:
            raise TimeoutError("the database is locked")
        return await super().store(session, stream, message)

    async def replay(self, session: str, id: str, send: Send) -> str | None:
        self.sending = True
        try:
            return await super().replay(session, id, send)
        finally:
            self.sending = False


class Racing(InMemory):
    async def store(self, session: str, stream: str, message: JSONRPCMessage | None) -> str:
        id = self.new_id(session)
        await asyncio.sleep(0)
        self.events.append((session, stream, id, message))
        return id


class TwiceIfCancelled(InMemory):
    async def store(self, session: str, stream: str, message: JSONRPCMessage | None) -> str:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            await super().store(session, stream, message)
            await super().store(session, stream, message)
            raise
        return await super().store(session, stream, message)


def test_a_store_in_memory_conforms(do: Do) -> None:
    require_all(do, mcp.CHECKS, InMemory())


def test_each_check_finds_its_fault(do: Do) -> None:
    faults: dict[str, type[InMemory]] = {
        "what_followed_is_sent_again": Inclusive,
        "an_unknown_id_is_nothing": Guessing,
        "markers_are_never_sent": Hopeful,
        "streams_are_apart": OneStream,
        "sessions_are_apart": Unbound,
        "ids_are_never_given_twice": Counting,
        "messages_come_back_exactly": Dumping,
        "a_long_stream_is_sent_whole": FirstPage,
        "sending_may_use_the_store": Locked,
        "events_that_come_at_once_are_kept": Racing,
        "a_cancelled_event_is_whole_or_absent": TwiceIfCancelled,
    }
    require_faults_found(do, mcp.CHECKS, faults)
