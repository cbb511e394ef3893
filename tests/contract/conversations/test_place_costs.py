"""Inserting and removing near the end of a long progression: few statements, few rows, and nothing of what stays."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.conversations.scenes import counted, insert, make_progression, numbered, remove
from tests.contract.faces import on_one_face


@pytest.mark.parametrize("verb", ["insert", "remove"])
def test_near_the_end_it_costs_the_same_however_long_it_is(counted_store: Any, statements: list[str], verb: str) -> None:
    def cost(progression: str, size: int) -> int:
        """Of a change ten places before the end, where the array shows all, and of one more where it does not."""
        ids, before = numbered(size), len(statements)
        if verb == "insert":
            counts = counted(statements, lambda: insert(counted_store, progression, size - 10, "new"))
            counts += counted(statements, lambda: insert(counted_store, progression, size - 5, "newer"))
        else:
            counts = counted(statements, lambda: remove(counted_store, progression, ids[size - 10]))
            counts += counted(statements, lambda: remove(counted_store, progression, ids[size - 5]))
        assert not [statement for statement in statements[before:] if ids[size - 11] in statement], "what stays was sent"
        return counts

    sizes = {size: make_progression(counted_store, numbered(size)) for size in (500, 5000)}
    cost(make_progression(counted_store, numbered(500)), 500)  # what a store asks once is asked here
    costs = {size: cost(progression, size) for size, progression in sizes.items()}
    assert costs[500] == costs[5000] <= 2 * 24


@on_one_face
def test_only_the_places_from_there_on_are_written(open_store: Any) -> None:
    """As the log of events tells it: each row that was written, and the array."""
    store = open_store(events=True)
    progression = make_progression(store, numbered(5000))
    changes_of: list[Callable[[], bool]] = [
        lambda: insert(store, progression, 4998, "new"),
        lambda: remove(store, progression, "new"),
    ]
    for change_it in changes_of:
        assert change_it()
        with store.read() as tx:
            changes = tx.events.read("conversations", limit=1000)[-1].data["changes"]
        kinds = [(change["table"], change["op"]) for change in changes if change["table"] == "progression_members"]
        assert 4 <= len(kinds) <= 5
        assert {change.get("key", change.get("row"))["ord"] for change in changes[: len(kinds)]} <= {4998, 4999, 5000}
