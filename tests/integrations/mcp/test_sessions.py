"""Two clients whose requests have the same numbers are each sent their own messages again, and nobody else's."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from persist import AsyncStore, Store
from persist.errors import UnsupportedEngine
from persist.integrations.mcp import PersistEventStore, PersistSessionManager, SessionBinding, UnboundEventStore
from tests.integrations.mcp.scenes import Answer, Client, running, server

Do = Callable[[Awaitable[Any]], Any]


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
