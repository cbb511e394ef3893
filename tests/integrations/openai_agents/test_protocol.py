"""The framework's Session protocol: what its sessions promise, and what is refused before anything is written."""

import asyncio
import inspect
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from agents.exceptions import UserError
from agents.memory import Session as Protocol
from agents.memory import SessionSettings, SQLiteSession

from persist import AsyncStore, Store
from persist.errors import Closed, Conflict, InvalidValue, PersistError, TransactionOpen
from persist.integrations.openai_agents import InvalidItem, PersistSession
from tests.integrations.openai_agents.conftest import Session

Do = Callable[[Awaitable[Any]], Any]


def said(*texts: str) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


def test_it_is_a_session_whose_every_method_takes_a_wrapper(store: Store | AsyncStore, session: Session, do: Do) -> None:
    ours: Protocol = PersistSession("user-1", store)
    assert isinstance(ours, Protocol)
    assert ours.session_id == "user-1"
    for method in (ours.get_items, ours.add_items, ours.pop_item, ours.clear_session):
        assert inspect.signature(method).parameters["wrapper"].kind is inspect.Parameter.KEYWORD_ONLY
    do(session().add_items(said("a"), wrapper=None))
    assert do(session().get_items(wrapper=None)) == said("a")


def test_a_session_nobody_used_is_empty_and_stays_unmade(session: Session, do: Do, look: Store) -> None:
    ours = session()
    assert do(ours.get_items()) == []
    assert do(ours.pop_item()) is None
    do(ours.clear_session())
    do(ours.add_items([]))
    with look.read() as tx:
        assert tx.chat.sessions.list().items == []


@pytest.mark.parametrize("settings", [SessionSettings(limit=2), {"limit": 2}], ids=["settings", "dict"])
def test_the_settings_hold_where_no_limit_is_given(session: Session, do: Do, settings: Any) -> None:
    ours = session(session_settings=settings)
    do(ours.add_items(said("a", "b", "c")))
    assert ours.session_settings == SessionSettings(limit=2)
    assert do(ours.get_items()) == said("b", "c")
    assert do(ours.get_items(3)) == said("a", "b", "c")
    assert session().session_settings == SessionSettings()


@pytest.mark.parametrize("settings", [{"limt": 2}, {"limit": 2, "Limit": 3, "x": 0}, [], "", 0, 7, SessionSettings], ids=repr)
def test_settings_that_the_framework_refuses_are_refused_in_its_words(session: Session, do: Do, settings: Any) -> None:
    with pytest.raises(TypeError) as theirs:
        SQLiteSession("user-1", session_settings=settings)
    with pytest.raises(TypeError) as refusal:
        session(session_settings=settings)
    assert isinstance(refusal.value, InvalidItem)
    assert str(theirs.value) in str(refusal.value)
    ours = session()
    ours.session_settings = settings
    with pytest.raises(InvalidItem) as late:
        do(ours.get_items())
    assert str(late.value) == str(refusal.value)
    do(ours.add_items(said("a", "b")))
    ours.session_settings = {"limit": 1}
    assert do(ours.get_items()) == said("b")


def test_a_cleared_session_goes_on(session: Session, do: Do, look: Store) -> None:
    ours, other = session(), session("user-2")
    do(ours.add_items(said("a", "b")))
    do(other.add_items(said("c")))
    with look.begin() as tx:
        tx.chat.messages.append("user-1", role="system", parts=[{"type": "text", "text": "not an item"}])
    do(ours.clear_session())
    assert do(ours.get_items()) == []
    with look.read() as tx:
        assert [message["role"] for message in tx.chat.messages.list("user-1")] == ["system"]
    do(ours.add_items(said("d")))
    assert (do(ours.get_items()), do(other.get_items())) == (said("d"), said("c"))


def test_items_stay_in_order_while_the_clock_goes_back(session: Session, do: Do, clock: Any) -> None:
    ours = session()
    for text in "abcdef":
        do(ours.add_items(said(text, text.upper())))
        clock.advance(seconds=-1)
    assert do(ours.get_items()) == said(*"aAbBcCdDeEfF")


@pytest.mark.parametrize(
    "name",
    [
        "a b/c:d",
        "*",
        "ünï 日本",
        "nul\x00",
        "half \ud800",
        "\x00\ud800\ufdd0",
        "\ufdd0",
        "\ufdd00000",
        "ses_x",
        "a" * 500,
        "%_'\"\\",
    ],
    ids=[str(number) for number in range(11)],
)
def test_any_text_names_a_session(session: Session, do: Do, look: Store, name: str) -> None:
    do(session(name).add_items(said("a")))
    assert do(session(name).get_items()) == said("a")
    assert do(session(name + "x").get_items()) == []
    assert session(name).session_id == name
    with look.read() as tx:
        assert len(tx.chat.messages.list(session(name).chat_id)) == 1


def test_the_first_items_say_whose_session_it_is(session: Session, do: Do, look: Store) -> None:
    do(session("one").add_items(said("a")))
    do(session("two", agent="travel", model="gpt-5").add_items(said("a")))
    do(session("three", model={"provider_id": "azure", "model_id": "x"}).add_items(said("a")))
    with look.read() as tx:
        found = [tx.chat.sessions.get(name) for name in ("one", "two", "three")]
    assert [(item.agent, item.model) for item in found] == [
        ("openai-agents", {}),
        ("travel", {"provider_id": "openai", "model_id": "gpt-5"}),
        ("openai-agents", {"provider_id": "azure", "model_id": "x"}),
    ]


def test_what_a_shell_left_of_a_session_is_not_the_next_ones(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with Store.open(path) as store:
        asyncio.run(PersistSession("s", store).add_items(said("a secret")))
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("DELETE FROM chat_sessions")
        with pytest.raises(Conflict, match="persist doctor --fix"):
            asyncio.run(PersistSession("s", store).add_items(said("b")))


class Odd:
    """Nothing that JSON knows."""


CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = CIRCLE
DEEP: Any = {}
for _ in range(100_000):
    DEEP = {"a": DEEP}
REFUSED: dict[str, Any] = {
    "text": "hi",
    "list": [1],
    "none": None,
    "object": {"a": Odd()},
    "bytes": {"a": b"x"},
    "set": {"a": {1}},
    "instant": {"a": datetime(2026, 1, 1, tzinfo=UTC)},
    "key": {(1, 2): 3},
    "circle": CIRCLE,
    "deep": DEEP,
    "large": {"role": "user", "content": "x" * (17 * 2**20)},
}


@pytest.mark.parametrize("item", REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_stored_is_refused_before_anything_is(session: Session, do: Do, look: Store, item: Any) -> None:
    ours = session()
    with pytest.raises(InvalidItem) as refusal:
        do(ours.add_items([*said("a"), item]))
    assert isinstance(refusal.value, UserError)
    assert isinstance(refusal.value, InvalidValue)
    assert refusal.value.path.startswith("items[1]")
    assert refusal.value.message == str(refusal.value)
    with look.read() as tx:
        assert tx.chat.sessions.list().items == []


def test_inside_an_open_transaction_it_is_refused_instead_of_waiting(store: Store | AsyncStore, session: Session, do: Do) -> None:
    async def nested() -> None:
        if isinstance(store, Store):
            with store.begin():
                await session().add_items(said("a"))
        else:
            async with store.begin():
                await session().add_items(said("a"))

    with pytest.raises(TransactionOpen):
        do(nested())
    do(session().add_items(said("b")))
    assert do(session().get_items()) == said("b")


def test_a_closed_store_says_so(database_url: str) -> None:
    async def closed() -> None:
        store = Store.open(database_url)
        store.close()
        with pytest.raises(Closed):
            await PersistSession("a", store).get_items()
        other = await AsyncStore.open(database_url)
        await other.close()
        for call in (PersistSession("a", other).get_items(), PersistSession("a", other).add_items(said("a"))):
            with pytest.raises(PersistError):
                await call

    asyncio.run(closed())


def test_the_loop_goes_on_while_a_session_waits_for_the_database(database_url: str, do: Do, session: Session) -> None:
    async def waiting() -> int:
        ticks = 0
        with Store.open(database_url) as other:
            with other.begin() as tx:
                tx.chat.prompts.put("the write lock of a file is ours")
                adding = asyncio.ensure_future(session().add_items(said("a")))
                for _ in range(20):
                    await asyncio.sleep(0)
                    ticks += 1
            await adding
        return ticks

    assert do(waiting()) == 20
    assert do(session().get_items()) == said("a")
