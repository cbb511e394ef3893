"""persist's own conformance kit: our session passes it, the SDK's passes it, and each check finds the fault it is for."""

import asyncio
import json
from collections import defaultdict
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from agents.memory import SQLiteSession

from persist.testing.conformance import openai_agents, run
from tests.contract.faces import every_way
from tests.integrations.kits import Do
from tests.integrations.openai_agents.conftest import Session

Kept = defaultdict[str, list[Any]]
NAMES = tuple(check.__name__ for check in openai_agents.CHECKS)


@every_way
@pytest.mark.parametrize("check", openai_agents.CHECKS, ids=NAMES)
def test_our_session_conforms(session: Session, do: Do, check: openai_agents.Check) -> None:
    do(check(session))


def test_the_sdk_s_own_session_conforms(do: Do, tmp_path: Path) -> None:
    report = do(run(openai_agents.CHECKS, lambda name: SQLiteSession(name, tmp_path / "own.db")))
    report.raise_failures()
    assert report.passed == NAMES


class InMemory:
    """A session that conforms; those below have a fault each."""

    def __init__(self, name: str, kept: Kept) -> None:
        self.name, self.kept = name, kept

    @property
    def items(self) -> list[Any]:
        return self.kept[self.name]

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return deepcopy(self.items if limit is None else self.items[-limit:])

    async def add_items(self, items: list[Any]) -> None:
        self.items.extend(deepcopy(items))

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


class Unprepared(InMemory):
    async def pop_item(self) -> Any:
        return self.items.pop()


class NewestFirst(InMemory):
    async def add_items(self, items: list[Any]) -> None:
        self.items[:0] = deepcopy(items)


class Oldest(InMemory):
    async def get_items(self, limit: int | None = None) -> list[Any]:
        return deepcopy(self.items[:limit])


class Queue(InMemory):
    async def pop_item(self) -> Any:
        return self.items.pop(0) if self.items else None


class ClearsAll(InMemory):
    async def clear_session(self) -> None:
        self.kept.clear()


class Alone(InMemory):
    def __init__(self, name: str, kept: Kept) -> None:
        super().__init__(name, defaultdict(list))


class Folding(InMemory):
    def __init__(self, name: str, kept: Kept) -> None:
        super().__init__(name.lower(), kept)


class Sorting(InMemory):
    async def add_items(self, items: list[Any]) -> None:
        self.items.extend(json.loads(json.dumps(items, sort_keys=True)))


class Floats(InMemory):
    async def add_items(self, items: list[Any]) -> None:
        self.items.extend(json.loads(json.dumps(items), parse_int=float))


class Cutting(InMemory):
    async def add_items(self, items: list[Any]) -> None:
        self.items.extend({**item, "content": item.get("content", "")[:65_536]} for item in items)


class Sharing(InMemory):
    async def get_items(self, limit: int | None = None) -> list[Any]:
        return self.items if limit is None else self.items[-limit:]


class Interleaving(InMemory):
    async def add_items(self, items: list[Any]) -> None:
        for item in deepcopy(items):
            self.items.append(item)
            await asyncio.sleep(0)


class Losing(InMemory):
    async def add_items(self, items: list[Any]) -> None:
        before = list(self.items)
        await asyncio.sleep(0)
        self.items[:] = before + deepcopy(items)


class PoppingTwice(InMemory):
    async def pop_item(self) -> Any:
        latest = self.items[-1] if self.items else None
        await asyncio.sleep(0)
        del self.items[-1:]
        return latest


FAULTS = {
    Unprepared: {"an_unused_session_is_empty", "popping_takes_the_latest"},
    NewestFirst: {"items_come_back_in_order"},
    Oldest: {"a_limit_gives_the_latest"},
    Queue: {"popping_takes_the_latest"},
    ClearsAll: {"a_cleared_session_goes_on"},
    Alone: {"two_objects_are_one_conversation"},
    Folding: {"similar_ids_are_different_sessions"},
    Sorting: {"items_come_back_exactly"},
    Floats: {"items_come_back_exactly"},
    Cutting: {"a_large_item_comes_back"},
    Sharing: {"what_is_given_stays_the_callers"},
    Interleaving: {"concurrent_additions_are_kept_whole", "a_cancelled_addition_is_whole_or_absent"},
    Losing: {"concurrent_additions_are_kept_whole"},
    PoppingTwice: {"concurrent_pops_take_each_item_once"},
}


def checked(kind: type[InMemory], do: Do) -> Any:
    kept: Kept = defaultdict(list)
    return do(run(openai_agents.CHECKS, lambda name: kind(name, kept)))


def test_each_check_finds_its_fault(do: Do) -> None:
    assert checked(InMemory, do).passed == NAMES
    for kind, expected in FAULTS.items():
        report = checked(kind, do)
        assert expected <= report.failed.keys(), f"{kind.__name__}: {report}"
        with pytest.raises(ExceptionGroup, match=f"{len(report.passed)} passed, {len(report.failed)} failed"):
            report.raise_failures()
    assert set.union(*FAULTS.values()) == set(NAMES)
