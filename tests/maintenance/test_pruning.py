"""A prune takes what is over and old, tells exactly what it took, and a dry run tells the same: of all that can be pruned."""

from collections.abc import Callable
from contextlib import closing, nullcontext
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest

from persist import Store
from persist.blobs.upkeep import UnnamedBlobs
from persist.conversations import pruning as conversations
from persist.db.operations.pruning import ROWS, Pruning
from persist.errors import InvalidValue, ReadOnlyTransaction, TransactionOpen
from persist.maintenance import doctor, maintain, prunable, prune
from persist.maintenance.pruning import Policy, policies
from persist.schema.metadata import domain_of, metadata
from persist.settings import Settings
from tests.contract.conftest import Raw
from tests.maintenance.pruning_scenes import DAY, DOMAINS, added, all_locked, every_row, forty_days_later, gone

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

TABLES = [name for name in prunable() if name not in DOMAINS]
ORDERS = {
    "domains": sorted(DOMAINS, key=lambda domain: domain != "blobs"),  # blobs first: what named them is still there
    "domains in parts": DOMAINS,
    "tables, children first": TABLES[::-1],
}
MONTH = 30 * DAY


def limit(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """The most dependent rows that a transaction may delete from now on, of every kind of item."""
    for kind in (Pruning, UnnamedBlobs, *map(type, conversations.PRUNINGS)):
        monkeypatch.setattr(kind, "rows", most)


def errors(store: Store) -> list[str]:
    return [f"{one.code}: {one.message}" for one in doctor(store) if one.severity == "error"]


@pytest.mark.parametrize("order", ORDERS)
def test_a_prune_takes_what_it_says_and_nothing_else(filled: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows one at a time, between two transactions nothing is there that doctor calls an error."""
    parts, names = "parts" in order, ORDERS[order]
    with forty_days_later(filled) as store:
        after, sound, told, steps = every_row(filled), errors(store), list[int](), count()

        def progress(gone: int) -> None:
            told.append(gone)
            assert not parts or next(steps) % 8 or errors(store) == sound

        for name in names if order == "domains" and filled.startswith("sqlite") else []:
            assert prune(store, name, older_than=41 * DAY).tables == {}, name
            # what is nothing by itself, such as a message that no session names, is not counted among the newest
            kept = prune(store, name, older_than=MONTH, keep=1000, dry_run=True)
            assert set(kept.tables) <= {"system_prompts", "messages"}, name
        for name in names:
            before = after
            limit(monkeypatch, ROWS)
            with closing(Raw(filled)) as writer, nullcontext() if writer.is_sqlite else all_locked(writer):
                trial = prune(store, name, older_than=MONTH, dry_run=True)
            assert order != "domains" or every_row(filled) == before, name
            # a conversation of 143 places would be looked at in 300 transactions
            limit(monkeypatch, ROWS if not parts else 10 if name == "conversations" else 1)
            told.clear()
            report = prune(store, name, older_than=MONTH, progress=progress)
            after = every_row(filled)
            assert (report.tables, sorted(report.files), report.kept) == (trial.tables, sorted(trial.files), trial.kept), name
            assert report.tables == gone(before, after), name
            assert added(before, after) == {}, name
            assert told == sorted(told), name
            assert report.total == sum(report.tables.values()) == (told or [0])[-1], name
            assert prune(store, name, older_than=MONTH).tables == {}, name
            if name in DOMAINS:
                assert report.total > 0, name
                assert {domain_of(metadata.tables[f"persist.{table}"]) for table in report.tables} == {name}
                if order == "domains":
                    assert {table: after[table].total() for table in LEFT[name]} == LEFT[name]
        assert errors(store) == sound


def test_there_is_a_prune_of_every_domain() -> None:
    assert set(LEFT) == set(DOMAINS) <= set(prunable())
    tables = {table.name: domain_of(table) for table in metadata.sorted_tables}
    assert len(prunable()) == len(set(prunable()))
    domain = ""
    for name in prunable():
        domain = name if name in DOMAINS else domain
        assert tables.get(name, domain) == domain, f"{name} is listed below {domain}"


WRONG: list[tuple[dict[str, Any], str]] = [
    *[({"older_than": wrong}, "older_than") for wrong in (-DAY, timedelta(microseconds=-1), 30, None)],
    ({"older_than": datetime(2026, 1, 1)}, "older_than"),  # naive: its zone would be a guess
    ({"older_than": datetime.fromisoformat("2027-01-01T00:00:00Z")}, "older_than"),
    *[({"keep": wrong}, "keep") for wrong in (-1, True, 1.0)],
    ({"dry_run": 1}, "dry_run"),
    *[({"table_or_domain": wrong}, "table_or_domain") for wrong in ("nothing", "", "chat_messages", "_meta", "db")],
]


def test_what_is_refused_and_what_an_age_means(filled: str) -> None:
    with forty_days_later(filled) as store:
        before = every_row(filled)
        for given, path in WRONG:
            with pytest.raises(InvalidValue) as caught:
                prune(store, **{"table_or_domain": "chat", "older_than": MONTH, **given})
            assert caught.value.path == path, given
        assert all(known in caught.value.reason for known in prunable())
        with store.begin(), pytest.raises(TransactionOpen):
            prune(store, "chat", older_than=DAY, dry_run=True)
        for dry_run in (True, False):
            with Store.open(filled, read_only=True) as reader, pytest.raises(ReadOnlyTransaction):
                prune(reader, "messaging", older_than=timedelta(0), dry_run=dry_run)
        assert prune(store, "telemetry", older_than=timedelta.max).total == 0  # nothing is older than the first year
        assert every_row(filled) == before
        now = store.runtime.clock()
        by_age = prune(store, "workflows", older_than=MONTH, dry_run=True)
        assert by_age == prune(store, "workflows", older_than=now - MONTH, dry_run=True)
        assert by_age.before == now - MONTH


def test_an_empty_store_has_nothing_to_prune(store: Store, url: str) -> None:
    before = every_row(url)
    assert [prune(store, name, older_than=timedelta(0)).tables for name in prunable()] == [{}] * len(prunable())
    assert every_row(url) == before


def test_many_batches_go_as_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a look and a batch hold; a row that stays in the middle is no end."""
    monkeypatch.setattr("persist.db.operations.pruning.MOST_CANDIDATES", 7)
    monkeypatch.setattr("persist.maintenance.pruning.MOST_CANDIDATES", 7)
    monkeypatch.setattr("persist.db.operations.pruning.Pruning.batch", 3)
    with store.begin() as tx:
        for number in range(40):
            at = store.runtime.clock() - timedelta(seconds=40 - number)
            tx.telemetry.usage.sample(at=at, token_input=1, instance_id=f"i{number % 3}")
    trial = prune(store, "usage_samples", older_than=timedelta(0), keep=2, dry_run=True)
    assert trial.tables == prune(store, "usage_samples", older_than=timedelta(0), keep=2).tables == {"usage_samples": 34}
    assert prune(store, "usage_samples", older_than=timedelta(0)).tables == {"usage_samples": 6}


# Retention is off; a setting turns it on for one domain, and the windows go by settings of their own.


def test_settings_of_every_domain() -> None:
    """0 would mean to delete everything that is over: leaving it out turns retention off."""
    assert policies(Settings()) == policies(Settings(**{f"{domain}_keep_last": 5 for domain in DOMAINS})) == []
    for domain in DOMAINS:
        days = f"PERSIST_{domain.upper()}_KEEP_DAYS"
        with pytest.MonkeyPatch.context() as patch:
            for wrong in ("-1", "0", "nan", "inf", "1e9", "", "a month"):
                patch.setenv(days, wrong)
                assert refused(Settings) == days, wrong
            patch.setenv(days, "1.5")
            assert policies(Settings()) == [Policy(domain=domain, older_than=timedelta(hours=36), keep=0)]
            patch.setenv(f"PERSIST_{domain.upper()}_KEEP_LAST", "7")
            assert policies(Settings()) == [Policy(domain=domain, older_than=timedelta(hours=36), keep=7)]
        assert refused(partial(Settings, **{f"{domain}_keep_last": -1})) == f"{domain}_keep_last"


def refused(make: Callable[[], Settings]) -> str | None:
    with pytest.raises(InvalidValue) as caught:
        make()
    return caught.value.path


@pytest.mark.one_database
def test_maintain_prunes_what_settings_say_and_nothing_else(filled: str) -> None:
    with forty_days_later(filled) as store:
        maintain(store)  # whatever else there is to do
        kept = 0
        for domain in ORDERS["domains"]:
            before = every_row(filled)
            expected = prune(store, domain, older_than=MONTH, keep=1, dry_run=True).tables
            settings = Settings(**{f"{domain}_keep_days": 30, f"{domain}_keep_last": 1})
            with Store.open(filled, clock=store.runtime.clock, settings=settings) as strict:
                (step,) = [step for step in maintain(strict).steps if step.name.startswith("prune")]
            assert (step.name, step.tables, step.error) == (f"prune {domain}", expected, None)
            assert gone(before, every_row(filled)) == expected
            kept += not expected
        assert kept < len(DOMAINS) / 2
