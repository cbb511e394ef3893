"""Retention is off; a setting turns it on for one domain, and the windows go by settings of their own."""

from datetime import timedelta

import pytest

from persist import Store
from persist.errors import InvalidValue
from persist.maintenance import maintain, prune
from persist.maintenance.retention import Policy, policies
from persist.settings import Settings
from tests.maintenance.pruning_scenes import DAY, DOMAINS, every_row, forty_days_later, gone


def test_nothing_is_kept_for_a_time_only_unless_it_is_said() -> None:
    assert policies(Settings()) == []
    assert policies(Settings(**{f"{domain}_keep_last": 5 for domain in DOMAINS})) == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_has_its_setting(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PERSIST_{domain.upper()}_KEEP_DAYS", "1.5")
    assert policies(Settings()) == [Policy(domain=domain, older_than=timedelta(hours=36), keep=0)]
    monkeypatch.setenv(f"PERSIST_{domain.upper()}_KEEP_LAST", "7")
    assert policies(Settings()) == [Policy(domain=domain, older_than=timedelta(hours=36), keep=7)]


@pytest.mark.parametrize("wrong", ["-1", "0", "nan", "inf", "1e9", "", "a month"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_days_that_mean_nothing_are_refused(domain: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 would mean to delete everything that is over: leaving it out turns retention off."""
    monkeypatch.setenv(f"PERSIST_{domain.upper()}_KEEP_DAYS", wrong)
    with pytest.raises(InvalidValue) as caught:
        Settings()
    assert caught.value.path == f"PERSIST_{domain.upper()}_KEEP_DAYS"


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_number_to_keep_is_not_negative(domain: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Settings(**{f"{domain}_keep_last": -1})
    assert caught.value.path == f"{domain}_keep_last"


@pytest.mark.parametrize("domain", DOMAINS)
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


@pytest.mark.parametrize("domain", DOMAINS)
def test_maintain_keeps_the_last_so_many(filled: str, domain: str) -> None:
    settings = Settings(**{f"{domain}_keep_days": 30, f"{domain}_keep_last": 1000})
    with (
        forty_days_later(filled) as store,
        Store.open(filled, clock=store.runtime.clock, settings=settings) as strict,
    ):
        (step,) = [step for step in maintain(strict).steps if step.name.startswith("prune")]
        assert set(step.tables) <= {"system_prompts", "messages"}
