"""A person is erased: nothing of that person remains, everything of everybody else does, and a report says what went."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue, NotFound, ReadOnlyTransaction, TransactionOpen
from persist.maintenance import EraseReport, doctor, erase, export, maintain, rebuild, verify_report
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.maintenance.erasing_scenes import (
    FRIENDS,
    NAMES_OF_STREAMS,
    events,
    files_of,
    person,
    places_of,
    rows,
    secret_of,
    selectors,
    without,
)
from tests.maintenance.pruning_scenes import gone

MARIA = selectors("maria")
FORKED = {"parent_branch_id": "maria-main", "forked_at_ord": 1}


def folded(url: str) -> dict[str, Any]:
    """The rows of a database with its progressions folded, but for what says whether it logs."""
    with Store.open(url) as store:
        maintain(store)
    return {name: of for name, of in rows(url).items() if name != "_meta"}


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    """Two people, in a store that logs."""
    with Store.open(database_url, clock=clock, events=True) as store:
        person(store, "maria")
        person(store, "peter")
        yield store


def test_nothing_of_one_remains_and_all_of_the_other(store: Store, database_url: str) -> None:
    before, logged = rows(database_url), events(store)
    report = erase(store, **MARIA)
    after = rows(database_url)
    assert places_of(database_url, secret_of("maria")) == set()
    assert places_of(database_url, "maria") <= NAMES_OF_STREAMS
    assert gone(before, after) == report.tables
    assert gone(after, before) == {}
    kept = without(before, "maria", secret_of("maria"))
    assert {name: of["peter"] for name, of in _of_people(before, "peter").items()} == {
        name: of["peter"] for name, of in _of_people(after, "peter").items()
    }
    assert all(kept[name] >= after[name] for name in after)
    of_peter = [event for event in logged if "peter" in str(event)]
    assert of_peter == [event for event in events(store) if "peter" in str(event)]
    assert doctor(store) == []


def _of_people(found: dict[str, Any], name: str) -> dict[str, dict[str, list[str]]]:
    return {table: {name: sorted(row for row in of if name in row)} for table, of in found.items()}


def test_a_dry_run_counts_the_same_and_changes_nothing(store: Store, database_url: str) -> None:
    before, logged = rows(database_url), events(store)
    trial = erase(store, **MARIA, dry_run=True)
    assert (rows(database_url), events(store)) == (before, logged)
    report = erase(store, **MARIA)
    same = ("selectors", "tables", "events", "files", "kept")
    assert {name: getattr(report, name) for name in same} == {name: getattr(trial, name) for name in same}
    assert (trial.dry_run, report.dry_run) == (True, False)
    assert report.total > 60
    assert report.events > 60


def test_again_there_is_nothing(store: Store, database_url: str) -> None:
    erase(store, **MARIA)
    before, logged = rows(database_url), events(store)
    again = erase(store, **MARIA)
    assert (again.tables, again.events, again.files, again.kept) == ({}, 0, 0, {})
    assert (rows(database_url), events(store)) == (before, logged)


# ---------------------------------------------------------------- the event log


def test_numbers_stay_and_the_last_event_of_a_stream_says_so(store: Store) -> None:
    before = {event.position: event for event in events(store)}
    with store.read() as tx:
        (session,) = (one.id for one in tx.chat.sessions.list(owner="maria").items if one.parent_id is None)
    erase(store, **MARIA)
    after = events(store)
    assert [event.position for event in after] == list(range(1, len(after) + 1))
    for event in after:
        if event.position in before:
            was = before[event.position]
            assert (event.stream_id, event.seq, event.type, event.at) == (was.stream_id, was.seq, was.type, was.at)
        else:
            assert (event.type, event.data) == ("stream.erased", {"v": 1, "erased": True})
    of_session = [event for event in after if event.stream_id == session]
    assert [event.seq for event in of_session] == list(range(1, len(of_session) + 1))
    assert {str(event.data) for event in of_session} == {str({"v": 1, "erased": True})}
    assert [event.seq for event in store.watch(session, after=0, timeout=0)] == [event.seq for event in of_session]


def test_a_consumer_is_told(store: Store) -> None:
    with store.begin() as tx:
        tx.events.consumers.create("index", at="now", types=["stream.erased"])
    erase(store, **MARIA)
    told = store.events.consumers.next("index", limit=1000).events
    assert {event.data["erased"] for event in told} == {True}
    assert {event.stream_id for event in told} >= {"conversation:maria-talk", "thread:maria-session", "program:maria-session"}


def test_a_rebuild_gives_the_erased_state(store: Store, database_url: str, new_database: Callable[[], str]) -> None:
    erase(store, **MARIA)
    url = new_database()
    with Store.open(url) as target:
        rebuild(store, target)
    assert folded(url) == folded(database_url)
    assert places_of(url, "maria") == set()


def test_what_was_deleted_before_leaves_the_log_too(store: Store, database_url: str) -> None:
    with store.begin() as tx:
        for session in tx.chat.sessions.list(owner="maria").items:
            tx.chat.sessions.delete(session.id)
    erase(store, **MARIA)
    assert places_of(database_url, secret_of("maria")) == set()


def test_an_event_of_a_host_in_a_stream_of_the_person_goes(store: Store, database_url: str) -> None:
    with store.begin() as tx:
        tx.events.append("thread:maria-session", "noted", {"text": secret_of("maria")})
        tx.events.append("audit", "noted", {"text": "kept"})
    erase(store, **MARIA)
    assert places_of(database_url, secret_of("maria")) == set()
    with store.read() as tx:
        assert [event.data for event in tx.events.read("audit")] == [{"text": "kept"}]


def test_without_a_log(database_url: str) -> None:
    with Store.open(database_url) as store:
        person(store, "maria")
        person(store, "peter")
        before = rows(database_url)
        report = erase(store, **MARIA)
        assert report.events == 0
        assert gone(before, rows(database_url)) == report.tables
        assert places_of(database_url, "maria") == set()


def test_an_old_log_that_is_off(database_url: str) -> None:
    with Store.open(database_url, events=True) as store:
        person(store, "maria")
        store.switch_events(False)
        erase(store, **MARIA)
        assert places_of(database_url, secret_of("maria")) == set()


# ---------------------------------------------------------------- bytes


def test_no_byte_of_it_is_in_the_file(sqlite_url: str, tmp_path: Path) -> None:
    secret = secret_of("maria").encode()
    with Store.open(sqlite_url, events=True) as store:
        person(store, "maria")
        person(store, "peter")
        assert any(secret in path.read_bytes() for path in files_of(sqlite_url))
        report = erase(store, **MARIA)
        assert report.kept == {"system_prompts: messages of others name them": 1}
        assert [path for path in files_of(sqlite_url) if secret in path.read_bytes()] == []
        export(store, tmp_path / "all.jsonl")
        assert secret not in (tmp_path / "all.jsonl").read_bytes()
        assert secret_of("peter").encode() in (tmp_path / "all.jsonl").read_bytes()
    assert [path for path in tmp_path.iterdir() if path.is_file() and secret in path.read_bytes()] == []


def test_a_reader_that_keeps_the_log_is_reported(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        person(store, "maria")
        with Store.open(sqlite_url) as reader, reader.read() as tx:
            tx.chat.sessions.list()
            kept = erase(store, **MARIA).kept
    assert any("persist checkpoint" in reason for reason in kept)


# ---------------------------------------------------------------- what belongs to whom


def test_messages_that_others_show_stay_and_are_reported(
    store: Store, database_url: str, new_database: Callable[[], str]
) -> None:
    with store.begin() as tx:
        friend = tx.conversations.branches.get(f"{FRIENDS['maria']}-main")
        tx.conversations.progressions.append(friend.progression_id, "maria-1")
    report = erase(store, owner="maria")
    assert report.kept["messages: what is not erased shows them"] == 1
    with store.read() as tx:
        assert [one.id for one in tx.conversations.branches.history(f"{FRIENDS['maria']}-main")] == ["maria-1"]
    url = new_database()
    with Store.open(url) as target:
        rebuild(store, target)
    assert folded(url) == folded(database_url)


def test_conversations_with_forks_of_its_branches_go(store: Store) -> None:
    with store.begin() as tx:
        tx.conversations.sessions.create(id="taken over")
        fork = tx.conversations.branches.create("taken over", node_metadata=FORKED)
        tx.conversations.messages.record(fork.id, {"id": "further", "created_at": 2.5, "role": "user", "content": {}})
    erase(store, user_id="maria")
    with store.read() as tx:
        for id in ("maria-talk", "taken over"):
            with pytest.raises(NotFound):
                tx.conversations.sessions.get(id)


def test_what_a_fork_was_taken_from_stays(store: Store, database_url: str, new_database: Callable[[], str]) -> None:
    with store.begin() as tx:
        tx.conversations.sessions.create(id="fork of maria", user="carl")
        fork = tx.conversations.branches.create("fork of maria", node_metadata=FORKED)
        tx.conversations.messages.record(fork.id, {"id": "further", "created_at": 2.5, "role": "user", "content": {}})
        shown = [one.id for one in tx.conversations.branches.history("maria-main")]
    erase(store, user_id="carl")
    with store.read() as tx:
        assert [one.id for one in tx.conversations.branches.history("maria-main")] == shown
    url = new_database()
    with Store.open(url) as target:
        rebuild(store, target)
    assert folded(url) == folded(database_url)


def test_an_id_that_a_host_chose_for_two_things_is_not_followed(store: Store) -> None:
    """The chat of one person and a thread of another have one name: only who names the session erases both."""
    with store.begin() as tx:
        tx.chat.sessions.create(agent="a", model={}, owner="eve", id="peter-session")
    tables = erase(store, owner="eve").tables
    assert tables["chat_sessions"] == 1
    assert not {"checkpoint_threads", "replay_sessions", "run", "history_records", "status_log"} & set(tables)
    with store.read() as tx:
        assert tx.checkpoints.threads.get("peter-session").id == "peter-session"


def test_a_minted_id_is_followed_everywhere(store: Store) -> None:
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model={}, owner="eve")
        tx.replay_streams.messages.append(session.id, "1", "sent")
        tx.telemetry.status.record("idle", instance_id=session.id)
    tables = {"chat_sessions": 1, "replay_messages": 1, "replay_sessions": 1, "status_log": 1, "window_marks": 1}
    assert erase(store, owner="eve").tables == tables


def test_files_of_two_people_stay_until_the_second_is_erased(store: Store, database_url: str) -> None:
    url = f"data:image/png;base64,{'QUJD' * 30_000}"
    with store.begin() as tx:
        for owner in ("eve", "adam"):
            session = tx.chat.sessions.create(agent="a", model={}, owner=owner)
            tx.chat.messages.append(session.id, role="user", parts=[{"type": "file", "mediaType": "image/png", "url": url}])
    first = erase(store, owner="eve")
    assert ("blobs" in first.tables, first.kept) == (False, {"blobs: rows of others name them": 1})
    assert erase(store, owner="adam").tables["blobs"] == 1


def test_quarantined_rows_go(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        person(store, "maria")
        person(store, "peter")
    raw = Raw(sqlite_url)
    raw.rows("UPDATE chat_sessions SET metadata_json = 'no JSON, ' || owner || ' SECRET-of-' || owner WHERE parent_id IS NULL")
    raw.rows("UPDATE messages SET content = 'no JSON of ' || id WHERE id LIKE '%-1'")
    raw.rows("UPDATE memories SET value_json = 'no JSON of ' || namespace WHERE key = 'likes'")
    raw.close()
    with Store.open(sqlite_url) as store:
        assert {finding.fixed for finding in doctor(store, fix=True) if finding.code == "unreadable"} == {True}
        assert ("quarantine", "contents") in places_of(sqlite_url, secret_of("maria"))
        kept = without(rows(sqlite_url), "maria")["quarantine"]
        erase(store, **MARIA)
        assert places_of(sqlite_url, "maria") == set()
        assert rows(sqlite_url)["quarantine"] == kept
        assert kept.total() > 3


def test_session_logs_go_on_request(store: Store, tmp_path: Path) -> None:
    projects = tmp_path / "home" / "projects"
    below = projects / "-work" / "maria-session" / "subagents"
    below.mkdir(parents=True)
    (projects / "-app").mkdir()
    (tmp_path / "elsewhere").write_text("stays")
    mine = [projects / "-work" / "maria-session.jsonl", projects / "-app" / "maria-session.jsonl", below / "agent-1.jsonl"]
    others = [projects / "-work" / "peter-session.jsonl"]
    for path in (*mine, *others):
        path.write_text(secret_of("maria"))
    (below / "link").symlink_to(tmp_path / "elsewhere")
    assert erase(store, session_id="maria-session", session_logs=tmp_path / "home", dry_run=True).files == 4
    assert all(path.exists() for path in mine)
    assert erase(store, session_id="maria-session", session_logs=tmp_path / "home").files == 4
    assert not any(path.exists() for path in mine)
    assert not (projects / "-work" / "maria-session").exists()
    assert all(path.exists() for path in others)
    assert (tmp_path / "elsewhere").read_text() == "stays"


# ---------------------------------------------------------------- the report


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


@pytest.mark.parametrize("wrong", ["", b"", 1])
def test_keys_that_are_none(store: Store, wrong: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        erase(store, owner="maria", sign_key=wrong)
    assert caught.value.path == "sign_key"


@pytest.mark.parametrize("wrong", ["", "{}", "[]", "no JSON", {"id": 1}, None, 1])
def test_reports_that_are_none(wrong: Any) -> None:
    with pytest.raises(InvalidValue):
        verify_report(wrong)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
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


# ---------------------------------------------------------------- in steps


def test_steps_are_bounded(store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with many messages goes in transactions of so many rows, and the counts are of all."""
    monkeypatch.setattr("persist.db.operations.erasing.SOME", 7)
    monkeypatch.setattr("persist.events.erasing.SOME", 7)
    monkeypatch.setattr("persist.events.erasing._LOOK", 5)
    before = rows(database_url)
    report = erase(store, **MARIA)
    assert gone(before, rows(database_url)) == report.tables
    assert places_of(database_url, secret_of("maria")) == set()


def test_what_is_written_under_the_name_later_stays(store: Store, clock: FrozenClock) -> None:
    erase(store, owner="maria")
    clock.advance(delta=timedelta(seconds=1))
    with store.begin() as tx:
        made = tx.chat.sessions.create(agent="a", model={}, owner="maria")
    with store.read() as tx:
        assert [one.id for one in tx.chat.sessions.list(owner="maria").items] == [made.id]
