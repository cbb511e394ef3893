"""The pages of the store's health, and of what is in quarantine."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import literal_column, update

from persist import Store
from persist.maintenance import doctor
from persist.store.transaction import work_of
from persist.ui.pages.health import WHAT_TO_DO
from persist.workflows.models import runs
from tests.maintenance.filled import by_code
from tests.ui.visitor import Visitor

MAINTENANCE = Path(__file__).parents[2] / "docs" / "maintenance.md"


def spoilt(store: Store) -> str:
    """Create a run whose history is none, as another program may leave it."""
    with store.begin() as tx:
        id = tx.workflows.runs.create("<img src=x>", trigger_id="pr-1", current_phase="plan").id
        work_of(tx).select(update(runs).where(runs.c.id == id).values(phase_history=literal_column("'7'")))
    return id


def test_a_healthy_store_says_so(state: Store, visitor: Visitor) -> None:
    with state.begin() as tx:
        tx.workflows.runs.create("review", trigger_id="pr-1", current_phase="plan")
    main = visitor.get("/health").main
    for said in ("Nothing is wrong", "as this version expects", "Nothing is in quarantine", "workflow_runs workflows 1"):
        assert said in main
    assert visitor.json("/health") == {"items": [], "cursor": None}


def test_what_doctor_finds_is_shown_with_what_to_do(state: Store, visitor: Visitor) -> None:
    id = spoilt(state)
    shown = visitor.get("/health")
    assert shown.status == 200
    for said in (id, "unreadable", "moves such rows into the quarantine"):
        assert said in shown.main
    items = visitor.json("/health")["items"]
    assert items == [one.model_dump(mode="json") for one in doctor(state)]
    assert by_code(doctor(state), "unreadable").subject in {one["subject"] for one in items}


def test_rows_in_quarantine_are_shown_with_what_they_held(state: Store, visitor: Visitor) -> None:
    id = spoilt(state)
    doctor(state, fix=True)
    (row,) = visitor.json("/health/quarantine")["items"]
    for path in ("/health", "/health/quarantine"):
        assert id in visitor.get(path).main
    one = visitor.get(f"/health/quarantine/{row['id']}")
    assert f"persist quarantine restore {row['id']}" in one.main
    assert "<img" not in one.text
    held = visitor.json(f"/health/quarantine/{row['id']}")["row"]
    assert list(held["workflow_name"].values()) == ["<img src=x>"]
    assert visitor.get("/health/quarantine/none").status == 404


def test_a_large_store_is_examined_and_counted_when_asked(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persist.ui.pages.health._SMALL", 1)
    asked = visitor.get("/health")
    assert "This store is large" in asked.main
    assert "Nothing is wrong" not in asked.main
    assert "Nothing is wrong" in visitor.get("/health", doctor=1).main
    assert "message_types" not in asked.main
    assert "message_types conversations" in visitor.get("/health", tables=1).main


def test_a_doctor_without_time_is_not_called_healthy(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persist.ui.pages.health._SECONDS", 0.0)
    main = visitor.get("/health").main
    assert "not all was looked at" in main
    assert "Run persist doctor itself" in main
    assert "Nothing is wrong" not in main


def test_a_store_in_memory_is_shown_without_doctor(visit: Callable[..., Visitor]) -> None:
    with Store.open("sqlite:///:memory:") as store:
        assert "A store in memory has one connection" in visit(store).get("/health").main
        assert visit(store).get("/health", format="json").status == 409


def test_every_finding_has_a_sentence_that_says_what_to_do() -> None:
    rows = re.findall(r"^\| (`.*?`) \| (?:error|warning|info)", MAINTENANCE.read_text(), re.MULTILINE)
    codes = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert "unreadable" in codes
    assert codes - set(WHAT_TO_DO) == set()
