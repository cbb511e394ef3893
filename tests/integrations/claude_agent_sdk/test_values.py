"""What entries and keys may hold, and what is refused with an error of both worlds."""

import json
import math
import pickle
from typing import Any

import pytest
from claude_agent_sdk import ClaudeSDKError, SessionStore

from persist import Store
from persist.errors import InvalidValue
from persist.integrations.claude_agent_sdk import InvalidEntry, PersistSessionStore
from persist.testing import FrozenClock
from tests.integrations.kits import Do

KEY = {"project_key": "p", "session_id": "s"}
HARD = {
    "type": "x",
    "z": "\x00 \ud83d \udfff \ufdd0 Naïve 😀",
    "a": [math.inf, 1e16, -0.0, 0.1, 2**53 + 1, 2**63, 10**400, True, None],
    "\ud83d": {"": [[], {}]},
    "deep": json.loads("[" * 150 + "]" * 150),
}


def test_hard_values_come_back_equal_with_the_order_of_their_keys(sessions: Any, do: Do) -> None:
    do(sessions.append(KEY, [HARD, {"type": "x", "value": math.nan, "uuid": "\x00"}]))
    hard, other = do(sessions.load(KEY))
    assert json.dumps(hard) == json.dumps(HARD)
    assert math.isnan(other["value"])


def test_a_whole_mebibyte_comes_back(sessions: Any, do: Do) -> None:
    entries = [{"type": "x", "uuid": str(number), "text": "é" * 2000} for number in range(500)]
    do(sessions.append(KEY, entries))
    assert do(sessions.load(KEY)) == entries
    assert do(sessions.tail(KEY, 3)) == entries[-3:]


@pytest.mark.parametrize(
    "entries", ["text", [1], [None], [{"a": (1, 2)}], [{1: "x"}], [{"a": b"x"}], [{"a": {1, 2}}], {"type": "x"}, None], ids=repr
)
def test_what_would_come_back_as_something_else_is_refused(sessions: Any, do: Do, entries: Any) -> None:
    with pytest.raises(InvalidEntry) as caught:
        do(sessions.append(KEY, entries))
    assert isinstance(caught.value, InvalidValue)
    assert isinstance(caught.value, ClaudeSDKError)
    assert caught.value.path.startswith("entries")
    assert do(sessions.load(KEY)) is None
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


KEYS: list[Any] = [
    None,
    {},
    {"project_key": "p"},
    {"project_key": "p", "session_id": 1},
    {"project_key": "", "session_id": "s"},
    {"project_key": "\x00", "session_id": "s"},
    {"project_key": "p", "session_id": "\ud83d"},
    {**KEY, "subpath": ""},
    {**KEY, "subpath": 1},
    {**KEY, "subpath": "a\x00"},
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_keys_that_name_nothing_are_refused(sessions: Any, do: Do, key: Any) -> None:
    for call in (sessions.append(key, [{"type": "x"}]), sessions.load(key), sessions.delete(key), sessions.tail(key, 1)):
        with pytest.raises(InvalidEntry):
            do(call)


def test_mtimes_are_of_one_clock_and_never_go_back(sessions: Any, do: Do, clock: FrozenClock) -> None:
    def mtimes() -> set[int]:
        found = [*do(sessions.list_sessions("p")), *do(sessions.list_session_summaries("p"))]
        assert len(found) == 2
        return {one["mtime"] for one in found}

    at = int(clock().timestamp() * 1000)
    do(sessions.append(KEY, [{"type": "x"}]))
    assert mtimes() == {at}
    clock.advance(seconds=-3600)
    do(sessions.append(KEY, [{"type": "x"}]))
    assert mtimes() == {at}
    clock.advance(seconds=7200)
    do(sessions.append({**KEY, "subpath": "subagents/agent-1"}, [{"type": "x"}]))
    assert mtimes() == {at}
    do(sessions.append(KEY, [{"type": "x"}]))
    assert mtimes() == {at + 3_600_000}


def test_an_empty_batch_does_nothing(sessions: Any, do: Do) -> None:
    do(sessions.append(KEY, []))
    assert do(sessions.load(KEY)) is None
    assert do(sessions.list_sessions("p")) == []


def test_it_is_what_the_framework_expects(store: Any, look: Store) -> None:
    assert SessionStore in PersistSessionStore.__mro__
    assert repr(PersistSessionStore(store)) == f"PersistSessionStore({store!r})"
