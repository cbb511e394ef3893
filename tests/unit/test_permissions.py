"""Permission rules: verdicts, globs, and that a child is never allowed more than its parent."""

import json
import time
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from persist.chat.permissions import Action, Source, decide, intersect, validate_rule
from persist.errors import InvalidValue
from tests.cases import each

LENIENCY = {"deny": 0, "ask": 1, "allow": 2}


def rule(action: str, permission: str = "bash", pattern: str = "*", source: str = "session", **more: Any) -> dict[str, Any]:
    return {"permission": permission, "pattern": pattern, "action": action, "source": source, **more}


def matches(pattern: str, subject: str) -> bool:
    return decide([rule("allow", pattern=pattern)], "bash", subject) == "allow"


def test_session_allows_git_while_the_manifest_denies_rm() -> None:
    rules = [rule("allow", "bash", "git *"), rule("deny", "*", "rm *", "manifest")]
    assert decide(rules, "bash", "git status") == "allow"
    assert decide(rules, "bash", "rm x") == "deny"
    assert decide(rules, "bash", "ls") == "ask"
    assert decide(rules, "bash", "ls", headless=True) == "deny"


def test_no_rules_ask_and_headless_denies() -> None:
    assert decide([], "bash", "ls") == "ask"
    assert decide([], "bash", "ls", headless=True) == "deny"


def test_headless_turns_an_explicit_ask_into_deny_and_leaves_allow() -> None:
    assert decide([rule("ask")], "bash", "ls", headless=True) == "deny"
    assert decide([rule("allow")], "bash", "ls", headless=True) == "allow"


def test_a_manifest_deny_is_final_against_anything_more_specific() -> None:
    rules = [rule("deny", "*", "*", "manifest"), rule("allow", "bash", "rm -rf /tmp/x", "session", added_at=9)]
    assert decide(rules, "bash", "rm -rf /tmp/x") == "deny"


@each(
    ("winner", "loser"),
    [
        pytest.param(rule("allow", "bash", "*"), rule("deny", "*", "git push"), id="named permission before *"),
        pytest.param(rule("deny", "bash", "git push*"), rule("allow", "bash", "git *"), id="more literal characters"),
        pytest.param(rule("ask", "bash", "git *"), rule("allow", "bash", "[g]?? *"), id="classes are not literal"),
        pytest.param(rule("allow", source="session"), rule("deny", source="project"), id="session before project"),
        pytest.param(rule("ask", source="project"), rule("allow", source="manifest"), id="project before manifest"),
        pytest.param(rule("allow", added_at=2), rule("deny", added_at=1), id="newest"),
        pytest.param(rule("allow", added_at=0), rule("deny"), id="any age before none"),
        pytest.param(rule("deny"), rule("ask"), id="deny before ask"),
        pytest.param(rule("ask"), rule("allow"), id="ask before allow"),
    ],
)
def test_precedence(winner: dict[str, Any], loser: dict[str, Any]) -> None:
    assert matches(winner["pattern"], "git push")
    assert matches(loser["pattern"], "git push")
    assert decide([winner, loser], "bash", "git push") == winner["action"]
    assert decide([loser, winner], "bash", "git push") == winner["action"]


def test_a_rule_of_another_permission_does_not_match() -> None:
    assert decide([rule("allow", "edit")], "bash", "ls") == "ask"


def test_a_rule_without_a_source_is_the_sessions() -> None:
    bare = {"permission": "bash", "pattern": "*", "action": "allow"}
    assert decide([bare, rule("deny", source="project")], "bash", "ls") == "allow"


@each(
    ("pattern", "subject", "expected"),
    [
        ("git *", "git status", True),
        ("git *", "git", False),
        ("git", "git status", False),
        ("git *", "Git status", False),
        ("*", "", True),
        ("", "", True),
        ("", "x", False),
        ("a*z", "a/b/c\nd z", True),
        ("?", "\n", True),
        ("a?c", "ac", False),
        ("[abc]x", "bx", True),
        ("[!abc]x", "bx", False),
        ("[a-c]x", "bx", True),
        ("[c-a]x", "bx", False),
        ("[!c-a]x", "bx", True),
        ("[]]", "]", True),
        ("[!]]", "]", False),
        ("[ab", "[ab", True),
        ("[*]", "*", True),
        ("[*]", "x", False),
        ("[^a]", "^", True),
        ("[a-]", "-", True),
        ("[a&&b]", "&", True),
        ("a.c", "abc", False),
        ("$(rm)", "$(rm)", True),
        ("ls", "ls\n", False),
    ],
)
def test_globs(pattern: str, subject: str, expected: bool) -> None:
    assert matches(pattern, subject) is expected


@given(st.text("ab*?[]!-^\n\\", max_size=8), st.text("ab*[]!-^\n\\", max_size=6))
@example("*a*b", "xaxbab")
@example("[!]", "[!]")
@example("[]-a]", "^")
def test_globs_agree_with_the_standard_library(pattern: str, subject: str) -> None:
    assert matches(pattern, subject) is fnmatchcase(subject, pattern)


def test_many_stars_do_not_take_exponential_time() -> None:
    started = time.perf_counter()
    assert not matches("*a" * 40 + "*b", "a" * 5000)
    assert time.perf_counter() - started < 5


permissions = st.sampled_from(["*", "bash", "edit"])
patterns = st.sampled_from(["*", "a*", "*b", "a?", "ab", "[!a]*", "b"])
own_rules = st.lists(
    st.builds(
        rule,
        st.sampled_from(list(Action)).map(str),
        permissions,
        patterns,
        st.sampled_from(list(Source)).map(str),
        added_at=st.none() | st.integers(0, 3),
    ),
    max_size=5,
)
# A parent may be a child itself, so its list may hold bounds already; so may, oddly, the list that is called the child's.
some_rules = own_rules | st.builds(intersect, own_rules, own_rules)
uses = st.tuples(st.sampled_from(["bash", "edit", "read"]), st.text("ab", max_size=3))


@given(some_rules, some_rules, uses, st.booleans())
def test_the_intersection_gives_the_stricter_verdict(
    parent: list[dict[str, Any]], child: list[dict[str, Any]], use: tuple[str, str], headless: bool
) -> None:
    verdicts = [decide(rules, *use, headless=headless) for rules in (parent, child)]
    assert decide(intersect(parent, child), *use, headless=headless) == min(verdicts, key=LENIENCY.__getitem__)


@given(some_rules, some_rules, own_rules, uses)
def test_rules_added_to_a_child_later_never_lift_what_the_parent_denies(
    parent: list[dict[str, Any]], child: list[dict[str, Any]], added: list[dict[str, Any]], use: tuple[str, str]
) -> None:
    rules = [*intersect(parent, child), *added]
    assert LENIENCY[decide(rules, *use)] <= LENIENCY[decide(parent, *use)]


@given(own_rules, own_rules, own_rules, uses)
def test_grandchildren(a: list[dict[str, Any]], b: list[dict[str, Any]], c: list[dict[str, Any]], use: tuple[str, str]) -> None:
    assert decide(intersect(intersect(a, b), c), *use) == decide(intersect(a, intersect(b, c)), *use)


@given(some_rules, some_rules)
def test_the_result_is_plain_json_and_leaves_its_arguments_alone(
    parent: list[dict[str, Any]], child: list[dict[str, Any]]
) -> None:
    before = json.dumps([parent, child])
    result = intersect(parent, child)
    assert json.dumps([parent, child]) == before
    assert json.loads(json.dumps(result)) == result
    assert [validate_rule(each) for each in result] == result


def test_a_childs_specific_allow_does_not_pierce_the_parents_broad_deny() -> None:
    rules = intersect([rule("deny", "*", "*")], [rule("allow", "bash", "git status", added_at=9)])
    assert decide(rules, "bash", "git status") == "deny"


def test_a_childs_own_rules_stay_unmarked() -> None:
    child = [rule("allow", "bash", "git *")]
    assert intersect([rule("allow")], child) == [*child, rule("allow", bound=1)]


def test_generations_of_like_agents_do_not_grow_the_list() -> None:
    rules = [rule("allow", "bash", "git *"), rule("deny", "*", "rm *", "manifest")]
    child = intersect(rules, rules)
    assert intersect(child, rules) == child
    assert intersect(intersect([], []), []) == intersect([], [])


def test_validation_fills_in_the_source_and_keeps_unknown_keys() -> None:
    found = validate_rule({"permission": "bash", "pattern": "*", "action": "allow", "note": "by hand"})
    assert found == {"permission": "bash", "pattern": "*", "action": "allow", "source": "session", "note": "by hand"}


def test_validation_gives_plain_strings_for_enum_members() -> None:
    checked = validate_rule({"permission": "bash", "pattern": "*", "action": Action.ALLOW, "source": Source.PROJECT})
    assert (type(checked["action"]), type(checked["source"])) == (str, str)


@each(
    ("changes", "path"),
    [
        ({"permission": None}, "rule.permission"),
        ({"permission": ""}, "rule.permission"),
        ({"pattern": 3}, "rule.pattern"),
        ({"action": "maybe"}, "rule.action"),
        ({"action": ["allow"]}, "rule.action"),
        ({"source": "root"}, "rule.source"),
        ({"source": None}, "rule.source"),
        ({"added_at": True}, "rule.added_at"),
        ({"added_at": 1.5}, "rule.added_at"),
        ({"bound": 0}, "rule.bound"),
        ({"bound": "1"}, "rule.bound"),
        ({3: 4}, "rule"),
    ],
)
def test_a_bad_rule_is_refused_with_its_path(changes: dict[Any, Any], path: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        validate_rule(rule("allow") | changes)
    assert caught.value.path == path


@each("missing", ["permission", "pattern", "action"])
def test_a_missing_key_is_refused(missing: str) -> None:
    bad = rule("allow")
    del bad[missing]
    with pytest.raises(InvalidValue, match=missing):
        validate_rule(bad)


@each("bad", [None, [], "allow", 3])
def test_only_an_object_is_a_rule(bad: Any) -> None:
    with pytest.raises(InvalidValue):
        validate_rule(bad)


def test_decide_names_the_bad_rule_of_a_list() -> None:
    with pytest.raises(InvalidValue) as caught:
        decide([rule("allow"), rule("sometimes")], "bash", "ls")
    assert caught.value.path == "rules[1].action"
