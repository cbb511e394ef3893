"""Retention is off; a setting turns it on for one domain, and the windows go by settings of their own."""

from datetime import timedelta

import pytest

from persist import Store
from persist.errors import InvalidValue
from persist.maintenance import maintain, prune
from persist.maintenance.pruning import Policy, policies
from persist.settings import Settings
from tests.cases import each
from tests.maintenance.pruning_scenes import DAY, DOMAINS, every_row, forty_days_later, gone


def test_nothing_is_kept_for_a_time_only_unless_it_is_said() -> None:
    assert policies(Settings()) == []
    assert policies(Settings(**{f"{domain}_keep_last": 5 for domain in DOMAINS})) == []


def test_every_domain_has_its_setting() -> None:
    for domain in DOMAINS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(f"PERSIST_{domain.upper()}_KEEP_DAYS", "1.5")
            assert policies(Settings()) == [Policy(domain=domain, older_than=timedelta(hours=36), keep=0)]
            patch.setenv(f"PERSIST_{domain.upper()}_KEEP_LAST", "7")
            assert policies(Settings()) == [Policy(domain=domain, older_than=timedelta(hours=36), keep=7)]


@each("wrong", ["-1", "0", "nan", "inf", "1e9", "", "a month"])
def test_days_that_mean_nothing_are_refused(wrong: str) -> None:
    """0 would mean to delete everything that is over: leaving it out turns retention off."""
    for domain in DOMAINS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(f"PERSIST_{domain.upper()}_KEEP_DAYS", wrong)
            with pytest.raises(InvalidValue) as caught:
                Settings()
        assert caught.value.path == f"PERSIST_{domain.upper()}_KEEP_DAYS"


def test_a_number_to_keep_is_not_negative() -> None:
    for domain in DOMAINS:
        with pytest.raises(InvalidValue) as caught:
            Settings(**{f"{domain}_keep_last": -1})
        assert caught.value.path == f"{domain}_keep_last"


@each("domain", DOMAINS)
def test_maintain_prunes_what_a_setting_says_and_nothing_else(filled: str, domain: str) -> None:
    with forty_days_later(filled) as store:
        clock = store.runtime.clock
        maintain(store)  # whatever else there is to do
        before = every_row(filled)
        expected = prune(store, domain, older_than=30 * DAY, dry_run=True).tables
        assert expected
        with Store.open(filled, clock=clock, settings=Settings(**{f"{domain}_keep_days": 30})) as strict:
            (step,) = [step for step in maintain(strict).steps if step.name.startswith("prune")]
        assert (step.name, step.tables, step.error) == (f"prune {domain}", expected, None)
        assert gone(before, every_row(filled)) == expected


def test_maintain_keeps_the_last_so_many(filled: str) -> None:
    kept = {f"{domain}_keep_days": 30 for domain in DOMAINS} | {f"{domain}_keep_last": 1000 for domain in DOMAINS}
    with (
        forty_days_later(filled) as store,
        Store.open(filled, clock=store.runtime.clock, settings=Settings(**kept)) as strict,
    ):
        steps = [step for step in maintain(strict).steps if step.name.startswith("prune")]
        assert {step.name for step in steps} >= {f"prune {domain}" for domain in DOMAINS}
        for step in steps:
            assert set(step.tables) <= {"system_prompts", "messages"}, step.name
