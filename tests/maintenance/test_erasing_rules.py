"""What belongs to the person who is erased, and what to others."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from persist import Store
from persist.errors import InvalidValue, NotFound
from persist.framework_state.histories.schemas import Message, NewEntry
from persist.maintenance import doctor, erase, rebuild
from persist.programs import subagent
from persist.testing import START
from tests.contract.conftest import Raw
from tests.maintenance.erasing_scenes import FORKED, FRIENDS, MARIA, conversations_of, folded, person, places_of, rows, secret_of
from tests.maintenance.pruning_scenes import gone

pytestmark = pytest.mark.one_database

ABOUT: dict[str, Any] = {"revision": "1", "expected_revision": None, "updated_at": START}
SAID = [{"type": "text", "text": "SECRET"}]
PICTURE = [{"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{'QUJD' * 30_000}"}]


def shown(store: Store, branch: str) -> list[str]:
    return [one.id for one in store.conversations.branches.history(branch)]


def fork(tx: Any, session: str, user: str | None = None) -> None:
    """A conversation with a fork of Maria's branch, and a message of its own."""
    tx.conversations.sessions.create(id=session, user=user)
    id = tx.conversations.branches.create(session, node_metadata=FORKED).id
    tx.conversations.messages.record(id, {"id": f"{session} 1", "created_at": 2.5, "role": "user", "content": {}})


def test_conversations_that_others_show_or_forked(logged: Store, url: str, new_database: Callable[[], str]) -> None:
    """What a fork was taken from stays; a conversation with a fork goes with its root; a message that others show stays."""
    with logged.begin() as tx:
        conversations_of(tx, "maria")
        fork(tx, "fork of maria", "carl")
        fork(tx, "taken over")
        friend = tx.conversations.branches.get(f"{FRIENDS['maria']}-main")
        tx.conversations.progressions.append(friend.progression_id, "maria-1")
    before = shown(logged, "maria-main")
    erase(logged, user_id="carl")
    assert shown(logged, "maria-main") == before
    report = erase(logged, user_id="maria")
    assert report.kept == {"messages: what is not erased shows them": 1}
    assert shown(logged, f"{FRIENDS['maria']}-main") == ["maria-1"]
    for id in ("maria-talk", "taken over", "fork of maria"):
        with pytest.raises(NotFound):
            logged.conversations.sessions.get(id)
    rebuilt = new_database()
    with Store.open(rebuilt) as target:
        rebuild(logged, target)
    assert folded(rebuilt) == folded(url)


def test_ids_are_followed_if_nobody_else_chose_them(logged: Store, url: str) -> None:
    """The chat of one person and a thread of another may have one name: only who names the session erases both."""
    with logged.begin() as tx:
        tx.chat.sessions.create(agent="a", model={}, owner="eve", id="chosen")
        session = tx.chat.sessions.create(agent="a", model={}, owner="eve")
        for id in ("chosen", session.id):
            tx.replay_streams.messages.append(id, "1", "sent")
            tx.telemetry.status.record("idle", instance_id=id)
    once = ("replay_messages", "replay_sessions", "status_log", "window_marks")
    assert erase(logged, owner="eve").tables == {"chat_sessions": 2, **dict.fromkeys(once, 1)}
    assert {table for table, _ in places_of(url, "chosen")} >= {"replay_sessions", "status_log"}


def test_what_was_deleted_before_leaves_the_log_with_what_it_led_to(logged: Store, url: str) -> None:
    """Forks and followed ids that only the log still names: of a chat, a history, a conversation and a run."""
    entries = [NewEntry("e1", None, Message({"t": "x"}, extra={})), NewEntry("e2", "e1", Message({"t": "SECRET"}, extra={}))]
    with logged.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model={}, owner="eve")
        asked = tx.chat.messages.append(session.id, role="user", parts=SAID)
        fork = tx.chat.sessions.fork(session.id, asked.id)
        again = tx.chat.sessions.fork(fork.id, tx.chat.messages.list(fork.id)[-1]["id"])
        tx.replay_streams.messages.append(session.id, "1", "SECRET")
        tx.transcripts.entries.append("-w", session.id, [{"type": "user", "uuid": "u", "x": "SECRET"}], fold=lambda *_: {})
        records = tx.histories.records
        records.put("h1", head_id="e1", entries=entries[:1], scope="eve", **ABOUT)
        records.put("h2", head_id="e2", entries=entries, forked_from="h1", forked_at="e1", **ABOUT)
    with logged.begin() as tx:
        for gone_before in (again.id, fork.id):
            tx.chat.sessions.delete(gone_before)
        tx.replay_streams.sessions.delete(session.id)
        tx.transcripts.sessions.delete("-w", session.id)
        tx.histories.records.delete("h2")
        tx.events.append("audit", "noted", {"changes": [{"table": "chat_sessions", "op": "put", "row": {"id": [1]}}]})
    assert places_of(url, "SECRET")
    erase(logged, owner="eve", namespace="eve")
    assert places_of(url, "SECRET") == set()


def test_forks_of_what_is_gone_are_found(store: Store, url: str) -> None:
    entries = [NewEntry("e1", None, Message({"t": "SECRET"}, extra={})), NewEntry("e2", "e1", Message({"t": "x"}, extra={}))]
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model={}, owner="eve")
        asked = tx.chat.messages.append(session.id, role="user", parts=SAID)
        tx.chat.sessions.fork(session.id, asked.id)
        tx.histories.records.put("h1", head_id="e1", entries=entries[:1], **ABOUT)
        tx.histories.records.put("h2", head_id="e2", entries=entries, forked_from="h1", forked_at="e1", **ABOUT)
    with store.begin() as tx:
        tx.chat.sessions.delete(session.id)
        tx.histories.records.delete("h1")
    assert erase(store, session_id=session.id).tables["chat_sessions"] == 1
    assert erase(store, session_id="h1").tables["history_records"] == 1
    assert places_of(url, "SECRET") == set()


@pytest.mark.parametrize("by", ["owner", "session_id"])
def test_an_id_of_somebody_elses_session_leads_nowhere(store: Store, by: str) -> None:
    """Whoever makes a row may write any id into it."""
    with store.begin() as tx:
        theirs = tx.chat.sessions.create(agent="a", model={}, owner="peter").id
        tx.app_sessions.sessions.create("app", "peter", theirs)
        tx.replay_streams.messages.append(theirs, "s", "peter's")
        own = tx.app_sessions.sessions.create("game", "mia", theirs).session.id
        if by == "owner":
            tx.conversations.sessions.create(id=theirs, user="mia")
            session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="c", user_id="mia")
            tx.messaging.sessions.set_agent_session(session.id, theirs)
    report = erase(store, owner="mia") if by == "owner" else erase(store, session_id=own)
    expected = {"app_user_sessions": 1}
    if by == "owner":
        expected |= {"progressions": 1, "sessions": 1, "messaging_sessions": 1}
    assert report.tables == expected
    stays = "ids in rows of the person that sessions of other owners have: these are not followed; name what is the person's"
    assert report.kept == {stays: 1}
    assert store.chat.sessions.get(theirs).owner == "peter"
    assert [one.message for one in store.replay_streams.messages.list(theirs, "s")] == ["peter's"]
    assert erase(store, session_id=theirs).tables["replay_messages"] == 1


def test_files_of_two_people_stay_until_the_second_is_erased(store: Store, url: str) -> None:
    with store.begin() as tx:
        for owner in ("eve", "adam"):
            session = tx.chat.sessions.create(agent="a", model={}, owner=owner)
            tx.chat.messages.append(session.id, role="user", parts=PICTURE)
    first = erase(store, owner="eve")
    assert ("blobs" in first.tables, first.kept) == (False, {"blobs: rows of others name them": 1})
    assert erase(store, owner="adam").tables["blobs"] == 1


def test_bodies_that_cannot_be_reached_are_not_left_behind(url: str, tmp_path: Path) -> None:
    with Store.open(url, blobs=tmp_path / "bodies") as store, store.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model={}, owner="maria")
        tx.chat.messages.append(session.id, role="user", parts=PICTURE)
    before = rows(url)
    with Store.open(url) as store:
        for trial in (True, False):
            with pytest.raises(InvalidValue, match="PERSIST_BLOBS"):
                erase(store, owner="maria", dry_run=trial)
        assert rows(url) == before
        assert doctor(store)[0].code == "blobs_outside"
    with Store.open(url, blobs=tmp_path / "bodies") as store:
        assert erase(store, owner="maria").tables["blobs"] == 1
    left = [path for path in (tmp_path / "bodies").rglob("*") if path.is_file()]
    assert [path.parent.name for path in left] == ["databases"]  # which database uses the folder


def test_files_lent_to_subagents_are_reported(store: Store, tmp_path: Path) -> None:
    with store.begin() as tx:
        tx.programs.runs.create(id="maria-run")
        frame = tx.programs.executions.begin("maria-run", statement_index=1, statement_text="x").id
        tx.programs.bindings.bind("maria-run", "goal", "x", execution_id=frame)
    subagent(store, "maria-run", frame, isolation="file", folder=tmp_path)
    (reason,) = erase(store, session_id="maria-run").kept.items()
    assert ("below subagents" in reason[0], reason[1]) == (True, 1)


def test_budgets_and_spending_of_an_instance_go(logged: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which events of a verb are continued by the next one is said also of those that are blank."""
    monkeypatch.setattr("persist.events.writing.MAX_CHANGES", 1)
    with logged.begin() as tx:
        for name in ("maria-laptop", "peter-laptop"):
            tx.usage.budgets.set(f"instance:{name}", "day", 1)
            tx.usage.calls.record(model="m", cost_usd_micros=5, instance_id=name)
    before, told = rows(url), [event.data.get("more") for event in logged.events.read("*")]
    tables = erase(logged, session_id="maria-laptop").tables
    assert (tables["usage_budgets"], tables["usage_spending"]) == (1, 1)
    assert gone(before, rows(url)) == tables
    assert (told.count(True), [event.data.get("more") for event in logged.events.read("*")][: len(told)]) == (6, told)
    assert {column for _, column in places_of(url, "maria-laptop")} == {"stream_id"}
    assert {table for table, _ in places_of(url, "peter-laptop")} >= {"usage_budgets", "usage_spending"}


def of_peter(url: str) -> list[Any]:
    """The rows of the quarantine that were moved together with one that names Peter."""
    with closing(Raw(url)) as raw:
        moved = raw.rows("SELECT * FROM quarantine ORDER BY id")
        groups = {group for (group,) in raw.rows("SELECT group_id FROM quarantine WHERE contents LIKE '%peter%'")}
    return [row for row in moved if row[1] in groups]


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
        kept = of_peter(sqlite_url)
        erase(store, **MARIA)
        assert places_of(sqlite_url, "maria") == set()
        assert of_peter(sqlite_url) == kept
        assert len(kept) == rows(sqlite_url)["quarantine"].total() > 3


def test_session_logs_go_on_request(store: Store, tmp_path: Path) -> None:
    projects = tmp_path / "home" / "projects"
    below = projects / "-work" / "maria-session" / "subagents"
    below.mkdir(parents=True)
    (projects / "-app").mkdir()
    mine = [projects / "-work" / "maria-session.jsonl", projects / "-app" / "maria-session.jsonl", below / "agent-1.jsonl"]
    others = [projects / "-work" / "peter-session.jsonl"]
    for path in (*mine, *others):
        path.write_text(secret_of("maria"))
    assert erase(store, session_id="maria-session", session_logs=tmp_path / "home", dry_run=True).files == 3
    assert all(path.exists() for path in mine)
    assert erase(store, session_id="maria-session", session_logs=tmp_path / "home").files == 3
    assert not any(path.exists() for path in mine)
    assert not (projects / "-work" / "maria-session").exists()
    assert all(path.exists() for path in others)


def test_letters_and_how_far_they_were_read_go(store: Store, url: str) -> None:
    with store.begin() as tx:
        conversations_of(tx, "maria")
        conversations_of(tx, "peter")
        for sender, recipient in (("maria-main", "ann-main"), ("ann-main", "maria-main"), ("ann-main", "bob-main")):
            sent = tx.conversations.exchange.send(sender=sender, recipient=recipient, content={"text": sender}, channel="c")
            assert tx.conversations.exchange.mark_read(recipient, sent.id)
    letter = store.conversations.exchange.send(sender="ann-main", recipient="bob-main", content={"text": "stays"})
    progression = store.conversations.branches.get("maria-main").progression_id
    store.conversations.progressions.append(progression, letter.id)  # she shows it, and it is still a letter of others
    before = rows(url)
    tables = erase(store, user_id="maria").tables
    assert [one.content for one in store.conversations.exchange.inbox("bob-main").items] == [{"text": "stays"}]
    assert (tables["exchange_items"], tables["exchange_cursors"]) == (3, 1)
    assert gone(before, rows(url)) == tables
    assert not {place for place in places_of(url, "maria-main") if place[0].startswith("exchange")}


def test_branches_that_a_history_left_go(store: Store, url: str) -> None:
    with store.begin() as tx:
        entries = [NewEntry(f"left-{number}", None, Message({"text": "left"})) for number in (1, 2)]
        tx.histories.records.put("left", head_id="left-1", entries=entries, branches=["left-2"], scope="eve", **ABOUT)
    tables = {"history_branches": 1, "history_entries": 2, "history_records": 1}
    assert erase(store, namespace="eve").tables == tables
    assert places_of(url, "left-") == set()


def test_a_namespace_is_not_one_that_begins_alike(store: Store) -> None:
    with store.begin() as tx:
        for namespace in (("eve",), ("eve", "below"), ("evelyn",), ("eve-2",), ("above", "eve")):
            tx.checkpoints.memories.put(namespace, "k", {"a": 1})
    assert erase(store, namespace="eve").tables == {"memories": 2}
