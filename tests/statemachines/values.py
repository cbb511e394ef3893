"""Calls with hostile arguments, on a database of each kind, through either face."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from persist import AsyncStore
from persist.testing import FrozenClock
from tests.async_portal import Portal, PortalStore
from tests.statemachines.bad_arguments import Hostile, hostile
from tests.statemachines.both_databases import twins
from tests.statemachines.scene import Verb, calls, make
from tests.statemachines.single_call import Place, compare


@contextmanager
def places(*urls: str, awaited: Sequence[bool] = (False, False)) -> Iterator[list[Place]]:
    """The scene on each database; `awaited` says which are used through the asynchronous face."""
    with twins(*urls) as (clock, stores), ExitStack() as stack:
        found = [Place(store, make(store)) for store in stores]
        clock.advance(seconds=1)
        for at, url in enumerate(urls):
            if awaited[at]:
                found[at] = Place(_through_a_loop(stack, url, clock), found[at].ids)
        yield found


def _through_a_loop(stack: ExitStack, url: str, clock: FrozenClock) -> Any:
    portal = Portal()
    stack.callback(portal.close)
    return stack.enter_context(PortalStore.open(portal, AsyncStore.open, url, clock=clock))


def explore_values(
    pair: Sequence[Place], *, examples: int, seed: int | None = None, values: st.SearchStrategy[Hostile] = hostile
) -> tuple[list[str], list[str | None]]:
    """So many calls -> what is wrong, a sentence each; and of each call the error that refused it."""
    problems: list[str] = []
    outcomes: list[str | None] = []

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=seed is None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(call=calls(values))
    def one(call: tuple[Verb, dict[str, Hostile]]) -> None:
        wrong, refused = compare(pair, *call)
        problems.extend(wrong)
        outcomes.append(refused)

    if seed is not None:
        one = hypothesis.seed(seed)(one)
    one()
    return problems, outcomes
