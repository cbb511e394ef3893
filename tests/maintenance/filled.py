"""A store with something of everything in it, closed, for what looks at stores as an operator finds them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime

from persist import Store
from persist.maintenance import Finding
from persist.testing import FrozenClock
from tests.schema.filling import fill
from tests.schema.places import Place

Change = Callable[[Store, FrozenClock], object]


@dataclass(frozen=True)
class _Made:
    """A file that was filled, and when its clock said that it was."""

    content: bytes
    until: datetime


_FILES: dict[datetime, _Made] = {}
"""Filled once in a process for each instant that a clock starts at; every test gets a copy."""


def filled(url: str, clock: FrozenClock) -> Place:
    """Something of every domain, nothing of it running any more."""
    place, began = Place(url), clock()
    new_file = not place.is_postgres and not place.path.exists()
    if new_file and (made := _FILES.get(began)) is not None:
        place.path.write_bytes(made.content)
        clock.set(made.until)
        return place
    with Store.open(url, clock=clock) as store, ExitStack() as stack:
        fill(store, clock, stack)
    if new_file:
        _FILES[began] = _Made(place.path.read_bytes(), clock())
    return place


@contextmanager
def opened(place: Place, clock: FrozenClock, *, read_only: bool = False) -> Iterator[Store]:
    """The store of a place, neither made nor upgraded."""
    with Store.open(place.url, clock=clock, read_only=read_only, migrate=False) as store:
        yield store


def codes(findings: list[Finding]) -> list[str]:
    """The codes, sorted."""
    return sorted(finding.code for finding in findings)


def by_code(findings: list[Finding], code: str) -> Finding:
    """The one finding with that code."""
    (found,) = [finding for finding in findings if finding.code == code]
    return found
