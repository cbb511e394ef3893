"""Permission rules of a session: only its own are stored, and what they say is decided with the others."""

from typing import Any

import pytest

from persist.chat.permissions import decide, intersect
from persist.errors import InvalidValue, NotFound
from tests.cases import each
from tests.contract.chat.scenes import create, session_of
from tests.contract.conftest import Raw

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
