"""Which databases and faces of a store a test runs on, where it is not Store on SQLite and AsyncStore on Postgres."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

every_way = pytest.mark.every_way
"""For what the asynchronous face does by code of its own: transactions, recorders, observers, opening. A test or a module."""

on_one_face = pytest.mark.parametrize("face", ["sync"])
"""For thousands of rows and random histories: AsyncStore runs the same verb in a thread, and tests beside these go through it."""


def in_one_way(
    names: str | Sequence[str], cases: Iterable[Any], *, ids: Iterable[str] | Callable[[Any], str] | None = None
) -> pytest.MarkDecorator:
    """Cases that pure code decides before any statement: the first of them on both databases, the others on SQLite through Store.

    What it takes is what `pytest.mark.parametrize` takes.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    known = list(cases)
    labels = [*map(ids, known)] if callable(ids) else [None] * len(known) if ids is None else [*ids]
    ways = [("sqlite", "sync"), ("postgres", "async")]
    found = []
    for number, (case, label) in enumerate(zip(known, labels, strict=True)):
        values = [case] if len(names) == 1 else case
        for way in ways[:1] if number else ways:
            found.append(pytest.param(*way, *values, id=None if label is None else "-".join((*way, label))))
    return pytest.mark.parametrize(("backend", "face", *names), found)
