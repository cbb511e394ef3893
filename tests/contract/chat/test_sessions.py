"""Sessions: created whole, changed by patches, archived, deleted with all that belongs to them."""

import re
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from persist.chat.permissions import decide, intersect
from persist.errors import Conflict, InvalidValue, NotFound
from persist.settings import Settings
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, record, say, session_of, shown, text
from tests.contract.conftest import Raw
from tests.contract.faces import in_one_way


def test_a_new_session_has_every_published_column(store: Any, clock: Any, raw: Raw) -> None:
    with store.begin() as tx:
        made = tx.chat.sessions.create(agent="build", model=MODEL, workspace_root="/repo", metadata={"title": "Fix"})
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


def test_there_is_no_title_column(store: Any, raw: Raw) -> None:
    create(store, metadata={"title": "Only in the metadata"})
    with pytest.raises(Exception, match="title"):
        raw.rows("SELECT s.title FROM chat_sessions s")


def test_a_given_id_is_kept_and_a_taken_one_is_refused(store: Any) -> None:
    assert create(store, id="from-elsewhere") == "from-elsewhere"
    with pytest.raises(Conflict):
        create(store, id="from-elsewhere")
    with pytest.raises(InvalidValue):
        create(store, id="")


@in_one_way(
    ("fields", "path"),
    [
        ({"model": None}, "model"),
        ({"model": "gpt"}, "model"),
        ({"model": {"weight": float("nan")}}, "model.weight"),
        ({"agent": ""}, "agent"),
        ({"agent": 7}, "agent"),
        ({"metadata": [1]}, "metadata"),
        ({"metadata": {1: "a"}}, "metadata"),
        ({"permissions": "bash"}, "permissions"),
        ({"permissions": [{"permission": "bash"}]}, "permissions[0].pattern"),
    ],
)
def test_a_bad_field_is_named_and_nothing_is_written(store: Any, raw: Raw, fields: dict[str, Any], path: str) -> None:
    with store.begin() as tx:
        with pytest.raises(InvalidValue) as refused:
            tx.chat.sessions.create(**{"agent": "build", "model": MODEL, **fields})
        assert refused.value.path == path
        kept = tx.chat.sessions.create(agent="build", model=MODEL)  # the transaction is still good
    assert raw.rows("SELECT id FROM chat_sessions") == [(kept.id,)]


@each("verb", ["get", "archive", "unarchive", "delete"])
def test_an_unknown_session_is_not_found(store: Any, verb: str) -> None:
    with store.begin() as tx, pytest.raises(NotFound) as missing:
        getattr(tx.chat.sessions, verb)("ses_nowhere")
    assert (missing.value.kind, missing.value.id) == ("session", "ses_nowhere")
    assert isinstance(missing.value, LookupError)


def test_metadata_patches_merge_and_null_removes(store: Any, clock: Any, session: str) -> None:
    with store.begin() as tx:
        tx.chat.sessions.update_metadata(session, {"title": "One", "ui": {"pinned": True, "color": "red"}})
    at = clock.advance(seconds=5)
    with store.begin() as tx:
        changed = tx.chat.sessions.update_metadata(session, {"title": None, "ui": {"color": "blue"}})
    assert changed.metadata == {"ui": {"pinned": True, "color": "blue"}}
    assert changed.updated_at == changed.created_at == at - timedelta(seconds=5)  # a new title is no activity
    assert session_of(store, session) == changed


def test_a_patch_must_be_an_object_of_json(store: Any, session: str) -> None:
    with store.begin() as tx:
        for patch in ([1], "title", {"at": object()}, {"n": 2**64}):
            with pytest.raises(InvalidValue):
                tx.chat.sessions.update_metadata(session, patch)
        with pytest.raises(NotFound):
            tx.chat.sessions.update_metadata("ses_nowhere", {})


def test_archiving_is_no_deletion_and_can_be_undone(store: Any, clock: Any, session: str) -> None:
    message = say(store, session, "still here")
    at = clock.advance(seconds=1)
    with store.begin() as tx:
        tx.chat.sessions.archive(session)
    assert session_of(store, session).archived_at == at
    assert [found["id"] for found in shown(store, session)] == [message]
    clock.advance(seconds=1)
    with store.begin() as tx:
        tx.chat.sessions.archive(session)
    assert session_of(store, session).archived_at == at
    with store.begin() as tx:
        tx.chat.sessions.unarchive(session)
    assert session_of(store, session).archived_at is None


def test_deleting_takes_messages_parts_deltas_and_turn(open_store: Any, raw: Raw, session: str) -> None:
    """(c) 21"""
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
        with store.begin() as tx:
            tx.chat.sessions.delete(session)
        assert [raw.count(table) for table in tables] == [1, 1, 1, 0, 0, 0]
        with pytest.raises((Conflict, NotFound)):  # the recorder has nothing left to write to
            recorder.feed({"type": "text-end", "id": "t"})
    assert [raw.count(table) for table in tables] == [1, 1, 1, 0, 0, 0]
    with store.read() as tx, pytest.raises(NotFound):
        tx.chat.sessions.get(session)


def test_children_outlive_their_parent_and_still_name_it(store: Any, clock: Any, session: str) -> None:
    point = say(store, session, "hi")
    with store.begin() as tx:
        first = tx.chat.sessions.fork(session, point)
    clock.advance(seconds=1)
    with store.begin() as tx:
        second = tx.chat.sessions.fork(session, point)
    with store.read() as tx:
        assert [child.id for child in tx.chat.sessions.children(session)] == [first.id, second.id]
    with store.begin() as tx:
        tx.chat.sessions.delete(session)
    with store.read() as tx:
        assert [child.parent_id for child in tx.chat.sessions.children(session)] == [session, session]
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


@each(
    "bad",
    [{}, {**GIT, "action": "maybe"}, {**GIT, "pattern": 1}, {**GIT, "permission": ""}, "git", None, {**GIT, "added_at": "now"}],
)
def test_a_bad_rule_is_refused(store: Any, bad: Any) -> None:
    session = create(store)
    with store.begin() as tx, pytest.raises(InvalidValue):
        tx.chat.sessions.add_permission(session, bad)
    assert session_of(store, session).permissions == []


def test_removing_matches_permission_pattern_and_action(store: Any, session: str) -> None:
    with store.begin() as tx:
        for action in ("allow", "deny", "ask"):
            tx.chat.sessions.add_permission(session, {**GIT, "action": action, "added_at": 7})
        changed = tx.chat.sessions.remove_permission(session, {**GIT, "action": "deny"})
    assert [rule["action"] for rule in changed.permissions] == ["allow", "ask"]
    with store.begin() as tx:
        same = tx.chat.sessions.remove_permission(session, {**GIT, "pattern": "svn *"})
    assert same.permissions == changed.permissions


def test_an_unknown_session_has_no_permissions(store: Any) -> None:
    with store.begin() as tx:
        for verb in (tx.chat.sessions.add_permission, tx.chat.sessions.remove_permission):
            with pytest.raises(NotFound):
                verb("ses_nowhere", GIT)


def test_a_manifest_deny_stands_against_a_session_allow(store: Any) -> None:
    """(c) 22"""
    session = create(store, permissions=[GIT])
    manifest = [{"permission": "*", "pattern": "rm *", "action": "deny", "source": "manifest"}]
    rules = [*manifest, *session_of(store, session).permissions]
    assert decide(rules, "bash", "git status") == "allow"
    assert decide(rules, "bash", "rm x") == "deny"
    assert decide(rules, "bash", "ls") == "ask"
    assert decide(rules, "bash", "ls", headless=True) == "deny"


def test_what_a_parent_refuses_its_child_may_not_do(store: Any) -> None:
    parent = create(store, permissions=[{**GIT, "action": "deny"}])
    rules = intersect(session_of(store, parent).permissions, [{**GIT, "pattern": "git push"}])
    child = create(store, permissions=rules)
    with store.begin() as tx:
        tx.chat.sessions.add_permission(child, {**GIT, "pattern": "git pull"})
    stored = session_of(store, child).permissions
    assert decide(stored, "bash", "git push") == decide(stored, "bash", "git pull") == "deny"
