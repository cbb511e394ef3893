"""A store with something of everything in it, closed, for what looks at stores as an operator finds them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from persist import Store
from persist.maintenance import Finding
from persist.testing import FrozenClock
from tests.schema.filling import fill
from tests.schema.places import Place
from tests.seeded_databases import fill_once

Change = Callable[[Store, FrozenClock], object]


def filled(url: str, clock: FrozenClock) -> Place:
    """Something of every domain, nothing of it running any more."""

    def make(url: str) -> None:
        with Store.open(url, clock=clock) as store, ExitStack() as stack:
            fill(store, clock, stack)

    fill_once(url, clock, "something of every domain", make)
    return Place(url)


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
