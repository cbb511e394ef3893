"""SQLite, Postgres and a plain model go through the same things and end alike, whatever comes in whatever order."""

import pytest

from tests.statemachines.both_databases import twins
from tests.statemachines.machine import Machine, explore
from tests.statemachines.registry import MACHINES


@pytest.mark.parametrize("kind", MACHINES, ids=[kind.__name__ for kind in MACHINES])
def test_both_databases_do_what_a_plain_model_does(
    kind: type[Machine], sqlite_url: str, postgres_url: str, pytestconfig: pytest.Config
) -> None:
    with twins(sqlite_url, postgres_url) as (clock, stores):
        explore(kind, stores, clock, examples=3 if pytestconfig.getoption("--lane") else 5, steps=15)
