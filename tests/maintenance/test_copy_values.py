"""Values on the way: hostile ones arrive as they were, foreign ones as the types read them, and impossible ones are named."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persist import Store
from persist.errors import InvalidValue
from persist.maintenance import copy
from tests.cases import each
from tests.maintenance.moving import opened
from tests.maintenance.spoiling import NOT_UTF8
from tests.schema.places import Place

_TEXT = st.text(st.characters(codec=None), max_size=8) | st.text(st.sampled_from('\x00\ud83d\udc00\ufdd0a0"\\/, :'), max_size=12)
_NUMBER = st.sampled_from([0, 0.0, -0.0, 1.0, 1e16, 1e308, -1e17, 5e-324, 0.1, 2**63, 2**64 - 1, -(2**63), 10**18]) | st.floats(
    allow_nan=False, allow_infinity=False
)
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBER | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)
_FLOAT = st.floats(allow_nan=False)
HARD_TEXT = [
    "",
    "\x00",
    "\ud83d",
    "\ufdd0",
    "\ufdd00000",
    "\ufdd0\x00",
    "\ufdd0\ufdd0",
    "\\",
    "\\N",
    "\t\n\r",
    "\\u0000",
    "ab\x00\udc00",
    "é😀",
]


@pytest.fixture
def empty_between(postgres_url: str) -> Callable[[], str]:
    """A function that empties the database between two databases, and gives its URL."""

    def empty() -> str:
        place = Place(postgres_url)
        place.run(*(f"DELETE FROM {place.named(table)}" for table in ("workflow_runs", "executions", "messages")))
        return postgres_url

    return empty


def joined(value: Any) -> Any:
    """As the domain of JSON says it: adjacent halves are one character, and zero has no sign."""
    text = json.dumps(value, sort_keys=True).encode().decode()
    return json.loads(text, parse_float=lambda digits: float(digits) + 0.0)


def bodies(url: str) -> list[Any]:
    with Store.open(url) as store, store.read() as tx:
        return [tx.workflows.executions.output_text(one.id) for one in tx.workflows.executions.list(limit=1000).items[::-1]]


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example empties it
@given(
    documents=st.lists(st.dictionaries(_TEXT, _JSON, max_size=3), min_size=5, max_size=20), floats=st.lists(_FLOAT, max_size=8)
)
def test_whatever_is_stored_comes_back(
    documents: list[dict[str, Any]],
    floats: list[float],
    empty_between: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    first, last = f"sqlite:///{folder / 'first.db'}", f"sqlite:///{folder / 'last.db'}"
    with Store.open(first) as store, store.begin() as tx:
        for number, document in enumerate(documents):
            tx.workflows.runs.create("w", trigger_id="t", current_phase="p", context=document, id=f"run{number}")
    with closing(sqlite3.connect(folder / "first.db")) as raw, raw:
        for number, value in enumerate(floats):
            raw.execute(
                "INSERT INTO messages (id, created_at, role, content, embedding) VALUES (?, ?, 'user', '{}', ?)",
                (f"m{number}", value, bytes(range(number))),
            )
    with opened(first, empty_between(), last) as (source, between, end):
        assert copy(source, between).checksums == copy(between, end).checksums
        for store in (source, between, end):
            found = [store.workflows.runs.get(f"run{number}").context for number in range(len(documents))]
            assert [joined(document) for document in found] == [joined(document) for document in documents]
    kept = [Place(url).ask("SELECT id, created_at, embedding FROM messages ORDER BY id") for url in (first, last)]
    assert kept[0] == kept[1]


def test_text_of_any_kind_comes_back(sqlite_url: str, postgres_url: str, tmp_path: Path) -> None:
    last = f"sqlite:///{tmp_path / 'last.db'}"
    with Store.open(sqlite_url) as store:
        for text in HARD_TEXT:
            with store.begin() as tx:
                run = tx.workflows.executions.start(trigger_type="t", trigger_id="t", skill="s")
                tx.workflows.executions.set_output(run.id, text)
    with opened(sqlite_url, postgres_url, last) as (source, between, end):
        copy(source, between)
        copy(between, end)
    expected = sorted(HARD_TEXT)
    assert [sorted(bodies(url)) for url in (sqlite_url, postgres_url, last)] == [expected] * 3


def insert(url: str, table: str, **values: Any) -> None:
    Store.open(url).close()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw, raw:
        marks = ", ".join("?" * len(values))
        raw.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))


RUN = {"id": "r", "workflow_name": "w", "trigger_id": "t", "current_phase": "p", "started_at": "2026-01-02T03:04:05.678Z"}
RUN |= {"updated_at": "2026-01-02T03:04:05.678Z"}


INSTANTS = [
    ("2026-01-02 03:04:05", "2026-01-02T03:04:05.000Z"),
    ("2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678Z"),
    ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05.000Z"),
    ("2026-01-02", "2026-01-02T00:00:00.000Z"),
    ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ("0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z"),
]
SECONDS = [
    ("2026-01-02 03:04:05", "2026-01-02 03:04:05"),
    ("2026-01-02 03:04:05.25", "2026-01-02 03:04:05.250"),
    ("2026-01-02T03:04:05Z", "2026-01-02 03:04:05"),
]
DOCUMENTS = [
    ('{"b": 1e300, "a": -0.0, "c": [1E2]}', {"b": 1e300, "a": 0.0, "c": [100.0]}),
    ('{"a": 1, "a": 2}', {"a": 2}),
    (' { "a" : "\\ud83d" } ', {"a": "\ud83d"}),
    (b'{"a": 1}', {"a": 1}),
    ("null", None),
    (None, None),
]
NUMBERS = [5, 1.5, 10**18, -1e300]
"""Texts of a column that another program declared so that it turns them into numbers."""


def test_values_of_other_programs(sqlite_url: str, postgres_url: str, tmp_path: Path) -> None:
    Store.open(sqlite_url).close()
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw, raw:
        raw.execute("PRAGMA writable_schema=ON")
        raw.execute("UPDATE sqlite_master SET sql = replace(sql, 'content TEXT', 'content JSON') WHERE name = 'messages'")
    for number, (instant, _) in enumerate(INSTANTS):
        insert(sqlite_url, "workflow_runs", **{**RUN, "id": f"i{number}", "started_at": instant})
    for number, (document, _) in enumerate(DOCUMENTS):
        insert(sqlite_url, "workflow_runs", **{**RUN, "id": f"d{number}", "context": document})
    for number, (seconds, _) in enumerate(SECONDS):
        insert(sqlite_url, "run", id=str(number), started_at=seconds)
    for number, value in enumerate(NUMBERS):
        insert(sqlite_url, "messages", id=str(number), created_at=1.5, role="user", content=value)
    assert {kind for (kind,) in Place(sqlite_url).ask("SELECT typeof(content) FROM messages")} == {"integer", "real"}
    last = f"sqlite:///{tmp_path / 'last.db'}"
    with opened(sqlite_url, postgres_url, last) as (source, between, end):
        copy(source, between)
        copy(between, end)
        with between.read() as tx:
            assert [tx.workflows.runs.get(f"d{number}").context for number in range(len(DOCUMENTS))] == [
                to for _, to in DOCUMENTS
            ]
            found = tx.conversations.messages.get_many([str(number) for number in range(len(NUMBERS))])
            assert [one.content for one in found.values()] == NUMBERS
    place = Place(last)
    assert place.ask("SELECT started_at FROM workflow_runs WHERE id LIKE 'i%' ORDER BY id") == [(to,) for _, to in INSTANTS]
    assert place.ask("SELECT started_at FROM run ORDER BY id") == [(to,) for _, to in SECONDS]
    nulls = Place(postgres_url).ask("SELECT context IS NULL FROM persist.workflow_runs WHERE id LIKE 'd%' ORDER BY id")
    assert nulls == [(document is None,) for document, _ in DOCUMENTS]


REFUSED = [
    ("context", '{"a": NaN}', "not a JSON number"),
    ("context", "{broken", "no JSON"),
    ("context", '{"a": 123456789012345678901}', "64 bits"),
    ("context", "[" * 300 + "]" * 300, "nested deeper"),
    ("context", "[" * 100_000, "nested deeper|no JSON"),
    ("started_at", "yesterday", "'yesterday' is no instant"),
    ("started_at", 5.5, "'5.5' is no instant"),
    ("issue_number", "many", "expected a whole number, found str"),
    ("issue_number", 1.5, "expected a whole number, found float"),
    ("repo", "a\x00b", "NUL"),
    ("repo", b"\xff", "expected text, got bytes"),
    ("repo", NOT_UTF8, "UTF-8"),
]


def test_a_value_that_no_database_keeps_is_named(sqlite_url: str, postgres_url: str) -> None:
    insert(sqlite_url, "workflow_runs", **{**RUN, "id": "before"})
    with opened(sqlite_url, postgres_url) as (source, target):

        @each(("column", "value", "reason"), REFUSED, ids=lambda case: str(case)[:60])
        def refuse(column: str, value: Any, reason: str) -> None:
            if value == NOT_UTF8:
                insert(sqlite_url, "workflow_runs", **RUN)
                Place(sqlite_url).run(f"UPDATE workflow_runs SET {column} = {value} WHERE id = 'r'")
            else:
                insert(sqlite_url, "workflow_runs", **{**RUN, column: value})
            with pytest.raises(InvalidValue, match=reason) as error:
                copy(source, target)
            Place(sqlite_url).run("DELETE FROM workflow_runs WHERE id = 'r'")
            assert error.value.path == f"workflow_runs.{column}"
            assert value == NOT_UTF8 or "id 'r'" in error.value.reason
            assert Place(postgres_url).ask("SELECT count(*) FROM persist.workflow_runs") == [(0,)]

        refuse()


def test_a_number_that_is_none_is_named(sqlite_url: str, postgres_url: str) -> None:
    Place(postgres_url).run("INSERT INTO persist.messages (id, created_at, role, content) VALUES ('m', 'NaN', 'user', '{}')")
    with opened(postgres_url, sqlite_url) as (source, target), pytest.raises(InvalidValue, match=r"messages\.created_at.*NaN"):
        copy(source, target)


def test_between_files_even_the_unreadable_stays_as_it_is(sqlite_url: str, tmp_path: Path) -> None:
    insert(sqlite_url, "workflow_runs", **{**RUN, "context": "{broken", "started_at": "yesterday", "node_statuses": '{"b": 1}'})
    last = f"sqlite:///{tmp_path / 'last.db'}"
    with opened(sqlite_url, last) as (source, target):
        copy(source, target)
    assert Place(last).rows("workflow_runs") == Place(sqlite_url).rows("workflow_runs")
    assert Place(last).ask("SELECT context, started_at, node_statuses FROM workflow_runs") == [
        ("{broken", "yesterday", '{"b": 1}')
    ]


def test_json_is_written_compactly_into_a_file(sqlite_url: str, postgres_url: str) -> None:
    document = {"b": [1, 2.0, 1e300], "a": ": ", "half": "\ud83d", "nul": "\x00"}
    with opened(postgres_url, sqlite_url) as (source, target):
        with source.begin() as tx:
            tx.workflows.runs.create("w", trigger_id="t", current_phase="p", context=document, id="r")
            tx.workflows.runs.merge_scratch("r", {"a": 1, "b": [2, 3]})
        copy(source, target)
        assert target.workflows.runs.get("r").context == document
    assert Place(sqlite_url).ask("SELECT scratch FROM workflow_runs") == [('{"a":1,"b":[2,3]}',)]
