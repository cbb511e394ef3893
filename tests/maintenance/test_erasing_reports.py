"""What an erasure reports, and the calls that are refused."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue, ReadOnlyTransaction, TransactionOpen
from persist.maintenance import EraseReport, erase, verify_report
from persist.testing import FrozenClock
from tests.cases import each
from tests.maintenance.erasing_scenes import MARIA, rows, secret_of, two_people


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    with two_people(database_url, clock) as store:
        yield store


def test_a_report_is_signed_and_says_nothing_of_the_person_but_the_selectors(store: Store) -> None:
    report = erase(store, **MARIA, sign_key="key")
    text = report.model_dump_json()
    assert secret_of("maria") not in text
    assert (report.algorithm, len(report.signature)) == ("hmac-sha256", 64)
    assert verify_report(report, "key")
    assert verify_report(text, b"key")
    assert verify_report({**json.loads(text), "total": report.total}, "key")
    assert not verify_report(report, "other")
    assert not verify_report(report)
    assert not verify_report(report.model_copy(update={"events": 0}), "key")
    with pytest.raises(Exception, match="frozen"):
        report.events = 0  # type: ignore[misc]  # that is what is tried


def test_a_report_says_what_was_signed_and_nothing_else(store: Store) -> None:
    report = erase(store, **MARIA, sign_key="key")
    fields = json.loads(report.model_dump_json())
    text, sessions = json.dumps({**fields, "total": report.total}), fields["tables"]["chat_sessions"]
    assert verify_report(report.model_dump(), "key")
    assert verify_report(text, "key")
    for changed in (
        {**fields, "total": 99},
        {**fields, "total": float(report.total)},
        {**fields, "tables": {**fields["tables"], "chat_sessions": float(sessions)}},
        {**fields, "events": str(report.events)},
        {**fields, "dry_run": 0},
        '{"selectors": {"owner": "peter"}, ' + text[1:],
        text[:-1] + ', "events": ' + str(report.events) + "}",
        text.replace('"tables": {', '"tables": {"chat_sessions": 99, '),
    ):
        assert not verify_report(changed, "key"), changed


def test_a_hostile_report_is_refused_by_a_typed_error_or_not_verified(store: Store) -> None:
    fields = json.loads(erase(store, **MARIA, sign_key="key").model_dump_json())
    for surrogate in ({**fields, "signature": "\ud800"}, json.dumps({**fields, "signature": "\ud800"})):
        assert not verify_report(surrogate, "key")
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    for deep in ("[" * 100_000, {**fields, "tables": nested}, {**fields, "id": "\ud800"}):
        with suppress(InvalidValue):
            assert not verify_report(deep, "key")


def test_without_a_key_a_report_has_a_digest(store: Store) -> None:
    report = erase(store, owner="nobody")
    assert report.algorithm == "sha256"
    assert verify_report(report)
    assert not verify_report(report, "key")
    assert not verify_report(report.model_copy(update={"dry_run": True}))


def test_the_key_of_the_environment(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSIST_REPORT_KEY", "from the environment")
    with Store.open(database_url) as store:
        report = erase(store, owner="nobody")
        assert "from the environment" not in repr(store.runtime.settings)
    assert verify_report(report, "from the environment")


@each("wrong", ["", b"", 1])
def test_keys_that_are_none(store: Store, wrong: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        erase(store, owner="maria", sign_key=wrong)
    assert caught.value.path == "sign_key"


@each("wrong", ["", "{}", "[]", "no JSON", {"id": 1}, None, 1])
def test_reports_that_are_none(wrong: Any) -> None:
    with pytest.raises(InvalidValue):
        verify_report(wrong)


# ---------------------------------------------------------------- refusals


@each(
    ("given", "path"),
    [
        ({}, "owner"),
        ({"owner": 1}, "owner"),
        ({"owner": ""}, "owner"),
        ({"session_id": ["x"]}, "session_id"),
        ({"user_id": b"x"}, "user_id"),
        ({"namespace": ("people", "maria")}, "namespace"),
        ({"owner": "maria", "dry_run": 1}, "dry_run"),
        ({"owner": "maria", "session_logs": 1}, "home"),
    ],
)
def test_wrong_calls_are_refused_and_nothing_goes(store: Store, database_url: str, given: dict[str, Any], path: str) -> None:
    before = rows(database_url)
    with pytest.raises(InvalidValue) as caught:
        erase(store, **given)
    assert caught.value.path == path
    assert rows(database_url) == before


def test_an_unknown_person_gives_zeros(store: Store, database_url: str) -> None:
    before = rows(database_url)
    report: EraseReport = erase(store, owner="nobody", session_id="no session", user_id="nobody", namespace="no.where")
    assert (report.tables, report.total, report.events, report.files, report.kept) == ({}, 0, 0, 0, {})
    assert rows(database_url) == before


def test_a_store_that_only_reads_erases_nothing(store: Store, database_url: str) -> None:
    with Store.open(database_url, read_only=True) as reader, pytest.raises(ReadOnlyTransaction):
        erase(reader, owner="maria")


def test_inside_a_transaction_of_its_own_thread_it_is_refused(store: Store) -> None:
    with store.begin(), pytest.raises(TransactionOpen):
        erase(store, owner="maria")
