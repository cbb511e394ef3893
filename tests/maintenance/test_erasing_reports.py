"""What an erasure reports, and the calls that are refused."""

import json
from contextlib import suppress
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue, ReadOnlyTransaction, TransactionOpen
from persist.maintenance import erase, verify_report
from tests.cases import each
from tests.maintenance.erasing_scenes import rows, secret_of

pytestmark = pytest.mark.one_database


def test_a_report_is_signed_and_says_what_was_signed_and_nothing_else(store: Store) -> None:
    store.chat.sessions.create(agent="a", model={}, owner="maria", metadata={"a": secret_of("maria")})
    report = erase(store, owner="maria", sign_key="key")
    text = report.model_dump_json()
    fields = json.loads(text)
    total = json.dumps({**fields, "total": report.total})
    assert secret_of("maria") not in text
    assert (report.algorithm, len(report.signature)) == ("hmac-sha256", 64)
    for said in (report, text, {**fields, "total": report.total}, report.model_dump(), total):
        assert verify_report(said, "key")
        assert verify_report(said, b"key")
    assert not verify_report(report, "other")
    assert not verify_report(report)
    with pytest.raises(Exception, match="frozen"):
        report.events = 0  # type: ignore[misc]  # that is what is tried
    for changed in (
        report.model_copy(update={"events": 7}),
        {**fields, "total": 99},
        {**fields, "total": float(report.total)},
        {**fields, "tables": {**fields["tables"], "chat_sessions": 1.0}},
        {**fields, "events": str(report.events)},
        {**fields, "dry_run": 0},
        '{"selectors": {"owner": "peter"}, ' + total[1:],
        total[:-1] + ', "events": ' + str(report.events) + "}",
        total.replace('"tables": {', '"tables": {"chat_sessions": 99, '),
        {**fields, "signature": "\ud800"},
        json.dumps({**fields, "signature": "\ud800"}),
    ):
        assert not verify_report(changed, "key"), changed
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    for deep in ("[" * 100_000, {**fields, "tables": nested}, {**fields, "id": "\ud800"}):
        with suppress(InvalidValue):
            assert not verify_report(deep, "key")


@each("wrong", ["", "{}", "[]", "no JSON", {"id": 1}, None, 1])
def test_reports_that_are_none(wrong: Any) -> None:
    with pytest.raises(InvalidValue):
        verify_report(wrong)


def test_an_unknown_person_gives_zeros_and_a_digest(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows(url)
    report = erase(store, owner="nobody", session_id="no session", user_id="nobody", namespace="no.where")
    assert (report.tables, report.total, report.events, report.files, report.kept) == ({}, 0, 0, 0, {})
    assert rows(url) == before
    assert (report.algorithm, verify_report(report), verify_report(report, "key")) == ("sha256", True, False)
    assert not verify_report(report.model_copy(update={"dry_run": True}))
    monkeypatch.setenv("PERSIST_REPORT_KEY", "from the environment")
    with Store.open(url) as other:
        assert verify_report(erase(other, owner="nobody"), "from the environment")
        assert "from the environment" not in repr(other.runtime.settings)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "owner"),
    ({"owner": 1}, "owner"),
    ({"owner": ""}, "owner"),
    ({"session_id": ["x"]}, "session_id"),
    ({"user_id": b"x"}, "user_id"),
    ({"namespace": ("people", "maria")}, "namespace"),
    ({"owner": "maria", "dry_run": 1}, "dry_run"),
    ({"owner": "maria", "session_logs": 1}, "home"),
    *(({"owner": "maria", "sign_key": wrong}, "sign_key") for wrong in ("", b"", 1)),
]


def test_wrong_calls_are_refused_and_nothing_goes(store: Store, url: str) -> None:
    store.chat.sessions.create(agent="a", model={}, owner="maria")
    before = rows(url)
    for given, path in WRONG:
        with pytest.raises(InvalidValue) as caught:
            erase(store, **given)
        assert caught.value.path == path
    with store.begin(), pytest.raises(TransactionOpen):
        erase(store, owner="maria")
    with Store.open(url, read_only=True) as reader, pytest.raises(ReadOnlyTransaction):
        erase(reader, owner="maria")
    assert rows(url) == before
