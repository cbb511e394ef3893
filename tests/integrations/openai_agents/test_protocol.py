"""The framework's Session protocol: what its sessions promise, and what is refused before anything is written."""

import asyncio
import inspect
import itertools
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from agents.exceptions import UserError
from agents.memory import Session as Protocol
from agents.memory import SessionSettings, SQLiteSession
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persist import AsyncStore, Store
from persist.errors import Closed, Conflict, InvalidValue, PersistError, TransactionOpen
from persist.integrations.openai_agents import InvalidItem, PersistSession
from tests.integrations.alike_keys import ALIKE, NULL
from tests.integrations.kits import Do
from tests.integrations.openai_agents.conftest import Session


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


# Items come back exactly as the framework's own session gives them back: differential tests against SQLiteSession.


TEXTS = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(
    ["\x00", "\ud800", "\udc00\ud800", "\ud83d\ude00", "\ufdd0", "\ufdd00000", "\\u0000", "\u2028", "NaN", '"', "\\"]
)
NUMBERS = st.integers() | st.integers(2**53, 2**70) | st.floats() | st.sampled_from([-0.0, 1.0, 1e16, 1e300, -(2**64), 10**30])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS | st.integers(-5, 5), inner, max_size=3).filter(
            lambda found: len(set(map(str, found))) == len(found)  # two keys that are one in JSON are refused
        )
    ),
    max_leaves=6,
)
KINDS = st.sampled_from(
    ["message", "reasoning", "function_call", "function_call_output", "web_search_call", "computer_call_output", "compaction"]
)
CALL_IDS = st.sampled_from(["call_0", "call_1", "nul\x00", "half\ud800"])
ITEMS = (
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": TEXTS})
    | st.fixed_dictionaries({"type": KINDS, "call_id": CALL_IDS}, optional={"name": TEXTS, "arguments": TEXTS, "output": VALUES})
    | st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("type", "role", "content", "summary", "call_id", "name", "id", "output", "action"), VALUES)
    )
    | st.dictionaries(TEXTS, VALUES, max_size=4)
)
STEPS = st.lists(
    st.tuples(st.just("add"), st.lists(ITEMS, max_size=4))
    | st.tuples(st.just("get"), st.none() | st.integers(-2, 6))
    | st.tuples(st.sampled_from(["pop", "clear"]), st.none()),
    max_size=10,
)


async def outcome(session: Any, step: str, value: Any) -> str:
    """What a step gave, as text: equal texts are equal values with equal types, NaN and the order of keys included."""
    match step:
        case "add":
            given = await session.add_items(value)
        case "get":
            given = await session.get_items(value)
        case "pop":
            given = await session.pop_item()
        case _:
            given = await session.clear_session()
    return json.dumps(given)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=STEPS)
def test_every_sequence_of_calls_gives_what_the_framework_gives(store: Store | AsyncStore, do: Do, steps: list[Any]) -> None:
    async def same() -> None:
        theirs = SQLiteSession("theirs")
        try:
            for step, value in [*steps, ("get", None)]:
                assert await outcome(ours, step, value) == await outcome(theirs, step, value), (step, value)
        finally:
            theirs.close()

    ours = PersistSession(f"example {next(NUMBERING)}", store)
    do(same())


NUMBERING = itertools.count()

EXACT: dict[str, Any] = {
    "order of keys": {"z": 1, "content": "b", "a": {"y": 1, "x": 2}, "role": "user"},
    "numbers": {"a": [10**30, -(2**63) - 1, 2**64, 1.0, -0.0, 1e16, 0.1, float("inf"), float("nan")]},
    "text": {"role": "user", "content": "nul \x00 half \ud800 pair \ud83d\ude00 lead \ufdd0 \ufdd00000 line \u2028"},
    "keys": {"nul\x00": 1, "half\ud800": 2, "": 3, "__proto__": 4},
    "tuple": {"content": ("a", "b"), 1: True, None: 2.5},
    "deep": {"a": [[[[[[[[[[[[{"b": [[[[[[[[[[[[]]]]]]]]]]]]}]]]]]]]]]]]]},
    "empty": {},
    "large": {"role": "user", "content": "x" * 2**20},
    "metadata": {"hidden_at": 1, "queued_at": 2, "openai_agents": 3, "usage": {"input": 4}},
}


@pytest.mark.parametrize("item", EXACT.values(), ids=list(EXACT))
def test_an_item_is_kept_exactly(session: Session, do: Do, item: Any) -> None:
    ours = session()
    plain: Any = {"role": "user", "content": "before"}
    do(ours.add_items([plain, item]))
    expected = json.dumps(item)
    assert json.dumps(json.loads(expected)) == json.dumps(do(ours.get_items())[1]) == json.dumps(do(ours.get_items(1))[0])
    assert json.dumps(do(ours.pop_item())) == json.dumps(json.loads(expected))
    assert do(ours.get_items()) == [plain]


def test_switching_there_and_back_loses_nothing(session: Session, do: Do, store: Store | AsyncStore) -> None:
    items: list[Any] = [*EXACT.values()]

    async def there_and_back() -> list[str]:
        theirs, back = SQLiteSession("theirs"), SQLiteSession("back")
        try:
            await theirs.add_items(items)
            ours = session()
            await ours.add_items(await theirs.get_items())
            await back.add_items(await ours.get_items())
            return [json.dumps(await one.get_items()) for one in (theirs, ours, back)]
        finally:
            theirs.close()
            back.close()

    first, *others = do(there_and_back())
    assert others == [first, first]


@pytest.mark.parametrize("alike", [*ALIKE, NULL], ids=repr)
def test_two_keys_that_are_one_in_json_are_refused(session: Session, do: Do, alike: Any) -> None:
    """The framework's own session keeps the value of one of them."""
    item = {"role": "user", "content": "hi"}
    with pytest.raises(InvalidItem, match=r"items\[1\].*one key in JSON"):
        do(session().add_items([item, {"type": "other", "output": alike}]))
    assert do(session().get_items()) == []
    numbered: dict[Any, Any] = {**item, 1: "a", "2": "b"}
    do(session().add_items([numbered]))
    assert do(session().get_items()) == [{**item, "1": "a", "2": "b"}]
