"""What the session refuses, hides and costs: wrong kinds, secrets, round trips; trio; and its words."""

import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from agents.exceptions import UserError

from persist import AsyncStore, Store
from persist.errors import InvalidValue, UnsupportedEngine
from persist.events.schemas import TYPES
from persist.integrations.openai_agents import InvalidItem, PersistSession
from persist.integrations.openai_agents.session import SessionItems
from tests.integrations.kits import Do
from tests.integrations.openai_agents.conftest import Session
from tests.integrations.telling import SECRET, require_silence
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, require


def test_arguments_of_a_session(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    session = PersistSession("s", store)
    do(session.add_items([{"role": "user", "content": "hi"}]))
    valid: dict[str, dict[str, Any]] = {
        "get_items": {"limit": 1},
        "add_items": {"items": [{"role": "user", "content": "hi"}]},
        "pop_item": {},
        "clear_session": {},
    }
    require_typed_errors(lambda: session, valid, do=do, database_url=database_url, error=UserError)


@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_arguments_of_a_new_session(store: Store | AsyncStore, wrong: Any) -> None:
    with pytest.raises(InvalidItem, match="expected a Store or an AsyncStore"):
        PersistSession("s", wrong)
    for name, right in (("session_id", str), ("agent", str), ("session_settings", type(None))):
        if not isinstance(wrong, right):
            given: dict[str, Any] = {"session_id": "s", "store": store, name: wrong}
            with pytest.raises(InvalidItem):
                PersistSession(**given)


# How often a session of the OpenAI Agents SDK waits for an answer of Postgres.


ROWS = (Row("add_items", 2, goal=2), Row("get_items", 1, goal=1), Row("pop_item", 2, goal=2), Row("clear_session", 2, goal=2))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, do: Callable[[Awaitable[object]], object]) -> None:
    with Store.open(meter.url) as store:
        session = PersistSession("user-1", store)
        methods: dict[str, Callable[[], object]] = {
            "add_items": lambda: do(session.add_items([{"role": "user", "content": "hi"}])),
            "get_items": lambda: do(session.get_items()),
            "pop_item": lambda: do(session.pop_item()),
            "clear_session": lambda: do(session.clear_session()),
        }
        methods["add_items"]()
        require(complaint(row.name, row.bound, meter.flights(methods[row.name], bound=row.bound)))


# What is stored, or refused, stands in no error of a session and not in the log.


class Told:
    """A value of no JSON, whose text is a secret."""

    def __repr__(self) -> str:
        return SECRET


def test_items_that_cannot_be_read_or_stored_are_not_told(
    session: Session, do: Callable[[Awaitable[Any]], Any], execute: Callable[[str], int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    do(session().add_items([{"role": "user", "content": "one"}]))
    for unreadable in (f'["{SECRET}",', [f'["{SECRET}",']):
        assert execute(f"UPDATE chat_messages SET metadata_json = '{json.dumps({'openai_agents': unreadable})}'") == 1
        do(session().get_items())
    assert SECRET not in caplog.text
    circle: dict[str, Any] = {"role": "user", "content": SECRET}
    circle["again"] = circle
    for item in (circle, {"content": Told()}, {SECRET: {1, 2}}):
        with pytest.raises(InvalidValue, match="it is no JSON") as caught:
            do(session().add_items([item]))
        require_silence(caught, caplog)
    with pytest.raises(InvalidValue, match="no session settings") as caught:
        session(session_settings={"limit": SECRET})
    require_silence(caught, caplog)


# On trio a Store is used from threads, and an AsyncStore is refused.


def test_on_trio(store: Store | AsyncStore) -> None:
    session: Any = PersistSession("s", store)  # of any type: items are plain dicts

    async def several() -> list[Any]:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(session.add_items, [{"role": "user", "content": f"{number}"}])
        return list(await session.get_items())

    if isinstance(store, Store):
        assert sorted(item["content"] for item in trio.run(several)) == list("01234")
        return
    for call in (lambda: session.add_items([{"role": "user", "content": "hi"}]), session.get_items, session.pop_item):
        with pytest.raises(UnsupportedEngine, match="elsewhere give the adapter a Store"):
            trio.run(call)


def test_every_verb_that_writes_has_a_word_and_every_word_a_verb() -> None:
    found = set()
    for _, member in inspect.getmembers(SessionItems, inspect.isfunction):
        wrapper: Any = inspect.getclosurevars(member).nonlocals
        if wrapper.get("writes"):
            found.add(member.__qualname__)
    assert found == {name for name in TYPES if name.startswith("SessionItems.")}
    assert len(found) == 5
