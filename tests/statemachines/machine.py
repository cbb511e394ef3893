"""What the machines share: each step happens to a store on SQLite, to one on Postgres and to a plain model, and ends alike."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import Table

from persist import Store
from persist.errors import PersistError
from persist.testing import START, FrozenClock
from tests.statemachines.both_databases import alike, clear, plain, rows
from tests.statemachines.single_call import tables_of

UNSAID = object()
"""What a model answers where it has no opinion on the value."""


class Refused(Exception):  # noqa: N818  # an answer of a model, like the others
    """The model says: that is refused, with an error of this type."""


class Each:
    """An argument that differs from store to store, such as an id that a database counted up."""

    def __init__(self, *values: Any) -> None:
        self.values = values


class Machine(RuleBasedStateMachine):
    """One domain. A subclass has rules, which call `do`, and says in `expected` what a reader of `seen` must see."""

    domain: ClassVar[str]
    stores: ClassVar[Sequence[Store]]
    clock: ClassVar[FrozenClock]

    def __init__(self) -> None:
        super().__init__()
        self.clock.set(START)
        for store in self.stores:
            alike(store)
            clear(store, self.emptied())

    def emptied(self) -> list[Table]:
        """The tables that a life begins without rows in."""
        return tables_of(self.domain)

    def do(self, verb: str, *given: Any, expect: Callable[[Any], Any], **named: Any) -> Any:
        """A verb on every store, each in a transaction of its own -> what the first gave, or None where it was refused.

        `expect` is given that, and answers for the model what it should have been, `UNSAID`, or by raising `Refused`.
        """
        results = [self._one(place, store, verb, given, named) for place, store in enumerate(self.stores)]
        (error, value), *others = results
        for other in others:
            assert (error, plain(value)) == (other[0], plain(other[1])), f"{verb}: {results}"
        wanted: Any = UNSAID
        refused = None
        try:
            wanted = expect(value)
        except Refused as refusal:
            refused = str(refusal)
        assert error == refused, f"{verb}: {error or 'done'}, and the model says {refused or 'done'}"
        if error is None and wanted is not UNSAID:
            assert plain(value) == plain(wanted), f"{verb}: {value!r}, and the model says {wanted!r}"
        self.values = [value for _, value in results]
        return value

    @staticmethod
    def _one(place: int, store: Store, verb: str, given: Sequence[Any], named: dict[str, Any]) -> tuple[str | None, Any]:
        def mine(value: Any) -> Any:
            return value.values[place] if isinstance(value, Each) else value

        try:
            with store.begin() as tx:
                found: Any = tx
                for step in verb.split("."):
                    found = getattr(found, step)
                return None, found(*map(mine, given), **{name: mine(value) for name, value in named.items()})
        except PersistError as error:
            return type(error).__name__, None

    def seen(self, tx: Any) -> Any:
        """What a reader sees of the whole domain, without numbers that a database counts."""
        raise NotImplementedError

    def expected(self) -> Any:
        """The same, as the model has it."""
        raise NotImplementedError

    @rule(seconds=st.sampled_from([0.001, 1, 59, 3600, 86_400, -2]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    @invariant()
    def they_agree(self) -> None:
        views, stored = [], []
        for store in self.stores:
            with store.read() as tx:
                views.append(plain(self.seen(tx)))
                stored.append(rows(tx._work, tables_of(self.domain)))
        assert all(view == views[0] for view in views), views
        assert all(one == stored[0] for one in stored), stored
        expected = plain(self.expected())
        assert views[0] == expected, f"seen is {views[0]}, and the model says {expected}"


def explore(
    kind: type[Machine], stores: Sequence[Store], clock: FrozenClock, *, steps: int, examples: int = 1, seed: int | None = None
) -> None:
    """Let it live; with a seed every life is another one, without one they are the same every time."""

    class Bound(kind):  # type: ignore[valid-type, misc]  # one class for each pair of databases
        pass

    Bound.stores, Bound.clock = stores, clock
    Bound.__qualname__ = Bound.__name__ = kind.__name__
    with suppress(AttributeError):
        del Bound.TestCase.settings
    run_state_machine_as_test(
        Bound if seed is None else hypothesis.seed(seed)(Bound),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=seed is None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def page(items: Sequence[Any], size: int) -> list[list[Any]]:
    """The pages that a list comes in."""
    return [list(items[at : at + size]) for at in range(0, len(items), size)] or [[]]


def pages(listing: Callable[..., Any], size: int, **filters: Any) -> list[list[Any]]:
    """Every page of a paged list, by its cursors."""
    found = [listing(limit=size, **filters)]
    while found[-1].cursor is not None:
        found.append(listing(limit=size, after=found[-1].cursor, **filters))
    return [one.items for one in found]
