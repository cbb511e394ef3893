"""What no verb takes, by a table of every parameter of every verb; that what is refused wrote nothing; and no write in a read.

A row of refusals.csv says which of the odd values a parameter takes, by the name of a kind below or one by one; all others are
InvalidValue, with a path that begins with the parameter, or with what the row says instead. Its last cell says what is NotFound
where the text is no id.
"""

import csv
import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from persist import Store
from persist.conversations.verbs import exchange, sessions
from persist.db.operations import keyset
from persist.db.values import pages
from persist.errors import InvalidValue, NotFound, PersistError, ReadOnlyTransaction
from persist.testing import START, FrozenClock
from persist.usage import repository as usage
from tests.statemachines.bad_arguments import VALUES
from tests.statemachines.both_databases import Undo, rows
from tests.statemachines.scene import Verb, arguments, make, verbs
from tests.statemachines.single_call import tables_of, work_of

TEXT = ("empty text", "nul", "half", "text subclass", "digits")
COUNTS = ("zero", "int 53")
ODD = (
    *("none", *TEXT, *COUNTS, "minus one", "uint", "googol", "unprintable int", "true", "float whole", "nan", "minus inf"),
    *("decimal", "bytes", "list", "list of one", "list of lists", "list of bytes", "object", "object int key", "object beyond"),
    *("object nan", "object bytes", "pair", "set", "thing", "naive", "utc", "date", "no time", "a microsecond", "shortest"),
    "longest",
)

LABEL = ("text subclass", "digits")
JSON = (
    *("empty text", "nul", "half", "digits", *COUNTS, "minus one", "uint", "true", "float whole", "list", "list of one"),
    *("list of lists", "object"),
)
KINDS: dict[str, Sequence[str]] = {
    "nothing": (),
    "label": LABEL,
    "optional label": ("none", *LABEL),
    "label or empty": ("empty text", *LABEL),
    "optional label or empty": ("none", "empty text", *LABEL),
    "text": TEXT,
    "optional text": ("none", *TEXT),
    "flag": ("true",),
    "optional flag": ("none", "true"),
    "count": COUNTS,
    "optional count": ("none", *COUNTS),
    "small count": ("zero",),
    "optional small count": ("none", "zero"),
    "whole number": (*COUNTS, "minus one"),
    "positive": ("int 53",),
    "optional positive": ("none", "int 53"),
    "none alone": ("none",),
    "instant": ("utc",),
    "optional instant": ("none", "utc"),
    "object": ("object",),
    "optional object": ("none", "object"),
    "list": ("list",),
    "names": ("list", "list of one", "set"),
    "json": ("none", *JSON),
    "time": ("no time", "a microsecond", "longest"),
}


class Rule(NamedTuple):
    """What a parameter takes of the odd values, how the path of a refusal begins, and the kind of what an unknown id names."""

    taken: frozenset[str]
    path: tuple[str, ...]
    missing: str


def _table() -> dict[tuple[str, str], Rule]:
    found = {}
    for verb, parameter, taken, path, missing in csv.reader(TABLE.read_text(encoding="utf-8").splitlines()[1:]):
        names = KINDS[taken] if taken in KINDS else taken.split("; ")
        found[verb, parameter] = Rule(frozenset(names), tuple((path or parameter).split("; ")), missing)
    return found


TABLE = Path(__file__).with_name("refusals.csv")
RULES = _table()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, dict[str, Any]]]:
    """A store with one of everything, and the ids of what could not be chosen."""
    path = tmp_path_factory.mktemp("refusals") / "state.db"
    clock = FrozenClock()
    with Store.open(f"sqlite:///{path.as_posix()}", clock=clock) as store:
        ids = make(store)
        clock.advance(seconds=1)
        yield store, ids


def parameters(verb: Verb) -> list[str]:
    """The names that a caller may give, but for those that each column of an update has."""
    return [name for name, parameter in verb.parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]


def spoilt(verb: Verb, ids: dict[str, Any], name: str, odd: str) -> dict[str, Any]:
    """Valid arguments but for this one."""
    return {**arguments(verb, ids), name: VALUES[odd]()}


def _rules(verb: Verb) -> list[tuple[str, Rule]]:
    return [(name, RULES[verb.name, name]) for name in parameters(verb)]


def _call(tx: Any, verb: Verb, given: dict[str, Any]) -> tuple[str, str]:
    """What came of it: the path of an InvalidValue, and the kind of what was NotFound by the id that was given."""
    try:
        verb.call(tx, given)
    except InvalidValue as refused:
        return refused.path, ""
    except NotFound as missing:
        return "", missing.kind if missing.id == VALUES["digits"]() else ""
    except Exception:  # another refusal: tests/statemachines/test_values.py is about those
        return "", ""
    return "", ""


DOMAINS = sorted({verb.domain for verb in verbs()})


@pytest.mark.parametrize("domain", DOMAINS)
def test_each_parameter_takes_what_the_table_says_and_nothing_else(scene: tuple[Store, dict[str, Any]], domain: str) -> None:
    store, ids = scene
    wrong = []
    for verb in verbs():
        if verb.domain != domain:
            continue
        with suppress(Undo), store.begin() as tx:
            before = rows(work_of(tx), tables_of(domain))
            for name, rule in _rules(verb):
                for odd in [odd for odd in ODD if odd not in rule.taken]:
                    path, _ = _call(tx, verb, spoilt(verb, ids, name, odd))
                    if not path.startswith(rule.path):
                        wrong.append(f"{verb.name}({name}={odd}): {path or 'taken'}")
            if rows(work_of(tx), tables_of(domain)) != before:
                wrong.append(f"{verb.name} wrote something that it refused")
            raise Undo
        for name, rule in _rules(verb):
            for odd in rule.taken:
                with suppress(Undo), store.begin() as tx:
                    path, missing = _call(tx, verb, spoilt(verb, ids, name, odd))
                    if path or missing != (rule.missing if odd == "digits" else ""):
                        wrong.append(f"{verb.name}({name}={odd}): {path or missing or 'found'}")
                    raise Undo
    assert wrong == []


BY_KEY = {"agent_tasks.tasks.list", "checkpoints.states.page", "events.read", "replay_streams.messages.after"}
"""Lists that go on behind a key or a number that a caller may make up, and not behind a cursor."""
FILTERS: dict[str, Any] = {
    **dict.fromkeys(("archived", "active", "include_archived"), True),
    **{"conversations.sessions.list status": "failed", "source_kind": "live", "invocation_kind": "flow", "unread_only": False},
    **{"programs.runs.list status": "failed", "telemetry.tasks.list state": "failed", "status": "failed"},
    **{"group": "agent", "kind": "reply", "since": START, "until": START + timedelta(days=9)},
    **{"failure_kind": "error", "metadata": {"k": 1}},
}
"""Another valid value of a parameter, of one verb or of all; any text where none is named."""


def test_a_cursor_belongs_to_its_list_and_to_each_of_its_filters(
    scene: tuple[Store, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ids = scene
    bound: list[tuple[str, dict[str, Any]]] = []

    def decode(cursor: str, name: str, filters: dict[str, Any], *shape: Any) -> list[Any]:
        bound.append((name, dict(filters)))
        raise InvalidValue("after", "seen")

    for module in (pages, keyset, sessions, exchange, usage):
        monkeypatch.setattr(module, "decode_cursor", decode)
    names: dict[str, str] = {}
    lists = [verb for verb in verbs() if "after" in verb.parameters and "limit" in verb.parameters and verb.name not in BY_KEY]
    assert len(lists) > 30
    for verb in lists:
        given = {**arguments(verb, ids), "after": "cursor", "limit": 1}
        for name in {*parameters(verb)} - {"after", "limit"}:
            other = FILTERS.get(f"{verb.name} {name}", FILTERS.get(name, "other"))
            alone = {"instance_id": None} if verb.name == "usage.calls.list" else {}  # a call is of one of them
            for arguments_ in (given, {**given, **alone, name: other}):
                with pytest.raises(InvalidValue, match="seen"), store.read() as tx:
                    verb.call(tx, arguments_)
            assert bound[-1] != bound[-2], (verb.name, name)
        with pytest.raises(InvalidValue, match="seen"), store.read() as tx:
            verb.call(tx, given)
        names[verb.name] = bound[-1][0]
    shared = [verb for verb, name in names.items() if list(names.values()).count(name) > 1]
    assert shared == [
        *("usage.by_group", "usage.by_model"),
        *(f"workflows.runs.{verb}" for verb in ("children", "list", "list_active", "list_rows")),
    ]


def test_the_table_has_every_parameter_once() -> None:
    assert list(RULES) == [(verb.name, name) for verb in verbs() for name, _ in _rules(verb)]


def test_no_verb_that_writes_runs_in_a_read(scene: tuple[Store, dict[str, Any]]) -> None:
    store, ids = scene
    writing, refused = set(), {"blobs.put"}  # it writes by a verb of its own
    for verb in verbs():
        with store.read() as tx:
            if inspect.getclosurevars(verb.of(tx)).nonlocals.get("writes"):
                writing.add(verb.name)
            try:
                verb.call(tx, arguments(verb, ids))
            except ReadOnlyTransaction:
                refused.add(verb.name)
            except PersistError:
                pass
    assert refused == writing | {"blobs.put"}
    assert len(writing) > 100
