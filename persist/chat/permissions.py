"""Permissions of a session: rules, the verdict on one use of a tool, and the rules of a child session. Pure, no database.

A rule is a dict as it stands in `chat_sessions.permissions_json`:

    permission   the id of a tool or capability, or "*" for every one
    pattern      a glob over the subject (a command line, a path, …)
    action       allow | deny | ask
    source       manifest | project | session; "session" when absent
    added_at     optional integer instant; among equal rules the newest wins
    bound        set by `intersect` only, see its docstring

Globs are matched against the whole subject and are case-sensitive. `*` is any run of characters, newlines and slashes included,
`?` is any one character, `[abc]`, `[a-z]` and `[!a-z]` are classes (a `]` right after the opening is a member, a `[` that is
never closed is itself). There is no escape character: `[*]` is a literal star. A pattern is as specific as it has literal
characters, that is characters outside wildcards and classes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from persist.errors import InvalidValue, shown


class Action(StrEnum):
    """What a rule says about the uses that it matches."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"


class Source(StrEnum):
    """Who wrote a rule; among equally specific ones session beats project, which beats manifest."""

    MANIFEST = "manifest"
    PROJECT = "project"
    SESSION = "session"


Rule = dict[str, Any]
Verdict = Literal["allow", "deny", "ask"]
ANY = "*"
BOUND = "bound"

# A smaller number is stricter: the strictest of several verdicts is their minimum.
_LENIENCY = {Action.DENY: 0, Action.ASK: 1, Action.ALLOW: 2}
_SOURCE_RANK = {Source.MANIFEST: 0, Source.PROJECT: 1, Source.SESSION: 2}


def validate_rule(rule: Any, *, path: str = "rule") -> Rule:
    """A checked copy of the rule with its source filled in; keys that persist does not know are kept."""
    if not isinstance(rule, Mapping):
        raise InvalidValue(path, "a permission rule must be an object.")
    checked: Rule = {}
    for key, value in rule.items():
        if not isinstance(key, str):
            raise InvalidValue(path, f"the key {shown(key)} is not a string.")
        checked[key] = value
    for key in ("permission", "pattern"):
        if not isinstance(checked.get(key), str):
            raise InvalidValue(f"{path}.{key}", "a string is required.")
    if not checked["permission"]:
        raise InvalidValue(f"{path}.permission", "it must not be empty; * stands for every permission.")
    checked["action"] = _member(Action, checked.get("action"), f"{path}.action")
    checked["source"] = _member(Source, checked.get("source", Source.SESSION.value), f"{path}.source")
    if checked.get("added_at") is not None and type(checked["added_at"]) is not int:
        raise InvalidValue(f"{path}.added_at", "an integer is required.")
    if BOUND in checked and (type(checked[BOUND]) is not int or checked[BOUND] < 1):
        raise InvalidValue(f"{path}.{BOUND}", "a positive integer is required.")
    return checked


def decide(rules: Iterable[Mapping[str, Any]], permission: str, subject: str, *, headless: bool = False) -> Verdict:
    """The verdict on one use of a permission. Without a matching rule it is ask; if `headless`, ask becomes deny.

    A matching deny of the manifest is final. Otherwise the most specific matching rule wins: the named permission before "*",
    then more literal pattern characters, then session before project before manifest, then the newest, then deny before ask
    before allow. Each group of rules that `intersect` bound is judged apart, and the strictest verdict counts.
    """
    verdict = min((_verdict(group, permission, subject) for group in _groups(rules).values()), key=_LENIENCY.__getitem__)
    if headless and verdict is Action.ASK:
        verdict = Action.DENY
    return verdict.value


def intersect(parent_rules: Iterable[Mapping[str, Any]], child_rules: Iterable[Mapping[str, Any]]) -> list[Rule]:
    """The rules of a child session: every verdict is the stricter one of the parent's and the child's.

    Plain rules cannot express this, because a more specific or later rule of the child would override one of the parent. So
    the parent's rules are copied with a number under the key `bound`. `decide` judges the rules of each number apart, and
    those without a number, which are the child's own. A rule added to the child later has no number: it changes what the
    child asks for, never what the parent grants.
    """
    parent, child = _groups(parent_rules), _groups(child_rules)
    inherited = [parent[number] for number in sorted(parent)]
    own = child.pop(0)
    inherited += [child[number] for number in sorted(child)]

    # An equal group adds nothing: without this check, lists would grow with each generation of like agents.
    bounds: list[list[Rule]] = []
    for group in inherited:
        stripped = [{key: value for key, value in rule.items() if key != BOUND} for rule in group] or [_ask_for_all()]
        if stripped not in bounds:
            bounds.append(stripped)
    return [*own, *(rule | {BOUND: number} for number, group in enumerate(bounds, 1) for rule in group)]


def _groups(rules: Iterable[Mapping[str, Any]]) -> dict[int, list[Rule]]:
    """The rules by their `bound` number. Group 0, the session's own rules, always exists: without any, all uses are ask."""
    groups: dict[int, list[Rule]] = {0: []}
    for index, rule in enumerate(rules):
        checked = validate_rule(rule, path=f"rules[{index}]")
        groups.setdefault(checked.get(BOUND, 0), []).append(checked)
    return groups


def _verdict(rules: list[Rule], permission: str, subject: str) -> Action:
    matching = [rule for rule in rules if _matches(rule, permission, subject)]
    if not matching:
        return Action.ASK
    if any(rule["source"] == Source.MANIFEST and rule["action"] == Action.DENY for rule in matching):
        return Action.DENY
    return Action(max(matching, key=_precedence)["action"])


def _matches(rule: Rule, permission: str, subject: str) -> bool:
    return rule["permission"] in (ANY, permission) and _compile(rule["pattern"])[0].fullmatch(subject) is not None


def _precedence(rule: Rule) -> tuple[bool, int, int, float, int]:
    added_at = rule.get("added_at")
    return (
        rule["permission"] != ANY,
        _compile(rule["pattern"])[1],
        _SOURCE_RANK[rule["source"]],
        float("-inf") if added_at is None else added_at,
        -_LENIENCY[rule["action"]],
    )


def _ask_for_all() -> Rule:
    """A rule that stands for an empty group, which a flat list cannot express. The verdict of both is ask."""
    return {"permission": ANY, "pattern": "*", "action": Action.ASK.value, "source": Source.MANIFEST.value}


def _member(vocabulary: type[StrEnum], value: Any, path: str) -> str:
    if isinstance(value, str) and value in vocabulary.__members__.values():
        return str(value)
    raise InvalidValue(path, f"must be one of {', '.join(vocabulary)}.")


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> tuple[re.Pattern[str], int]:
    """The glob as a regular expression, and its number of literal characters."""
    runs: list[str] = [""]  # the pattern, split at its stars
    literals = 0
    for kind, text in _tokens(pattern):
        if kind == "star":
            runs.append("")
            continue
        runs[-1] += text
        literals += kind == "literal"
    if len(runs) == 1:
        return re.compile(runs[0], re.DOTALL), literals
    first, *middle, last = runs
    # A run between two stars only needs its first occurrence, never a second try, so it is an atomic group:
    # `*a*a*a*a*b` would take exponential time otherwise, and subjects come from a model.
    body = "".join(f"(?>.*?{run})" for run in middle if run)
    return re.compile(f"{first}{body}.*{last}", re.DOTALL), literals


def _tokens(pattern: str) -> Iterator[tuple[Literal["star", "class", "literal"], str]]:
    position = 0
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == "*":
            yield "star", ""
        elif character == "?":
            yield "class", "."
        elif character == "[" and (end := _class_end(pattern, position)) is not None:
            yield "class", _class(pattern[position:end])
            position = end + 1
        else:
            yield "literal", re.escape(character)


def _class_end(pattern: str, start: int) -> int | None:
    first = start + 1 if pattern.startswith("!", start) else start
    end = pattern.find("]", first + 1)  # a "]" that comes first is a member
    return None if end < 0 else end


def _class(text: str) -> str:
    negated = text.startswith("!")
    members = text[1:] if negated else text
    items = ""
    position = 0
    while position < len(members):
        low = members[position]
        if members[position + 1 : position + 2] == "-" and position + 2 < len(members):
            high = members[position + 2]
            items += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""  # a range that runs backwards is empty
            position += 3
        else:
            items += re.escape(low)
            position += 1
    if not items:
        return "." if negated else "(?!)"
    return f"[^{items}]" if negated else f"[{items}]"
