"""A prune takes what is over and old, tells exactly what it took, and a dry run tells the same."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue, ReadOnlyTransaction, TransactionOpen
from persist.maintenance import PruneReport, maintain, prunable, prune
from persist.maintenance.pruning import Policy, policies
from persist.schema.metadata import domain_of, metadata
from persist.settings import Settings
from tests.cases import each
from tests.maintenance.pruning_scenes import DAY, DOMAINS, Rows, added, every_row, forty_days_later, gone

LEFT = {
    "app_sessions": {"app_state": 1, "app_user_state": 1, "app_user_sessions": 0, "app_artifacts": 0, "app_memories": 0},
    "agent_tasks": {"agent_task_records": 1, "agent_task_pieces": 3, "agent_task_webhooks": 1},
    "blobs": {"blobs": 2, "blob_pieces": 0},
    "chat": {"chat_sessions": 0, "chat_messages": 0, "chat_parts": 0, "chat_turns": 0, "system_prompts": 0},
    "checkpoints": {"checkpoint_threads": 0, "checkpoint_pieces": 0, "memories": 2},
    "conversations": {"sessions": 0, "branches": 0, "progressions": 1, "progression_members": 3},
    "events": {"event_log": 0},
    "histories": {"history_records": 1, "history_branches": 1, "history_entries": 3, "history_runs": 0, "history_snapshots": 0},
    "messaging": {"messaging_sessions": 1, "messaging_messages": 2},
    "programs": {"run": 1, "execution": 0, "bindings": 0},
    "replay_streams": {"replay_sessions": 0, "replay_messages": 0},
    "telemetry": {"status_log": 1, "usage_samples": 0, "tool_history": 0, "agent_tags": 0, "tasks": 1},
    "transcripts": {"transcript_sessions": 0, "transcript_entries": 0},
    "usage": {"usage_calls": 0, "usage_rollups": 0, "usage_spending": 2, "usage_budgets": 3},
    "workflows": {
        "workflow_runs": 11,
        "workflow_approvals": 5,
        "workflow_effects": 3,
        "workflow_signals": 2,
        "workflow_waits": 1,
        "cron_overrides": 1,
        "workflow_overrides": 1,
        "workflow_limits": 2,
    },
}
"""Of what is made by `tests.schema.filling`: what still runs, waits or is active, and what an operator said."""


def test_there_is_a_prune_of_every_domain() -> None:
    assert set(LEFT) == set(DOMAINS)
    assert set(DOMAINS) <= set(prunable())
    tables = {table.name: domain_of(table) for table in metadata.sorted_tables}
    names = prunable()
    assert len(names) == len(set(names))
    domain = ""
    for name in names:
        domain = name if name in DOMAINS else domain
        assert tables.get(name, domain) == domain, f"{name} is listed below {domain}"


@each("domain", sorted(DOMAINS, key=lambda domain: domain != "blobs"))  # blobs first: what named them is still there
def test_a_prune_takes_what_it_says_and_nothing_else(filled: str, domain: str) -> None:
    with forty_days_later(filled) as store:
        before = every_row(filled)
        trial = prune(store, domain, older_than=30 * DAY, dry_run=True)
        assert every_row(filled) == before
        report = prune(store, domain, older_than=30 * DAY)
        after = every_row(filled)
        assert report == trial.model_copy(update={"dry_run": False})
        assert report.tables == gone(before, after)
        assert report.total == sum(report.tables.values()) > 0
        assert added(before, after) == {}
        assert {domain_of(metadata.tables[f"persist.{name}"]) for name in report.tables} == {domain}
        assert {name: after[name].total() for name in LEFT[domain]} == LEFT[domain]
        assert prune(store, domain, older_than=30 * DAY).tables == {}


@pytest.mark.parametrize("order", [1, -1], ids=["parents first", "children first"])
def test_a_table_alone(filled: str, order: int) -> None:
    with forty_days_later(filled) as store:
        after = every_row(filled)
        for name in [name for name in prunable() if name not in DOMAINS][::order]:
            before = after
            trial = prune(store, name, older_than=30 * DAY, dry_run=True)
            report = prune(store, name, older_than=30 * DAY)
            after = every_row(filled)
            assert report.tables == trial.tables == gone(before, after), name


def test_what_is_young_enough_stays(filled: str) -> None:
    with forty_days_later(filled) as store:
        before = every_row(filled)
        for domain in DOMAINS:
            assert prune(store, domain, older_than=41 * DAY).tables == {}, domain
        assert every_row(filled) == before


def test_the_newest_so_many_stay_however_old(filled: str) -> None:
    """What is nothing by itself, such as a message that no session names, is not counted among them."""
    with forty_days_later(filled) as store:
        for domain in DOMAINS:
            report = prune(store, domain, older_than=30 * DAY, keep=1000)
            assert set(report.tables) <= {"system_prompts", "messages"}, domain


def test_an_age_and_an_instant_say_the_same(filled: str) -> None:
    with forty_days_later(filled) as store:
        now = store.runtime.clock()
        by_age = prune(store, "workflows", older_than=30 * DAY, dry_run=True)
        assert by_age == prune(store, "workflows", older_than=now - 30 * DAY, dry_run=True)
        assert by_age.before == now - 30 * DAY


def test_nothing_is_older_than_the_first_year(filled: str) -> None:
    with forty_days_later(filled) as store:
        assert prune(store, "telemetry", older_than=timedelta.max).total == 0


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"older_than": -DAY}, "older_than"),
    ({"older_than": timedelta(microseconds=-1)}, "older_than"),
    ({"older_than": datetime(2026, 1, 1)}, "older_than"),  # naive: its zone would be a guess
    ({"older_than": datetime.fromisoformat("2027-01-01T00:00:00Z")}, "older_than"),
    ({"older_than": 30}, "older_than"),
    ({"older_than": None}, "older_than"),
    ({"keep": -1}, "keep"),
    ({"keep": True}, "keep"),
    ({"keep": 1.0}, "keep"),
    ({"dry_run": 1}, "dry_run"),
]


def test_bad_values_are_refused_and_nothing_goes(filled: str) -> None:
    with forty_days_later(filled) as store:
        before = every_row(filled)
        for given, path in WRONG:
            with pytest.raises(InvalidValue) as caught:
                prune(store, "chat", **{"older_than": 30 * DAY, **given})
            assert caught.value.path == path, given
        assert every_row(filled) == before


def test_an_unknown_name_is_refused_with_those_that_there_are(database_url: str) -> None:
    with Store.open(database_url) as store:
        for name in ("nothing", "", "chat_messages", "_meta", "db", "persist_alembic_version"):
            with pytest.raises(InvalidValue) as caught:
                prune(store, name, older_than=DAY)
            assert caught.value.path == "table_or_domain", name
            assert all(known in caught.value.reason for known in prunable()), name


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_store_that_only_reads_prunes_nothing(filled: str, dry_run: bool) -> None:
    with forty_days_later(filled):
        before = every_row(filled)
        with Store.open(filled, read_only=True) as store, pytest.raises(ReadOnlyTransaction):
            prune(store, "messaging", older_than=timedelta(0), dry_run=dry_run)
        assert every_row(filled) == before


def test_inside_a_transaction_of_its_own_thread_it_is_refused(database_url: str) -> None:
    with Store.open(database_url) as store, store.begin(), pytest.raises(TransactionOpen):
        prune(store, "chat", older_than=DAY, dry_run=True)


def test_progress_is_told_what_went_so_far(filled: str) -> None:
    told: list[int] = []
    with forty_days_later(filled) as store:
        report: PruneReport = prune(store, "telemetry", older_than=30 * DAY, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == report.total


def test_an_empty_store_has_nothing_to_prune(database_url: str) -> None:
    with Store.open(database_url) as store:
        before: Rows = every_row(database_url)
        assert [prune(store, name, older_than=timedelta(0)).tables for name in prunable()] == [{}] * len(prunable())
        assert every_row(database_url) == before


def test_many_batches_go_as_one(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a look and a batch hold; a row that stays in the middle is no end."""
    monkeypatch.setattr("persist.db.operations.pruning.MOST_CANDIDATES", 7)
    monkeypatch.setattr("persist.maintenance.pruning.MOST_CANDIDATES", 7)
    monkeypatch.setattr("persist.db.operations.pruning.Pruning.batch", 3)
    first = datetime.fromisoformat("2026-01-01T00:00:00Z")
    with Store.open(database_url) as store:
        with store.begin() as tx:
            for number in range(40):
                tx.telemetry.usage.sample(at=first + timedelta(seconds=number), token_input=1, instance_id=f"i{number % 3}")
        trial = prune(store, "usage_samples", older_than=timedelta(0), keep=2, dry_run=True)
        assert trial.tables == prune(store, "usage_samples", older_than=timedelta(0), keep=2).tables == {"usage_samples": 34}
        assert prune(store, "usage_samples", older_than=timedelta(0)).tables == {"usage_samples": 6}


# Retention is off; a setting turns it on for one domain, and the windows go by settings of their own.


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
    with forty_days_later(filled) as store, Store.open(filled, clock=store.runtime.clock, settings=Settings(**kept)) as strict:
        steps = [step for step in maintain(strict).steps if step.name.startswith("prune")]
        assert {step.name for step in steps} >= {f"prune {domain}" for domain in DOMAINS}
        for step in steps:
            assert set(step.tables) <= {"system_prompts", "messages"}, step.name
