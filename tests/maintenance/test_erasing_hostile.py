"""Rows that others wrote in the place of an interrupted erasure's: they delete no file, block nobody, and are not repeated."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue, NotPermitted, ReadOnlyTransaction, TransactionOpen
from persist.framework_state.app_sessions.schemas import NewMemory
from persist.maintenance import doctor, erase, export, import_, maintain, verify_report
from persist.maintenance.erasure_marks import EVENTS_ASIDE
from persist.maintenance.erasure_plans import EVENTS, ROWS
from tests.cases import each
from tests.contract.conftest import Raw
from tests.maintenance.erasing_scenes import places_of, rows, secret_of

pytestmark = pytest.mark.one_database

MARK = {"id": "ers_x", "selectors": {"owner": "x"}, "begun_at": "2026-01-01T00:00:00+00:00", "logs": True, "only_logs": True}
IDS = ("Documents", "../op", "../../op/Documents", "/", "", "..", "a" * 300, "linked", "session")


def forge(url: str, mark: Any, *parts: Any, id: str = "ers_x") -> None:
    """Write what a raw shell would."""
    rows = {f"erasure:{id}": mark, **{f"erasure:{id}:{number:09}": part for number, part in enumerate(parts)}}
    with closing(Raw(url)) as raw:
        for key, value in rows.items():
            text = value if isinstance(value, str) else json.dumps(value)
            raw.rows(f"INSERT INTO _meta (key, value) VALUES ('{key}', '{text}')")


def ids(*of: str) -> dict[str, Any]:
    return {"key": "erasure:ers_x:000000000", "kind": "session ids", "things": [[id] for id in of], "elsewhere": {}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that an operator may name: with logs, with files that are none, and with links to what is precious."""
    for folder in ("op/Documents/deep", "home/projects/-work/Documents/subagents", "home/projects/-work/session"):
        (tmp_path / folder).mkdir(parents=True)
    work = tmp_path / "home" / "projects" / "-work"
    for path in (
        tmp_path / "op" / "Documents" / "deep" / "thesis.jsonl",
        tmp_path / "op" / "Documents.jsonl",
        work / "Documents" / "letter.txt",
        work / "Documents" / "subagents" / "agent-1.jsonl",
        work / "Documents" / "subagents" / "agent-1.meta.json",
        work / "Documents.jsonl",
        work / "session.jsonl",
        work / "others.jsonl",
    ):
        path.write_text("precious")
    (tmp_path / "home" / "projects" / "-linked").symlink_to(tmp_path / "op")
    (work / "linked").symlink_to(tmp_path / "op" / "Documents")
    (work / "linked.jsonl").symlink_to(tmp_path / "op" / "Documents.jsonl")
    (work / "session" / "subagents").symlink_to(tmp_path / "op" / "Documents" / "deep")
    return tmp_path / "home"


def names(folder: Path) -> set[str]:
    """What is there, without what is behind links."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_what_is_deleted_on_the_disk_is_decided_by_who_names_a_folder(
    database_url: str, new_database: Callable[[], str], home: Path, tmp_path: Path
) -> None:
    folders = [[str(home), home.stat().st_ino, None]]
    before, url = names(tmp_path), new_database()
    with Store.open(database_url) as store, Store.open(url) as target:
        forge(database_url, MARK, ids(*IDS))
        export(store, tmp_path / "all.jsonl")
        import_(target, tmp_path / "all.jsonl")
        assert places_of(url, "ers_x") == set()
        forge(url, {**MARK, "logs": folders}, ids(*IDS))
        for one in (store, target):
            assert [step.name for step in maintain(one).steps if step.error] == ["finish erasures"]
            erase(one, owner="nobody")
        assert {*before} <= names(tmp_path)
        assert [finding.code for finding in doctor(target, fix=True)] == ["erasure_damaged"]
        assert doctor(target) == []
        linked = tmp_path / "linked home"
        linked.mkdir()
        (linked / "projects").symlink_to(home / "projects")
        with pytest.raises(NotPermitted):
            erase(store, owner="nobody", session_logs=linked)
        assert erase(store, session_id="linked", session_logs=home).kept.popitem()[1] == 2
        assert doctor(store) == []
    below = ("", "/subagents", "/subagents/agent-1.jsonl", "/subagents/agent-1.meta.json")
    deleted = {f"home/projects/-work/Documents{name or '.jsonl'}" for name in below}
    assert before - names(tmp_path) == deleted | {"home/projects/-work/session.jsonl"}
    assert (tmp_path / "op" / "Documents" / "deep" / "thesis.jsonl").read_text() == "precious"


PART = {"key": "erasure:ers_x:000000000", "kind": "chat_sessions", "things": [["SECRET"]], "elsewhere": {}}
DAMAGED: tuple[tuple[Any, ...], ...] = (
    *((text,) for text in ("{}", "no JSON SECRET", "[1]", "null")),
    ({**MARK, "begun_at": "SECRET"},),
    ({**MARK, "begun_at": "2026-01-01T00:00:00"},),
    ({**MARK, "id": "SECRET"},),
    ({**MARK, "selectors": {"SECRET": "x"}},),
    ({**MARK, "events": -1},),
    ({**MARK, "events": 2**70},),
    ({**MARK, "rows": {"chat_sessions": "SECRET"}},),
    (MARK, {**PART, "kind": "SECRET"}),
    (MARK, {**PART, "things": [["SECRET", "SECRET"]]}),
    (MARK, {**PART, "things": [[1]]}),
    (MARK, {**PART, "upto": 2**70}),
    (MARK, {**PART, "elsewhere": {"SECRET": [["id"], [["SECRET"]]]}}),
    (MARK, {**PART, "elsewhere": {"messages": [["id"], [[["SECRET"]]]]}}),
    (MARK, {name: value for name, value in PART.items() if name != "things"}),
)


def test_damaged_rows_are_found_and_removed_and_stop_nothing(store: Store, url: str) -> None:
    """All at once: each is named, and none hides another."""
    for number, damaged in enumerate(DAMAGED):
        forge(url, *json.loads(json.dumps(damaged).replace("ers_x", f"ers_{number}")), id=f"ers_{number}")
    store.chat.sessions.create(agent="a", model={}, owner="maria")
    assert erase(store, owner="maria").tables == {"chat_sessions": 1}
    report = maintain(store)
    assert [step.name for step in report.steps if step.error] == ["finish erasures"]
    assert report.steps[-1].name == "tidy the database"
    found = doctor(store, fix=True)
    assert [(one.code, one.fixed) for one in found] == [("erasure_damaged", True)] * len(DAMAGED)
    assert "SECRET" not in f"{report}{found}"
    assert doctor(store) == []
    assert places_of(url, "ers_") == set()


def test_rows_of_other_types_stop_nothing(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw:
            raw.execute("INSERT INTO _meta VALUES ('erasure:ers_x', x'ff'), (x'65ff', 'x')")
            raw.execute("INSERT INTO _meta VALUES (CAST(x'657261737572653aff' AS TEXT), 'x')")
            raw.commit()
        assert erase(store, owner="maria").tables == {}
        assert [step.name for step in maintain(store).steps if step.error] == ["finish erasures"]
        assert "erasure_damaged" in {finding.code for finding in doctor(store, fix=True)}
        assert [step.name for step in maintain(store).steps if step.error] == []


# What cannot be read of a person is erased, or the report says that it stays and what to do.


NEEDLE = "needle-in-the-haystack"
SESSION_KEYS = (("chat_sessions", "id"), ("chat_messages", "session_id"), ("chat_parts", "session_id"))


@pytest.fixture
def path(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


def say(store: Store, owner: str, id: str, text: str) -> None:
    with store.begin() as tx:
        tx.chat.sessions.create(id=id, agent="a", model={}, owner=owner, metadata={"text": text})
        tx.chat.messages.append(id, role="user", parts=[{"type": "text", "text": text}])
        tx.app_sessions.memories.add("app", owner, id, [NewMemory(f"{id}-memory", "{}", text, [text])])


def spoil(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            raw.execute(statement)


@pytest.mark.parametrize(("cell", "log"), [("CAST(x'ff' AS TEXT)", False), ("x'00'", True)])
def test_rows_whose_key_cannot_be_read_are_said_and_erased_from_the_quarantine(
    sqlite_url: str, path: Path, cell: str, log: bool
) -> None:
    with Store.open(sqlite_url, events=log) as store:
        say(store, "maria", "m", NEEDLE)
        say(store, "peter", "p", "what-stays")
        store.switch_events(False)
    keys = [f"UPDATE {table} SET {column} = {cell} WHERE {column} = 'm'" for table, column in SESSION_KEYS]
    spoil(path, *keys, f"UPDATE app_memories SET session_id = {cell} WHERE user_id = 'maria'")
    with Store.open(sqlite_url) as store:
        for trial in (True, False):  # a session and a memory
            assert erase(store, owner="maria", user_id="maria", dry_run=trial).kept == {ROWS: 2}
        doctor(store, fix=True)
        report = erase(store, owner="maria")
        assert (report.kept, report.tables) == ({}, {"quarantine": 4})
        assert places_of(sqlite_url, NEEDLE) == set()
        assert len(store.chat.messages.list("p")) == 1
    assert NEEDLE.encode() not in path.read_bytes()


def test_events_that_cannot_be_read(sqlite_url: str, path: Path) -> None:
    """One in the session's own stream is blanked; of one in a stream that others share nobody can tell whose it is."""
    with Store.open(sqlite_url, events=True) as store:
        say(store, "maria", "m", NEEDLE)
    spoil(path, f"UPDATE event_log SET data = replace(data, '{{', '{{{{') WHERE data LIKE '%{NEEDLE}%'")
    with Store.open(sqlite_url) as store:
        report = erase(store, owner="maria")
        assert report.kept == {EVENTS: 1}
        assert places_of(sqlite_url, NEEDLE) == {("event_log", "data")}
        doctor(store, fix=True)
        assert erase(store, owner="maria").kept == {EVENTS_ASIDE: 1}
        assert places_of(sqlite_url, NEEDLE) == {("quarantine", "contents")}


def test_events_set_aside_before(sqlite_url: str, path: Path) -> None:
    with Store.open(sqlite_url, events=True) as store:
        say(store, "maria", "m", NEEDLE)
    spoil(path, f"UPDATE event_log SET data = replace(data, '{{', '{{{{') WHERE data LIKE '%{NEEDLE}%'")
    with Store.open(sqlite_url) as store:
        doctor(store, fix=True)
        report = erase(store, owner="maria")
        assert report.kept == {EVENTS_ASIDE: 1}
        assert places_of(sqlite_url, NEEDLE) == {("quarantine", "contents")}
        with closing(sqlite3.connect(path)) as raw:
            assert raw.execute("SELECT count(*) FROM quarantine").fetchone() == (1,)


# What an erasure reports, and the calls that are refused.


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
