"""Text that would be SQL if anybody pasted it into a statement: given to every parameter of every verb, on both databases.

Verbs are found by looking at the repositories, so a new one is covered without a word here.
"""

import base64
import inspect
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from persist import Store
from persist.db.transactions.repository import Repository
from persist.db.values.pages import Page, PagedList, encode_cursor
from persist.errors import InvalidValue, PersistError
from persist.maintenance import export, import_, prune
from persist.schema import migrate
from persist.schema.metadata import metadata
from persist.settings import Settings
from persist.store.transaction import Transaction
from persist.testing import FrozenClock
from tests.cases import each
from tests.schema.filling import fill
from tests.schema.places import Place

PAYLOADS = [
    "'; DROP TABLE canary; --\"; DROP TABLE canary; --$$; DROP TABLE canary; --%s %(x)s :x ? $1 {0} \\",
    "x' OR '1'='1') RETURNING 1; DELETE FROM canary; SELECT ('",
]


def repositories(tx: Transaction) -> Iterator[tuple[str, Repository]]:
    """Every aggregate of every domain."""
    for domain in sorted(name for name in dir(tx) if not name.startswith("_")):
        found = getattr(tx, domain)
        if isinstance(found, Repository):
            yield domain, found
        for name in sorted(name for name in dir(found) if not name.startswith("_")):
            if isinstance(repository := getattr(found, name), Repository):
                yield f"{domain}.{name}", repository


def verbs(tx: Transaction) -> dict[str, Callable[..., Any]]:
    """Every verb, by its whole name."""
    found: dict[str, Callable[..., Any]] = {}
    for place, repository in repositories(tx):
        for name, member in inspect.getmembers(repository, inspect.ismethod):
            if not name.startswith("_"):
                found[f"{place}.{name}"] = member
    return found


def _argument(hint: str, text: str) -> Any:
    """Something of the kind that a parameter asks for, with the text wherever there may be text."""
    if "str" in hint and not hint.startswith(("Mapping", "Sequence", "List", "list", "dict", "Iterable")):
        return text
    for words, value in (
        (("Mapping[str, Sequence", "Mapping[str, tuple"), {text: []}),
        (("Sequence[Mapping", "Iterable[Mapping", "list[dict"), [{"type": "text", "text": text, "id": text, text: text}]),
        (("Mapping", "dict", "Json", "Any"), {text: text}),
        (("Sequence", "Iterable", "List", "list"), [text]),
        (("timedelta",), timedelta(days=1)),
        (("datetime",), datetime(2026, 1, 1, tzinfo=UTC)),
        (("bool",), True),
        (("float", "int"), 1),
    ):
        if any(word in hint for word in words):
            return value
    return text


def _calls(verb: Callable[..., Any], text: str) -> Iterator[dict[str, Any]]:
    """With every parameter given, with the required ones alone, and with each of the others alone."""
    parameters = inspect.signature(verb).parameters.values()
    given = {one.name: _argument(str(one.annotation), text) for one in parameters if one.kind is not one.VAR_KEYWORD}
    needed = {one.name: given[one.name] for one in parameters if one.default is one.empty and one.name in given}
    yield given
    yield needed
    for name in given.keys() - needed.keys():
        yield {**needed, name: given[name]}


@pytest.fixture
def place(database_url: str, clock: FrozenClock) -> Iterator[Place]:
    """A store with something of everything, and a table that is not ours."""
    with Store.open(database_url, clock=clock) as store, ExitStack() as stack:
        fill(store, clock, stack)
    place = Place(database_url)
    place.run(f"CREATE TABLE {place.named('canary')} (a INTEGER)", f"INSERT INTO {place.named('canary')} VALUES (1)")
    yield place
    place.run(f"DROP TABLE {place.named('canary')}")


def unharmed(place: Place) -> None:
    """The other table has its row, and all of ours are there."""
    assert place.ask(f"SELECT a FROM {place.named('canary')}") == [(1,)]
    with Store.open(place.url) as store, store.read() as tx:
        assert {table.name for table in metadata.sorted_tables} <= tx._work.whole_tables.names()


def test_no_parameter_of_a_verb_is_sql(place: Place, clock: FrozenClock) -> None:
    returned = 0
    names: set[str] = set()
    with Store.open(place.url, clock=clock) as store:
        for text in PAYLOADS:
            with store.begin() as tx:
                found = {name: list(_calls(verb, text)) for name, verb in verbs(tx).items()}
            names |= found.keys()
            for name, calls in found.items():
                for arguments in calls:
                    # what is of a wrong kind besides is another test's business
                    with suppress(PersistError, TypeError, AttributeError, KeyError), store.begin() as tx:
                        result = verbs(tx)[name](**arguments)
                        if inspect.isgenerator(result):
                            list(result)
                        returned += 1
    assert len(names) > 120
    assert returned > 2 * len(names)
    unharmed(place)


OF_ONE = {"usage.calls.list": {"instance_id": "x"}, "telemetry.tasks.list": {"workspace_id": "x"}}
"""Lists that on a server are of what the caller names."""


def test_forged_cursors(place: Place, clock: FrozenClock) -> None:
    seen = 0
    with Store.open(place.url, clock=clock) as store, store.read() as tx:
        for name, verb in verbs(tx).items():
            parameters = inspect.signature(verb).parameters
            needed = any(one.default is one.empty for one in parameters.values())
            verb = partial(verb, **OF_ONE.get(name, {}))
            if {"after", "limit"} <= parameters.keys() and not needed and isinstance(page := verb(limit=1), Page | PagedList):
                seen += 1
                _forge(verb, page.cursor or encode_cursor(name, {}, ["x"]))
    assert seen >= 15
    unharmed(place)


def _forge(verb: Callable[..., Any], cursor: str) -> None:
    version, name, digest, key = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    odd: list[Any] = [*PAYLOADS, None, True, 2**62, -(2**63), 2**63, 1e308, -0.5, "", "\0", [], {}, [[]]]
    forged: list[Any] = []
    for place in range(len(key)):
        forged += [[version, name, digest, [*key[:place], value, *key[place + 1 :]]] for value in odd]
    others: list[Any] = [None, [], {}, key * 2, key[:-1], "x"]
    forged += [[version, name, digest, value] for value in others]
    forged += [[2, name, digest, key], [version, "other", digest, key], [version, name, "0", key], [], {}, None, "x"]
    texts = [base64.urlsafe_b64encode(orjson.dumps(one)).rstrip(b"=").decode() for one in forged]
    for text in [*texts, *PAYLOADS, "", "=", "x" * 100_000, cursor + "=", cursor[:-1], f" {cursor}", "é", "\ud800", "\0"]:
        with suppress(InvalidValue):
            assert isinstance(verb(limit=1, after=text), Page | PagedList)


@each("text", [*PAYLOADS, "", "a b", "é", "x" * 64, "a\0b", "1a", "a.b", "a-b"])
def test_a_schema_is_a_plain_name(database_url: str, text: str) -> None:
    if database_url.startswith("postgresql") and text:
        for door in (Store.open, migrate.upgrade, migrate.check, migrate.current):
            with pytest.raises(InvalidValue):
                door(database_url, schema=text)
    with pytest.raises(InvalidValue):
        Settings(schema_name=text)


def test_an_export_is_no_program(place: Place, tmp_path: Path) -> None:
    """Names of tables and columns in a file that is imported are looked up, and never written into a statement."""
    with Store.open(place.url) as store:
        export(store, tmp_path / "out.jsonl")
        header, _, *rest = (tmp_path / "out.jsonl").read_bytes().splitlines(keepends=True)
        for text in PAYLOADS:
            for changed in ({"table": text, "row": {"id": "x"}}, {"table": "chat_sessions", "row": {text: "x"}}):
                lines = [header, orjson.dumps(changed), b"\n", *rest]
                with pytest.raises(InvalidValue):
                    import_(store, io.BytesIO(b"".join(lines)))
            with pytest.raises(PersistError):
                export(store, tmp_path / "other.jsonl", session_id=text)
            with pytest.raises(PersistError):
                prune(store, text, older_than=timedelta(days=1))
    unharmed(place)
