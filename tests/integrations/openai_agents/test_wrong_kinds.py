"""Arguments of a wrong kind are refused by the framework's error."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents.exceptions import UserError

from persist import AsyncStore, Store
from persist.integrations.openai_agents import InvalidItem, PersistSession
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors

Do = Callable[[Awaitable[Any]], Any]


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
