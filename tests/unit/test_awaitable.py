"""A verb of the asynchronous face: the same function with the same arguments, result and errors, in every kind of transaction."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from persist.db.transactions.async_transactions import AsyncTransactionPerVerb, JoinedUnitOfWork, async_face
from persist.db.transactions.repository import Repository
from persist.errors import NotFound
from tests.cases import each


class Verbs(Repository):
    """A repository of one verb, which shows what reached it."""

    def verb(self, first: object, /, *rest: object, key: object = None, **named: object) -> tuple[object, ...]:
        """What it does."""
        if key == "missing":
            raise NotFound("thing", "missing")
        return self._work, first, rest, key, named

    verb.writes = True  # type: ignore[attr-defined]  # as the decorator of a verb notes


AsyncVerbs = async_face(Verbs)


class DirectWork:
    """A unit of work that runs what it is given, and is asked for nothing else."""

    @property
    def work(self) -> "DirectWork":
        return self

    async def call(self, function: Callable[[], Any]) -> Any:
        return function()


def in_a_transaction_of_its_own() -> tuple[Any, object]:
    async def run(verb: Callable[[Any], Any], writes: bool) -> Any:
        assert writes
        return verb("the transaction")

    work = AsyncTransactionPerVerb(run, one_writer=False)
    return AsyncVerbs(work), "the transaction"


def in_a_transaction() -> tuple[Any, object]:
    work: Any = DirectWork()
    return AsyncVerbs(work), work


def in_a_transaction_of_a_host() -> tuple[Any, object]:
    async def run_sync(function: Callable[[Any], Any]) -> Any:
        return function("a connection")

    inner: Any = object()  # this verb looks at no unit of work
    return AsyncVerbs(JoinedUnitOfWork(run_sync, inner)), inner


@each("make", [in_a_transaction_of_its_own, in_a_transaction, in_a_transaction_of_a_host])
def test_arguments_results_and_errors_are_those_of_the_verb(make: Callable[[], tuple[Any, object]]) -> None:
    async def main() -> None:
        verbs, work = make()
        value = object()
        assert await verbs.verb(1, value, [3], key=value, other=4) == (work, 1, (value, [3]), value, {"other": 4})
        assert await verbs.verb(None) == (work, None, (), None, {})
        with pytest.raises(NotFound, match="missing"):
            await verbs.verb(1, key="missing")
        with pytest.raises(TypeError, match="first"):
            await verbs.verb()

    asyncio.run(main())


def test_it_has_the_signature_and_the_words_of_the_verb() -> None:
    assert AsyncVerbs.verb.__wrapped__ is Verbs.verb
    assert AsyncVerbs.verb.__doc__ == Verbs.verb.__doc__
