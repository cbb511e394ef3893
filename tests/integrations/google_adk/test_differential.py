"""Random histories end as they do with the framework's in-memory service and with its service on a database of its own."""

import asyncio
import itertools
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.database_session_service import DatabaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from hypothesis import given, settings
from hypothesis import strategies as st

from persist import Store
from persist.integrations.google_adk import PersistSessionService
from tests.integrations.google_adk.scenes import event

USERS, IDS, WRITERS = ["u", "v"], ["1", "2"], ["a", "b"]
KEYS = st.sampled_from(["k", "l", "user:k", "user:l", "app:k", "temp:k", "app:", "odd:k"])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text("ab\\ü\n", max_size=3), st.lists(st.none(), max_size=2)
)
STATE = st.dictionaries(KEYS, VALUES, max_size=3)
WHERE = st.tuples(st.sampled_from(USERS), st.sampled_from(IDS))
OPERATION = st.one_of(
    st.tuples(st.just("create"), WHERE, STATE),
    st.tuples(st.just("append"), WHERE, st.tuples(st.sampled_from(WRITERS), STATE, st.booleans())),
    st.tuples(st.just("append"), WHERE, st.tuples(st.sampled_from(WRITERS), STATE, st.just(False))),
    st.tuples(st.just("read"), WHERE, st.sampled_from(WRITERS)),
    st.tuples(st.just("delete"), WHERE, st.none()),
)
HISTORIES = st.lists(OPERATION, max_size=14)
ERRORS = (AlreadyExistsError, SessionNotFoundError, StaleSessionError)


class Side:
    """A service, and the session objects that two writers have in hand."""

    def __init__(self, service: BaseSessionService, app: str) -> None:
        self.service, self.app = service, app
        self.in_hand: dict[tuple[tuple[str, str], str], Session] = {}

    def names(self, where: tuple[str, str]) -> dict[str, Any]:
        return {"app_name": self.app, "user_id": where[0], "session_id": where[1]}

    async def carry_out(self, number: int, operation: tuple[str, tuple[str, str], Any]) -> Any:
        kind, where, more = operation
        try:
            if kind == "create":
                made = await self.service.create_session(**self.names(where), state=dict(more))
                for writer in WRITERS:
                    self.in_hand[where, writer] = made.model_copy(deep=True)
                return plain(made)
            if kind == "delete":
                return await self.service.delete_session(**self.names(where))
            if kind == "read":
                return await self.read(where, more)
            return await self.append(number, where, *more)
        except ERRORS as error:
            return next(kind.__name__ for kind in ERRORS if isinstance(error, kind))

    async def read(self, where: tuple[str, str], writer: str) -> Any:
        found = await self.service.get_session(**self.names(where))
        if found is not None:
            self.in_hand[where, writer] = found
        return found and plain(found)

    async def append(self, number: int, where: tuple[str, str], writer: str, delta: dict[str, Any], partial: bool) -> Any:
        session = self.in_hand.get((where, writer))
        if session is None:
            return None
        given = event(f"{number}", dict(delta), id=f"e{number}", timestamp=2_000_000_000.0 + number, partial=partial or None)
        await self.service.append_event(session, given)
        return given, plain(session)

    async def everything(self) -> Any:
        found: list[Any] = []
        for user in USERS:
            found.append(await self.service.get_user_state(app_name=self.app, user_id=user))
            for id in IDS:
                stored = await self.service.get_session(**self.names((user, id)))
                found.append(stored and plain(stored))
        for user_id in (None, *USERS):
            listed = (await self.service.list_sessions(app_name=self.app, user_id=user_id)).sessions
            found.append(sorted((one.user_id, one.id, repr(sorted(one.state.items())), len(one.events)) for one in listed))
        return found


def plain(session: Session) -> Any:
    return session.id, session.user_id, session.state, [(one.id, one) for one in session.events]


async def compare(ours: Side, theirs: Side, history: list[Any]) -> None:
    for number, operation in enumerate(history):
        mine, other = await ours.carry_out(number, operation), await theirs.carry_out(number, operation)
        assert mine == other, (number, operation)
    assert await ours.everything() == await theirs.everything()


def fresh(history: list[Any]) -> list[Any]:
    """The history with a read before every append: the in-memory service lets a writer overlook what others wrote."""
    return [step for one in history for step in ([("read", one[1], one[2][0]), one] if one[0] == "append" else [one])]


def test_histories_are_those_of_the_in_memory_service(database_url: str) -> None:
    apps = itertools.count()
    with Store.open(database_url) as store, asyncio.Runner() as runner:

        @settings(max_examples=20, deadline=None)
        @given(history=HISTORIES)
        def compared(history: list[Any]) -> None:
            app = f"app-{next(apps)}"
            sides = Side(PersistSessionService(store), app), Side(InMemorySessionService(), app)
            runner.run(compare(*sides, fresh(history)))

        compared()


def test_histories_of_two_writers_are_those_of_the_database_service(database_url: str) -> None:
    apps = itertools.count()
    with Store.open(database_url) as store, asyncio.Runner() as runner:
        theirs = DatabaseSessionService("sqlite+aiosqlite:///:memory:")

        @settings(max_examples=20, deadline=None)
        @given(history=HISTORIES)
        def compared(history: list[Any]) -> None:
            app = f"app-{next(apps)}"
            runner.run(compare(Side(PersistSessionService(store), app), Side(theirs, app), history))

        compared()
        runner.run(theirs.close())


@pytest.mark.parametrize("kind", [InMemorySessionService, PersistSessionService])
def test_what_the_services_have_in_common_is_what_the_base_class_declares(kind: type[BaseSessionService]) -> None:
    declared = {name for name in vars(BaseSessionService) if not name.startswith("_")} - {"flush"}
    assert declared <= set(vars(kind))
