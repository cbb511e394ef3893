"""No verb takes more round trips to Postgres than its bound. The bounds only ever go down: see tests/roundtrips/bounds.csv."""

import pytest

from tests.distributed_server import takes_triggers
from tests.roundtrips.bounds import BOUNDS
from tests.roundtrips.calls import EVERYDAY, by_domain, counted
from tests.roundtrips.meter import complaint, require
from tests.roundtrips.page import PAGE, page

VERBS = by_domain()


def _more(url: str, *, log: bool) -> int:
    """A cluster numbers events before it writes them, because the sequence is not on the node of the tables."""
    return int(log and not takes_triggers(url))


@pytest.mark.parametrize("domain", sorted(VERBS))
@pytest.mark.parametrize("log", [False, True], ids=["", "log of events"])
def test_every_verb_keeps_its_bound(domain: str, log: bool, postgres_url: str) -> None:
    log = log or domain == "events"
    with counted(postgres_url, log=log) as calls:
        more = _more(postgres_url, log=log)
        bounds = [(verb, BOUNDS[verb.name].bound + more) for verb in VERBS[domain]]
        require(*(complaint(verb.name, bound, calls.verb(verb, bound)) for verb, bound in bounds))


@pytest.mark.parametrize("domain", sorted(VERBS))
def test_every_verb_keeps_its_bound_however_it_is_called(domain: str, postgres_url: str) -> None:
    with counted(postgres_url, log=domain == "events") as calls:
        more = _more(postgres_url, log=domain == "events")
        for verb in VERBS[domain]:
            bound = BOUNDS[verb.name].bound + more
            require(*(complaint(f"{verb.name} {how}", bound, found) for how, found in calls.ways(verb, bound).items()))


def test_everyday_calls_keep_their_bounds(postgres_url: str) -> None:
    with counted(postgres_url) as calls:
        require(*(complaint(name, BOUNDS[name].bound, calls.everyday(name, BOUNDS[name].bound)) for name in EVERYDAY))


def test_the_table_names_what_is_counted() -> None:
    with pytest.raises(LookupError, match=r"bounds\.csv has no row for chat\.sessions\.dance"):
        _ = BOUNDS["chat.sessions.dance"]
    assert set(BOUNDS) == {verb.name for verbs in VERBS.values() for verb in verbs} | set(EVERYDAY)


def test_the_page_of_round_trips_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(BOUNDS)
