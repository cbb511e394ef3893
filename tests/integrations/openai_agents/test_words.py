"""What the log of events calls what a session does."""

import inspect
from typing import Any

from persist.events.schemas import TYPES
from persist.integrations.openai_agents.session import SessionItems


def test_every_verb_that_writes_has_a_word_and_every_word_a_verb() -> None:
    found = set()
    for _, member in inspect.getmembers(SessionItems, inspect.isfunction):
        wrapper: Any = inspect.getclosurevars(member).nonlocals
        if wrapper.get("writes"):
            found.add(member.__qualname__)
    assert found == {name for name in TYPES if name.startswith("SessionItems.")}
    assert len(found) == 5
