"""Overrides: what an operator switched off or rescheduled, and going back to the defaults."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from persist.workflows.schemas import CronOverride, WorkflowOverride
from tests.at_once import together
from tests.contract.conftest import Raw
from tests.contract.workflows.making import plant

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


def set_cron(store: Any, name: str = "nightly", **fields: Any) -> CronOverride:
    override: CronOverride = store.workflows.cron_overrides.set(name, **fields)
    return override


def cron(store: Any, name: str = "nightly") -> CronOverride | None:
    found: CronOverride | None = store.workflows.cron_overrides.get(name)
    return found


def clear_cron(store: Any, name: str = "nightly") -> bool:
    return bool(store.workflows.cron_overrides.clear(name))


def set_workflow(store: Any, name: str = "build", **fields: Any) -> WorkflowOverride:
    override: WorkflowOverride = store.workflows.workflow_overrides.set(name, **fields)
    return override


def enabled(store: Any, name: str = "build") -> bool:
    found = store.workflows.workflow_overrides.is_enabled(name)
    assert type(found) is bool
    return found


def test_an_override_says_everything(store: Any, other: Any, clock: Any) -> None:
    expected = CronOverride(name="nightly", enabled=False, schedule="0 3 * * *", updated_at=NOW, updated_by="maria")
    assert set_cron(store, enabled=False, schedule="0 3 * * *", by="maria") == expected
    assert cron(other) == expected
    at = clock.advance(seconds=60)
    expected = CronOverride(name="nightly", enabled=True, schedule="@daily", updated_at=at, updated_by="jo")
    assert set_cron(store, enabled=True, schedule="@daily", by="jo") == expected
    assert cron(other) == expected


def test_no_override_is_none(store: Any) -> None:
    set_cron(store, "other", enabled=False)
    assert cron(store) is None
    assert cron(store, "Other") is None


def test_what_is_omitted_is_kept(store: Any) -> None:
    set_cron(store, enabled=False)
    assert set_cron(store, schedule="@daily").enabled is False
    assert set_cron(store, enabled=True).schedule == "@daily"
    found = set_cron(store)
    assert (found.enabled, found.schedule) == (True, "@daily")


def test_a_schedule_of_none_is_the_default_again(store: Any) -> None:
    set_cron(store, enabled=False, schedule="@daily")
    found = set_cron(store, schedule=None)
    assert (found.enabled, found.schedule) == (False, None)
    assert cron(store) == found


def test_a_first_override_has_defaults_for_what_it_omits(store: Any) -> None:
    assert set_cron(store, "a", schedule="@daily").enabled is True
    assert set_cron(store, "b", enabled=False).schedule is None
    found = set_cron(store, "c")
    assert (found.enabled, found.schedule, found.updated_by) == (True, None, None)


def test_who_changed_it_last_is_always_overwritten(store: Any, clock: Any) -> None:
    set_cron(store, enabled=False, by="maria")
    at = clock.advance(seconds=60)
    found = set_cron(store, schedule="@daily")
    assert (found.updated_by, found.updated_at) == (None, at)


def test_clearing_is_going_back_to_the_defaults(store: Any) -> None:
    set_cron(store, enabled=False, schedule="@daily")
    set_cron(store, "other", enabled=False)
    assert clear_cron(store)
    assert cron(store) is None
    assert not clear_cron(store)
    assert cron(store, "other") is not None
    found = set_cron(store)
    assert (found.enabled, found.schedule) == (True, None)


def test_overrides_are_listed_by_name(store: Any) -> None:
    for name in ("b", "a", "C", "é", "a1"):
        set_cron(store, name, enabled=name != "b")
        set_workflow(store, name, enabled=name != "b")
    names = ["C", "a", "a1", "b", "é"]
    with store.read() as tx:
        crons, workflows = tx.workflows.cron_overrides.all(), tx.workflows.workflow_overrides.all()
        assert crons == [tx.workflows.cron_overrides.get(name) for name in names]
    assert [one.name for one in workflows] == names
    assert [one.enabled for one in workflows] == [one.enabled for one in crons] == [True, True, True, False, True]


def test_changes_of_many_at_once_are_all_kept(store: Any) -> None:
    """The first override of a name, by threads that each change one thing."""

    def change(number: int) -> None:
        for round in range(5):
            if number % 2:
                set_cron(store, f"c{round}", enabled=False)
            else:
                set_cron(store, f"c{round}", schedule="@daily")

    together([partial(change, number) for number in range(6)])
    found = [(one.name, one.enabled, one.schedule) for one in store.workflows.cron_overrides.all()]
    assert found == [(f"c{round}", False, "@daily") for round in range(5)]


def test_a_workflow_is_enabled_unless_switched_off(store: Any, other: Any, clock: Any) -> None:
    assert enabled(store)
    off = set_workflow(store, enabled=False, by="maria")
    assert off == WorkflowOverride(name="build", enabled=False, updated_at=NOW, updated_by="maria")
    assert not enabled(other)
    assert enabled(other, "Build")
    at = clock.advance(seconds=60)
    on = set_workflow(store, enabled=True)
    assert on == WorkflowOverride(name="build", enabled=True, updated_at=at, updated_by=None)
    assert enabled(other)
    assert other.workflows.workflow_overrides.all() == [on]


def test_clearing_a_workflows_switch_enables_it(store: Any) -> None:
    set_workflow(store, enabled=False)
    set_workflow(store, "other", enabled=False)
    with store.begin() as tx:
        assert tx.workflows.workflow_overrides.clear("build")
        assert not tx.workflows.workflow_overrides.clear("build")
    assert enabled(store)
    assert not enabled(store, "other")


def test_a_switch_is_a_flag_in_the_row(store: Any, raw: Raw) -> None:
    set_cron(store, enabled=False)
    set_workflow(store, enabled=False)
    for table in ("cron_overrides", "workflow_overrides"):
        value = raw.value(f"SELECT enabled FROM {table}")
        assert (type(value), value) == ((int, 0) if raw.is_sqlite else (bool, False))


def test_rows_of_other_programs_are_read(store: Any, raw: Raw) -> None:
    plant(raw, "cron_overrides", name="nightly", updated_at=NOW)
    plant(raw, "workflow_overrides", name="build", enabled=False, updated_at=NOW)
    assert cron(store) == CronOverride(name="nightly", enabled=True, schedule=None, updated_at=NOW, updated_by=None)
    assert not enabled(store)
