"""What a search by embedding can be computed with."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from persist.conversations.storage import lineage
from persist.db.dialects.sqlite import operations
from tests.contract.conversations.vector_scenes import WAYS
from tests.unit.float32 import with_functions


class _WithoutNumpy:
    """Finds no numpy, wherever it is."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "numpy":
            raise ModuleNotFoundError("No module named 'numpy'", name=name)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Of the ways only this one and those after it are there, for stores that are opened afterwards."""

    def use_(way: str) -> None:
        monkeypatch.setattr(operations, "load_sqlite_vec", with_functions if way == WAYS[0] else lambda driver: False)
        if way == WAYS[2]:
            # not None in sys.modules: drivers look there, too, and take what they find for numpy
            monkeypatch.delitem(sys.modules, "numpy", raising=False)
            monkeypatch.setattr(sys, "meta_path", [_WithoutNumpy(), *sys.meta_path])

    return use_


@pytest.fixture(params=[lineage.MAX_COPIED, 0], ids=["copied", "kept"])
def most_copied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """What forks inherit is little, and is copied; or is much, and former branches keep it."""
    monkeypatch.setattr(lineage, "MAX_COPIED", request.param)
    return int(request.param)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, use: Callable[[str], None]) -> str:
    """What is there, before the store is opened."""
    use(request.param)
    return str(request.param)


@pytest.fixture
def every_way(use: Callable[[str], None], open_store: Callable[..., Any]) -> Callable[[Callable[[Any], Any]], list[Any]]:
    """What a question gives on a store of each way, on the same database."""

    def ask(question: Callable[[Any], Any]) -> list[Any]:
        answers = []
        for way in WAYS:
            use(way)
            answers.append(question(open_store()))
        return answers

    return ask
