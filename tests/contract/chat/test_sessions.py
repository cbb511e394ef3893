"""Sessions: created whole, changed by patches, archived, deleted with all that belongs to them."""

import re
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound
from persist.settings import Settings
from tests.cases import each
from tests.contract.chat.scenes import MODEL, call, create, output, record, rollup, say, session_of, shown, text, turn, words
from tests.contract.conftest import Raw


def test_a_new_session_has_every_published_column(store: Any, clock: Any, raw: Raw) -> None:
    made = store.chat.sessions.create(agent="build", model=MODEL, workspace_root="/repo", metadata={"title": "Fix"})
    assert re.fullmatch(r"ses_[0-9a-f]{12}[0-9A-Za-z]{14}", made.id)
    assert (made.agent, made.model, made.workspace_root, made.metadata) == ("build", MODEL, "/repo", {"title": "Fix"})
    assert (made.parent_id, made.parent_message_id, made.permissions, made.archived_at) == (None, None, [], None)
    counters = (made.prompt_tokens, made.completion_tokens, made.reasoning_tokens, made.cache_read, made.cache_write)
    assert (*counters, made.total_tokens, made.cost_usd) == (0, 0, 0, 0, 0, 0, 0.0)
    assert made.created_at == made.updated_at == clock()
    assert session_of(store, made.id) == made
    stored = raw.rows("SELECT created_at, updated_at, archived_at FROM chat_sessions")
    assert stored == [(1767323045678, 1767323045678, None)]


def test_defaults_are_an_empty_object_and_an_empty_list(store: Any, raw: Raw) -> None:
    create(store)
    assert raw.json("SELECT permissions_json FROM chat_sessions") == []
    assert raw.json("SELECT metadata_json FROM chat_sessions") == {}
    assert raw.value("SELECT workspace_root FROM chat_sessions") is None


def test_a_given_id_is_kept_and_a_taken_one_is_refused(store: Any) -> None:
    assert create(store, id="from-elsewhere") == "from-elsewhere"
    with pytest.raises(Conflict):
        create(store, id="from-elsewhere")
    with pytest.raises(InvalidValue):
        create(store, id="")


def test_metadata_patches_merge_and_null_removes(store: Any, clock: Any, session: str) -> None:
    store.chat.sessions.update_metadata(session, {"title": "One", "ui": {"pinned": True, "color": "red"}})
    at = clock.advance(seconds=5)
    changed = store.chat.sessions.update_metadata(session, {"title": None, "ui": {"color": "blue"}})
    assert changed.metadata == {"ui": {"pinned": True, "color": "blue"}}
    assert changed.updated_at == changed.created_at == at - timedelta(seconds=5)  # a new title is no activity
    assert store.chat.sessions.update_metadata(session, None) == changed  # None is an empty patch, as in every domain
    assert session_of(store, session) == changed


def test_archiving_is_no_deletion_and_can_be_undone(store: Any, clock: Any, session: str) -> None:
    message = say(store, session, "still here")
    at = clock.advance(seconds=1)
    store.chat.sessions.archive(session)
    assert session_of(store, session).archived_at == at
    assert [found["id"] for found in shown(store, session)] == [message]
    clock.advance(seconds=1)
    store.chat.sessions.archive(session)
    assert session_of(store, session).archived_at == at
    store.chat.sessions.unarchive(session)
    assert session_of(store, session).archived_at is None


def test_deleting_takes_messages_parts_deltas_and_turn(open_store: Any, raw: Raw, session: str) -> None:
    store = open_store(settings=Settings(fold_ms=3_600_000))
    kept = create(store)
    say(store, kept, "stays")
    say(store, session, "goes")
    tables = ("chat_messages", "chat_parts", "chat_sessions", "chat_part_deltas", "chat_turns", "chat_step_usage")
    with store.record(session) as recorder:
        recorder.feed({"type": "text-start", "id": "t"})
        recorder.feed({"type": "text-delta", "id": "t", "delta": "unfolded"})
        recorder.step_usage(0, input_tokens=1, output_tokens=1)
        assert [raw.count(table) for table in tables] == [3, 3, 2, 1, 1, 1]
        store.chat.sessions.delete(session)
        assert [raw.count(table) for table in tables] == [1, 1, 1, 0, 0, 0]
        with pytest.raises((Conflict, NotFound)):  # the recorder has nothing left to write to
            recorder.feed({"type": "text-end", "id": "t"})
    assert [raw.count(table) for table in tables] == [1, 1, 1, 0, 0, 0]
    with store.read() as tx, pytest.raises(NotFound):
        tx.chat.sessions.get(session)


def test_children_outlive_their_parent_and_still_name_it(store: Any, clock: Any, session: str) -> None:
    point = say(store, session, "hi")
    first = store.chat.sessions.fork(session, point)
    clock.advance(seconds=1)
    second = store.chat.sessions.fork(session, point)
    assert [child.id for child in store.chat.sessions.children(session)] == [first.id, second.id]
    store.chat.sessions.delete(session)
    assert [child.parent_id for child in store.chat.sessions.children(session)] == [session, session]
    assert len(shown(store, first.id)) == 1


def test_the_model_follows_the_user_message_and_the_agent_never_changes(store: Any, session: str) -> None:
    other_model = {"provider_id": "openai", "model_id": "gpt"}
    say(store, session, "with another model", metadata={"model": other_model, "agent": "plan"})
    found = session_of(store, session)
    assert (found.model, found.agent) == (other_model, "build")
    record(store, session, text("x"), model=MODEL, agent="plan")
    found = session_of(store, session)
    assert (found.model, found.agent) == (MODEL, "build")


def test_what_readers_or_the_doctor_refuse_is_refused_before_anything_is_written(store: Any, session: str) -> None:
    before, verbs = session_of(store, session), store.chat.messages
    for write in (partial(verbs.append, role="user"), verbs.enqueue):
        with pytest.raises(InvalidValue) as caught:
            write(session, parts=[{"type": "text", "text": "x"}], metadata={"model": "gpt"})
        assert caught.value.path == "metadata.model"
    for part in ({"type": "text", "text": 5}, {"type": "tool-x", "state": "input-streaming", "rawInput": 5}):
        with pytest.raises(InvalidValue) as caught:
            verbs.append(session, role="assistant", parts=[part])
        assert caught.value.path == "parts[0]"
    with pytest.raises(InvalidValue) as caught:
        record(store, session, text("x"), model="gpt")
    assert caught.value.path == "model"
    assert session_of(store, session) == before
    assert shown(store, session) == []


def test_an_assistant_messages_model_is_not_the_sessions(store: Any, session: str) -> None:
    say(store, session, "I was another", role="assistant", metadata={"model": {"model_id": "older"}})
    assert session_of(store, session).model == MODEL


# Permission rules of a session: only its own are stored, and what they say is decided with the others.


GIT = {"permission": "bash", "pattern": "git *", "action": "allow"}


def plain(rules: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [(rule["permission"], rule["pattern"], rule["action"], rule["source"]) for rule in rules]


def test_rules_are_kept_in_order_with_their_source(store: Any, raw: Raw, session: str) -> None:
    with store.begin() as tx:
        tx.chat.sessions.add_permission(session, GIT)
        changed = tx.chat.sessions.add_permission(session, {**GIT, "pattern": "rm *", "action": "deny", "source": "session"})
    assert plain(changed.permissions) == [("bash", "git *", "allow", "session"), ("bash", "rm *", "deny", "session")]
    assert session_of(store, session) == changed
    assert raw.json("SELECT permissions_json FROM chat_sessions") == changed.permissions


@each("source", ["manifest", "project", "somewhere"])
def test_rules_of_another_source_live_elsewhere(store: Any, source: str) -> None:
    session = create(store)
    with store.begin() as tx:
        with pytest.raises(InvalidValue):
            tx.chat.sessions.add_permission(session, {**GIT, "source": source})
        with pytest.raises(InvalidValue):
            tx.chat.sessions.create(agent="build", model={}, permissions=[{**GIT, "source": source}])


def test_removing_matches_permission_pattern_and_action(store: Any, session: str) -> None:
    with store.begin() as tx:
        for action in ("allow", "deny", "ask"):
            tx.chat.sessions.add_permission(session, {**GIT, "action": action, "added_at": 7})
        changed = tx.chat.sessions.remove_permission(session, {**GIT, "action": "deny"})
    assert [rule["action"] for rule in changed.permissions] == ["allow", "ask"]
    same = store.chat.sessions.remove_permission(session, {**GIT, "pattern": "svn *"})
    assert same.permissions == changed.permissions


# Forking: a child with a copy of what was visible through the fork point, and a parent that does not change.


def fork(store: Any, session: str, point: str, **options: Any) -> Any:
    return store.chat.sessions.fork(session, point, **options)


def snapshot(raw: Raw, session: str) -> list[Any]:
    return [
        raw.rows("SELECT * FROM chat_sessions WHERE id = ?", session),
        raw.rows("SELECT * FROM chat_messages WHERE session_id = ? ORDER BY id", session),
        raw.rows("SELECT * FROM chat_parts WHERE session_id = ? ORDER BY id", session),
    ]


@pytest.fixture
def talk(store: Any, clock: Any) -> tuple[str, list[str]]:
    """A session of two turns with tools and usage -> its id, the ids of its four messages."""
    session = create(store, workspace_root="/repo", metadata={"title": "Fix", "ephemeral": True, "k": 1, "o": {"a": 1}})
    store.chat.sessions.add_permission(session, {"permission": "bash", "pattern": "*", "action": "allow"})
    for number in (1, 2):
        clock.advance(seconds=1)
        say(store, session, f"question {number}", metadata={"custom": number})
        message = record(store, session, turn(*text("answer"), call("bash", "call_0", {}), output("call_0", number)))
        store.chat.messages.record_step_usage(message, 0, input_tokens=10 * number, output_tokens=1, cost_usd=0.5)
    clock.advance(seconds=1)
    return session, [message["id"] for message in shown(store, session)]


def test_a_child_has_new_ids_and_the_same_content(store: Any, raw: Raw, clock: Any, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    before = snapshot(raw, session)
    child = fork(store, session, ids[2])
    parent_view, child_view = shown(store, session)[:3], shown(store, child.id)
    assert [{**message, "id": None} for message in child_view] == [{**message, "id": None} for message in parent_view]
    assert not {message["id"] for message in child_view} & set(ids)
    stamps = "SELECT created_at FROM chat_messages WHERE session_id = ? ORDER BY created_at"
    assert raw.rows(stamps, child.id) == raw.rows(stamps, session)[:3]
    indexes = 'SELECT p."index" FROM chat_parts p WHERE p.session_id = ? ORDER BY p.message_id, p."index"'
    assert len(raw.rows(indexes, child.id)) == sum(len(message["parts"]) for message in child_view)
    assert snapshot(raw, session) == before
    assert (child.created_at, child.updated_at) == (clock(), clock())


def test_a_child_copies_agent_model_and_workspace_but_no_permissions(store: Any, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    child = fork(store, session, ids[1], metadata={"k": 2, "new": True})
    assert (child.agent, child.model, child.workspace_root) == ("build", MODEL, "/repo")
    assert (child.parent_id, child.parent_message_id, child.permissions) == (session, ids[1], [])
    assert child.metadata == {"title": "Fix (copy)", "k": 2, "new": True, "o": {"a": 1}}
    assert session_of(store, child.id) == child


def test_a_given_title_stands_and_an_untitled_parent_gives_none(store: Any, session: str, talk: tuple[str, list[str]]) -> None:
    assert fork(store, talk[0], talk[1][0], metadata={"title": "Mine"}).metadata["title"] == "Mine"
    assert "title" not in fork(store, session, say(store, session, "hi")).metadata


def test_a_childs_rollups_are_those_of_its_copies(store: Any, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    assert rollup(store, fork(store, session, ids[0]).id) == (0, 0, 0, 0, 0, 0)
    assert rollup(store, fork(store, session, ids[1]).id) == (10, 1, 0, 0, 0, 11)
    assert rollup(store, fork(store, session, ids[3]).id) == rollup(store, session) == (30, 2, 0, 0, 0, 32)


def test_only_visible_messages_are_copied(store: Any, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, ids[2])
        tx.chat.messages.enqueue(session, parts=[{"type": "text", "text": "waits"}])
    after = say(store, session, "after the rewind")
    child = fork(store, session, after)
    assert words(shown(store, child.id, include_hidden=True)) == ["question 1", "answer", "question 2", "after the rewind"]
    assert store.chat.messages.queued(child.id) == []


def test_no_child_is_made_at_a_point_that_is_none(store: Any, raw: Raw, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    stranger = say(store, create(store), "elsewhere")
    with store.begin() as tx:
        tx.chat.sessions.rewind(session, ids[2])
        queued = tx.chat.messages.enqueue(session, parts=[]).id
    count = raw.count("chat_sessions")
    for point, error in ((ids[3], InvalidValue), (queued, InvalidValue), (stranger, NotFound), ("msg_nowhere", NotFound)):
        with store.begin() as tx, pytest.raises(error):
            tx.chat.sessions.fork(session, point)
    with store.begin() as tx, pytest.raises(NotFound):
        tx.chat.sessions.fork("ses_nowhere", ids[0])
    assert raw.count("chat_sessions") == count


def test_a_compaction_of_the_child_names_the_childs_copy(store: Any, raw: Raw, talk: tuple[str, list[str]]) -> None:
    session, ids = talk
    marker = store.chat.messages.compact(session, summary="so far", tail_start_id=ids[2], auto=True, summary_tokens=5)
    before = snapshot(raw, session)
    child = fork(store, session, marker.id)
    copies = shown(store, child.id)
    assert copies[4]["parts"][0]["data"]["tail_start_id"] == copies[2]["id"]
    assert words(store.chat.messages.model_view(child.id)) == ["so far", "question 2", "answer"]
    assert rollup(store, child.id) == rollup(store, session)
    assert child.permissions == []
    assert snapshot(raw, session) == before


def test_unfolded_text_is_copied_whole(store: Any, open_store: Any, session: str) -> None:
    """A turn that ended in an error is not running, and its text may still be a tail."""
    say(store, session, "hi")
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "m"}, *text("a")[:-1]])
        recorder.feed({"type": "text-delta", "id": "t", "delta": "b"})
        recorder.feed({"type": "error", "errorText": "e"})
        recorder.feed({"type": "text-delta", "id": "t", "delta": "c"})
        child = fork(store, session, "m")
    assert words(shown(store, child.id)) == ["hi", "abc"]
