"""Items come back exactly as the framework's own session gives them back: differential tests against SQLiteSession."""

import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents.memory import SQLiteSession
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persist import AsyncStore, Store
from persist.integrations.openai_agents import InvalidItem, PersistSession
from tests.integrations.alike_keys import ALIKE, NULL
from tests.integrations.openai_agents.conftest import Session

Do = Callable[[Awaitable[Any]], Any]

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
