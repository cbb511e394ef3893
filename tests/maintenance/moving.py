"""Databases of either kind for tests that move rows from one to another."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from persist.maintenance import copy
from persist.store import Store
from persist.testing import FrozenClock
from tests.schema.filling import fill

PAIRS = ["sqlite-sqlite", "sqlite-postgres", "postgres-sqlite", "postgres-postgres"]
Pair = tuple[str, str]


def new_url(request: pytest.FixtureRequest, kind: str, tmp_path: Path, name: str) -> str:
    """A database of that kind, ready for Store.open."""
    if kind == "postgres":
        create: Callable[[], str] = request.getfixturevalue("new_postgres_database")
        return create()
    return f"sqlite:///{(tmp_path / name).as_posix()}"


def filled(url: str, clock: FrozenClock) -> None:
    """Something of everything; the turn that ran in it is over."""
    with Store.open(url, clock=clock) as store, ExitStack() as stack:
        fill(store, clock, stack)


@contextmanager
def opened(*urls: str) -> Iterator[list[Store]]:
    """Stores on these databases."""
    with ExitStack() as stack:
        yield [stack.enter_context(Store.open(url)) for url in urls]


def checksums(store: Store) -> dict[str, str]:
    """Of every table but `_meta`, as a copy computes them."""
    with Store.open("sqlite:///:memory:") as scratch:
        found = copy(store, scratch).checksums
    return {table: found[table] for table in found if table != "_meta"}
