"""One row that cannot be read: what lists, gets, claims and ends make of it, on both databases and both faces."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from persist import Store
from persist.db.schema.column_types import FreeText, Json, Label
from persist.db.statements.prepared import Statement
from persist.errors import UnreadableRow
from persist.workflows.models import runs as workflow_runs
from tests.contract.conftest import Raw

ABOUT = {"trigger_id": "issue/1", "current_phase": "plan"}


@pytest.fixture
def runs(store: Any, raw: Any) -> Any:
    """Three queued runs, of which the oldest says of its context what no program of ours writes."""
    with store.begin() as tx:
        for id in ("bad", "good", "late"):
            tx.workflows.runs.create("triage", **ABOUT, status="queued", context={"a": 1}, id=id)
    raw.rows("UPDATE workflow_runs SET context = '[]' WHERE id = 'bad'")
    return store


def test_a_get_names_table_key_and_column(runs: Any) -> None:
    with runs.read() as tx, pytest.raises(UnreadableRow) as caught:
        tx.workflows.runs.get("bad")
    error = caught.value
    assert (error.table, error.key, error.column) == ("workflow_runs", ("bad",), "context")
    assert "persist doctor --fix" in str(error)
    assert runs.workflows.runs.get("good").context == {"a": 1}


def test_an_error_that_is_kept_keeps_no_lock(sqlite_store: Any) -> None:
    """A cursor that was left half read, in the traceback of the error, would keep the lock of its connection on the file."""
    with sqlite_store.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model={}).id
        tx.chat.messages.append(session, role="assistant", parts=[{"type": "text", "text": "hello"}], id="m")
        run = tx.workflows.runs.create("triage", **ABOUT).id
    with closing(sqlite3.connect(sqlite_store.runtime.dialect.path, isolation_level=None, timeout=0)) as raw:
        raw.execute("UPDATE chat_messages SET session_id = CAST(x'fffe' AS TEXT)")
        with pytest.raises(UnreadableRow) as caught, sqlite_store.begin() as tx:
            tx.chat.messages.cursor(session, "m")
        for phase in ("build", "ship"):
            raw.execute("UPDATE workflow_runs SET current_phase = ?", (phase,))
            assert sqlite_store.workflows.runs.append_phase(run, phase).current_phase == phase
    assert caught.value.key == ("m",)


def test_a_number_that_json_lacks_is_named_where_a_verb_adds_to_it(sqlite_store: Any) -> None:
    """No caller has given the number: an error about the argument would name nothing that can be mended."""
    store = sqlite_store
    run = store.workflows.runs.create("triage", **ABOUT).id
    spoilt: dict[str, tuple[str, Callable[[], object]]] = {
        "scratch": ('{"a":NaN}', lambda: store.workflows.runs.merge_scratch(run, {"b": 1})),
        "phase_history": ('[{"phase":"a","x":1e999}]', lambda: store.workflows.runs.append_phase(run, "plan")),
        "node_statuses": ('{"n":-Infinity}', lambda: store.workflows.runs.update_node_status(run, "m", {"ok": True})),
    }
    for column, (text, add) in spoilt.items():
        with closing(sqlite3.connect(store.runtime.dialect.path, isolation_level=None)) as raw:
            (before,) = raw.execute(f"SELECT {column} FROM workflow_runs").fetchone()
            raw.execute(f"UPDATE workflow_runs SET {column} = ?", (text,))
            with pytest.raises(UnreadableRow) as caught:
                add()
            assert (caught.value.table, caught.value.key, caught.value.column) == ("workflow_runs", (run,), column)
            raw.execute(f"UPDATE workflow_runs SET {column} = ?", (before,))
        add()


def test_a_claim_passes_it_by(runs: Any) -> None:
    with runs.begin() as tx:
        claimed = [tx.workflows.runs.claim("w", lease=timedelta(minutes=5)) for _ in range(3)]
    assert [lease and lease.run_id for lease in claimed] == ["good", "late", None]


@pytest.mark.parametrize("limit", [None, 3])
def test_a_claim_in_a_transaction_of_its_own_passes_it_by_and_leaves_it_as_it_was(runs: Any, raw: Any, limit: int | None) -> None:
    kept = "SELECT status, lease_owner, lease_expires_at, lease_token, updated_at FROM workflow_runs WHERE id = 'bad'"
    before = raw.rows(kept)
    claim = runs.workflows.runs.claim
    if limit is None:
        claimed = [claim("w", lease=timedelta(minutes=5)) for _ in range(3)]
        assert claimed.pop() is None
    else:
        claimed = claim("w", lease=timedelta(minutes=5), limit=limit)
    assert [lease.run_id for lease in claimed] == ["good", "late"]
    assert raw.rows(kept) == before
    assert [runs.workflows.runs.complete(lease).status for lease in claimed] == ["succeeded", "succeeded"]


NOT_UTF8 = "CAST(x'fffe' AS TEXT)"
TEXTS = [
    column.name
    for column in workflow_runs.columns
    if isinstance(column.type, Label | FreeText | Json) and column.name not in ("status", "lease_owner", "unique_trigger_id")
]
"""The columns of text that a waiting run has; `id` first."""


@pytest.fixture
def undecodable(sqlite_url: str) -> str:
    """A waiting run for each column of text in which just that cannot be decoded, and behind them two good ones."""
    with Store.open(sqlite_url) as store, store.begin() as tx:
        for id in [*TEXTS, "good", "late"]:
            tx.workflows.runs.create(
                "triage", trigger_id="issue/1", current_phase="plan", status="queued", context={"a": 1}, id=id
            )
    with closing(Raw(sqlite_url)) as raw:
        raw.rows("PRAGMA ignore_check_constraints = ON")
        for column in TEXTS:
            raw.rows(f"UPDATE workflow_runs SET {column} = {NOT_UTF8} WHERE id = ?", column)
    return sqlite_url


@pytest.mark.parametrize("limits", [False, True])
@pytest.mark.parametrize("logged", [False, True])
def test_claims_pass_by_text_that_is_no_utf8(undecodable: str, limits: bool, logged: bool) -> None:
    with Store.open(undecodable) as store:
        if logged:  # a stream has a name
            with closing(Raw(undecodable)) as raw:
                raw.rows("DELETE FROM workflow_runs WHERE id < 'a' OR id > 'z'")
            with pytest.raises(UnreadableRow):
                store.switch_events(True)
        assert store.logs_events == logged
        if limits:
            store.workflows.limits.set("workflow:triage", concurrency=100)
        first = store.workflows.runs.claim("w", lease=timedelta(minutes=5), workflow_name="triage")
        assert first is not None
        rest = store.workflows.runs.claim("w", lease=timedelta(minutes=5), limit=100)
        assert [first.run_id, *(lease.run_id for lease in rest)] == ["good", "late"]
    with closing(Raw(undecodable)) as raw:
        waiting = "SELECT count(*) FROM workflow_runs WHERE status = 'queued' AND lease_token = 0"
        assert raw.rows(waiting) == [(len(TEXTS) - logged,)]


def test_what_polls_names_each_of_them_once(undecodable: str, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(undecodable) as store:

        def poll() -> set[str]:
            caplog.clear()
            store.workflows.runs.list()
            store.workflows.runs.claim("w", lease=timedelta(minutes=5), workflow_name="none")
            return {record.getMessage().removeprefix("an unreadable row was left out: ") for record in caplog.records}

        first = poll()
        for column in ("repo", "trigger_id", "phase_history"):  # the last one is read by an expression
            assert f"workflow_runs key ('{column}',), column {column}: the text is not UTF-8" in first
        assert poll() == set()


def test_the_error_of_what_a_write_returns_names_table_key_and_column(undecodable: str) -> None:
    with Store.open(undecodable) as store, store.begin() as tx:
        for name in TEXTS[1:]:
            statement = update(workflow_runs).where(workflow_runs.c.id == name).values(priority=1)
            with pytest.raises(UnreadableRow) as caught:
                tx._work.returned_rows(Statement(statement.returning(workflow_runs.c[name], workflow_runs.c.id)))
            error = caught.value
            assert (error.table, error.key, error.column) == ("workflow_runs", (name,), name)


def test_a_worker_that_has_claimed_a_run_ends_it_whatever_became_of_its_context(runs: Any, raw: Any) -> None:
    lease = runs.workflows.runs.claim("w", lease=timedelta(minutes=5))
    raw.rows("UPDATE workflow_runs SET context = '[]' WHERE id = ?", lease.run_id)
    assert runs.workflows.runs.complete(lease).context is None
    assert raw.rows("SELECT status FROM workflow_runs WHERE id = ?", lease.run_id) == [("succeeded",)]


@pytest.mark.parametrize("reason", [None, "enough"])
def test_a_run_ends_without_what_is_broken(runs: Any, raw: Any, reason: str | None) -> None:
    assert runs.workflows.runs.cancel("bad", reason=reason)
    assert raw.rows("SELECT status FROM workflow_runs WHERE id = 'bad'") == [("cancelled",)]
    assert raw.json("SELECT context FROM workflow_runs WHERE id = 'bad'") == []


def test_what_a_verb_that_ends_gives_back_has_none_there(runs: Any) -> None:
    with runs.begin() as tx:
        assert tx.workflows.runs.admit("bad")
        assert tx.workflows.runs.finish("bad", "failed", error="it broke").context is None


def test_a_list_leaves_out_a_row_whose_list_is_none(runs: Any, raw: Any) -> None:
    raw.rows("UPDATE workflow_runs SET phase_history = '{}' WHERE id = 'good'")
    with runs.read() as tx:
        assert sorted(run.id for run in tx.workflows.runs.list().items) == ["bad", "late"]
    with runs.begin() as tx, pytest.raises(UnreadableRow):
        tx.workflows.runs.append_phase("good", "build")
    assert raw.json("SELECT phase_history FROM workflow_runs WHERE id = 'good'") == {}


def test_a_crash_is_recovered_from_beside_it(runs: Any, raw: Any) -> None:
    raw.rows("UPDATE workflow_runs SET status = 'running'")
    again, failed = runs.workflows.runs.recover_interrupted()
    assert ([run.id for run in again], failed) == (["good", "late"], [])


def test_a_count_of_the_exchange_that_was_changed_is_made_again(sqlite_store: Store, sqlite_url: str, open_raw: Any) -> None:
    first = sqlite_store.conversations.exchange.send(sender="a", recipient="b", content="one")
    open_raw(sqlite_url).rows("UPDATE exchange_cursors SET seq = 'soon' WHERE owner = ''")
    with sqlite_store.begin() as tx:
        second = tx.conversations.exchange.send(sender="a", recipient="b", content="two")
        assert [message.id for message in tx.conversations.exchange.inbox("b").items] == [first.id, second.id]
