"""Rows below a session whose own row a shell deleted, where foreign keys were off, are erased by its id."""

from collections import Counter
from contextlib import closing

import pytest

from persist import Store
from persist.db.operations.erasing import NAMESPACE, SESSION
from persist.maintenance import erase
from persist.maintenance.erasure_plans import kinds
from persist.store.transaction import work_of
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.maintenance.erasing_scenes import person, places_of, rows, secret_of
from tests.maintenance.pruning_scenes import gone
from tests.statement_log import seen_statements

ROOTS = {name: kind for name, kind in kinds(trial=False).items() if kind.further and kind.own_streams}
"""What is erased with rows below it that hold its id."""
LEFT = {
    ("messages", "content"),
    ("messages", "node_metadata"),
    ("history_entries", "message_json"),
    ("history_entries", "extra_json"),
}
"""Messages that a place of a gone conversation still shows, and those that only the row of a history led to."""


def delete_parents(url: str, name: str) -> list[str]:
    """Delete what names somebody from these tables as a shell does that checks no foreign keys; the ids that stood there."""
    ids: list[str] = []
    with closing(Raw(url)) as raw:
        if not raw.is_sqlite:
            raw.rows("SET session_replication_role = replica")
        for table, kind in ROOTS.items():
            (key,) = kind.key
            at = [column.name for column in kind.table.columns].index(key)
            found = {str(row[at]) for row in raw.rows(f"SELECT * FROM {table}") if name in str(row)}
            assert found, table
            for id in found:
                raw.rows(f"DELETE FROM {table} WHERE {key} = ?", id)
            ids += found
    return [*dict.fromkeys(ids)]


def test_rows_without_what_they_belong_to_are_erased_by_its_id(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        person(store, "maria")
        person(store, "peter")
        ids = delete_parents(database_url, "maria")
        before = rows(database_url)
        reports = [erase(store, session_id=id) for id in ids]
        after = rows(database_url)
        assert sum((Counter(report.tables) for report in reports), Counter()) == gone(before, after)
        assert sum(report.kept.get("messages: what is not erased shows them", 0) for report in reports) == 3
        assert _naming(after, "peter") == _naming(before, "peter")
        assert {"chat_parts", "checkpoint_states", "replay_messages", "executions", "bindings"} <= gone(before, after).keys()
        erase(store, owner="maria", namespace="people.maria")  # what such a row belongs to
        assert places_of(database_url, secret_of("maria")) <= LEFT


def _naming(found: dict[str, Counter[str]], name: str) -> dict[str, list[str]]:
    return {table: sorted(row for row in of.elements() if name in row) for table, of in found.items()}


def test_rows_below_are_looked_for_in_the_statement_that_looks_for_what_they_belong_to(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = seen_statements(monkeypatch)
    with Store.open(database_url) as store, store.read() as tx:
        for name, kind in ROOTS.items():
            seen.clear()
            assert kind.find(work_of(tx), NAMESPACE if name == "memories" else SESSION, ["nobody"]) == []
            queries = [statement for statement in seen if "SELECT" in statement]
            assert len(queries) == 1, name
