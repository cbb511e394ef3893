"""One value domain through every parameter of every public verb: refused with nothing written, or kept, and on both alike."""

from tests.statemachines.scene import verbs
from tests.statemachines.single_call import compare
from tests.statemachines.values import explore_values, places


def test_every_verb_does_the_same_with_valid_arguments(sqlite_url: str, postgres_url: str) -> None:
    with places(sqlite_url, postgres_url) as pair:
        found = {verb.name: compare(pair, verb, {}) for verb in verbs()}
    assert {name: result for name, result in found.items() if result != ([], None)} == {}


def test_hostile_arguments_are_refused_or_kept(sqlite_url: str, postgres_url: str) -> None:
    with places(sqlite_url, postgres_url, awaited=(False, True)) as pair:
        problems, outcomes = explore_values(pair, examples=60)
    assert problems == []
    assert None in outcomes
    assert "InvalidValue" in outcomes
