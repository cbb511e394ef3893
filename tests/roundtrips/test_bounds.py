"""No verb takes more round trips to Postgres than its bound. The bounds only ever go down: see tests/roundtrips/bounds.py."""

import pytest

from tests.roundtrips.bounds import BOUNDS
from tests.roundtrips.calls import EVERYDAY, by_domain, counted
from tests.roundtrips.meter import complaint, require

VERBS = by_domain()


@pytest.mark.parametrize("log", [False, True], ids=["", "log of events"])
@pytest.mark.parametrize("domain", sorted(VERBS))
def test_every_verb_keeps_its_bound(domain: str, log: bool, postgres_url: str) -> None:
    with counted(postgres_url, log=log or domain == "events") as calls:
        bounds = [(verb, BOUNDS[verb.name].bound) for verb in VERBS[domain]]
        require(*(complaint(verb.name, bound, calls.verb(verb, bound)) for verb, bound in bounds))


def test_everyday_calls_keep_their_bounds(postgres_url: str) -> None:
    with counted(postgres_url) as calls:
        require(*(complaint(name, BOUNDS[name].bound, calls.everyday(name, BOUNDS[name].bound)) for name in EVERYDAY))


def test_the_table_names_what_is_counted() -> None:
    assert set(BOUNDS) == {verb.name for verbs in VERBS.values() for verb in verbs} | set(EVERYDAY)
