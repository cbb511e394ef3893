"""What persist does not know, columns of its tables and tables `x_…`: copies and exports carry it, the doctor counts it."""

import gc
import io
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persist import Conflict, InvalidValue, Store, StoreCorrupt, upgrade
from persist.cli.moving import as_said, same
from persist.maintenance import adopt, copy, copy_resumably, doctor, export, import_
from persist.testing import FrozenClock
from tests.cases import each
from tests.maintenance.filled import filled
from tests.maintenance.moving import Pair, new_url, opened
from tests.maintenance.test_import_lines import Lines
from tests.schema.places import Place
from tests.seeded_databases import with_file

ODD = 'a "quoted" %s näme; DROP TABLE chat_sessions; --'
TYPES = {"sqlite": ("INTEGER", "REAL", "TEXT", "BLOB"), "postgres": ("BIGINT", "DOUBLE PRECISION", "TEXT", "BYTEA")}
BYTES = {"sqlite": "x'00ff'", "postgres": "'\\x00ff'::bytea"}
NAMES = ("colour", ODD, "select", "Größe", " ", "'", "new\nline", "%(id)s", "x" * 63)
VALUES: tuple[tuple[int, str], ...] = ((0, "9223372036854775807"), (0, "-9223372036854775808"), (1, "0.1"), (2, "''"))
GUARDED = ("bindings", "execution", "agents", "run", "workflow_runs", "agent_tags", "messages", "progressions", "event_heads")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _add(place: Place, table: str, name: str, type: str, value: str) -> None:
    place.run(
        f"ALTER TABLE {place.named(table)} ADD COLUMN {_quoted(name)} {type}",
        f"UPDATE {place.named(table)} SET {_quoted(name)} = {value}",
    )


def _with_unknown(url: str) -> dict[str, int]:
    """Columns of odd names and great values in tables of several domains, and tables of a host's. Returns what is carried."""
    place = Place(url)
    kind = "postgres" if place.is_postgres else "sqlite"
    types, counts = TYPES[kind], {}
    for number, name in enumerate(NAMES):
        at, value = VALUES[number % len(VALUES)]
        _add(place, "chat_sessions", name, types[at], value)
        ((counts[f"chat_sessions.{name}"],),) = place.ask(f"SELECT count(*) FROM {place.named('chat_sessions')}")
    for table in GUARDED:
        _add(place, table, "raw", types[3], BYTES[kind])
        ((counts[f"{table}.raw"],),) = place.ask(f"SELECT count(*) FROM {place.named(table)}")
    place.run(
        f"ALTER TABLE {place.named('chat_sessions')} ADD COLUMN empty TEXT",
        f"CREATE TABLE {place.named('x_notes')} (number {types[0]}, {_quoted(ODD)} TEXT, raw {types[3]})",
        f"INSERT INTO {place.named('x_notes')} VALUES (7, 'sev''en\n', {BYTES[kind]}), (NULL, NULL, NULL), (7, '﷐', NULL)",
        f"CREATE TABLE {place.named('x_empty')} (id TEXT)",
        f"CREATE TABLE {place.named('invoices')} (id TEXT)",
    )
    return {name: count for name, count in counts.items() if count} | {"x_empty": 0, "x_notes": 3}


def _exported(store: Store, **how: Any) -> Lines:
    stream = io.BytesIO()
    export(store, stream, **how)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def _same(lines: Lines) -> list[str]:
    """What an export says of what persist does not know, but for declared types and the order of rows."""
    said = []
    for one in lines[0]["unknown"]:
        columns = sorted((column["name"], column["kind"], column["values"]) for column in one["columns"])
        said.append([one["table"], one["rows"], columns])
    return sorted(json.dumps(line, sort_keys=True) for line in [*said, *(line for line in lines[1:-1] if "unknown" in line)])


def by_copy(source: Store, url: str) -> Any:
    with opened(url) as (target,):
        report = copy(source, target)
    assert (report.left_unknown, report.left_out) == ({}, ("invoices",))
    return report


def by_lines(source: Store, url: str) -> Any:
    stream = io.BytesIO()
    written = export(source, stream)
    stream.seek(0)
    with opened(url) as (target,):
        read = import_(target, stream)
    assert (read.carried, read.left_unknown) == (written.carried, {})
    return read


WAYS: dict[str, Callable[[Store, str], Any]] = {"copy": by_copy, "steps": copy_resumably, "lines": by_lines}


@pytest.mark.parametrize("way", ["copy", "lines"])
def test_it_is_carried_there_and_back(pair: Pair, tmp_path: Path, clock: FrozenClock, way: str) -> None:
    filled(pair[0], clock)
    carried = _with_unknown(pair[0])
    back = f"sqlite:///{tmp_path / 'back.db'}"
    first_way = WAYS["steps" if way == "copy" and pair[0].startswith("sqlite") else way]
    with opened(pair[0]) as (source,):
        assert first_way(source, pair[1]).carried == carried
        with opened(pair[1]) as (target,):
            Place(pair[1]).run(f"CREATE TABLE {Place(pair[1]).named('invoices')} (id TEXT)")
            assert WAYS[way](target, back).carried == carried
        with opened(pair[1], back) as (target, end):
            first, second, last = map(_exported, (source, target, end))
            assert _same(first) == _same(second) == _same(last)
            assert first[0]["version"] == 2
            found = {one.subject: one.message for one in doctor(end) if one.code == "column_unknown"}
    assert found["column bindings.raw"].endswith(f"It holds {carried['bindings.raw']} values.")
    assert found[f"column chat_sessions.{ODD}"].endswith(f"It holds {carried['chat_sessions.colour']} values.")
    assert found.get("column chat_sessions.empty", "It holds 0 values.").endswith("It holds 0 values.")


_NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
_CELLS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=20),
)


@settings(max_examples=6)
@given(name=_NAMES, cells=st.lists(_CELLS, min_size=2, max_size=2), rows=st.lists(st.tuples(_CELLS, _CELLS), max_size=4))
def test_any_name_and_any_value_of_a_file_comes_back(
    tmp_path_factory: pytest.TempPathFactory, name: str, cells: list[Any], rows: list[tuple[Any, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    urls = [f"sqlite:///{(folder / file).as_posix()}" for file in ("source.db", "target.db")]
    with Store.open(with_file(urls[0])) as store:
        ids = [store.chat.sessions.create(agent="build", model={}).id for _ in cells]
    column = "x" + name
    with closing(sqlite3.connect(folder / "source.db")) as raw, raw:
        raw.execute(f"ALTER TABLE chat_sessions ADD COLUMN {_quoted(column)}")
        raw.executemany(f"UPDATE chat_sessions SET {_quoted(column)} = ? WHERE id = ?", list(zip(cells, ids, strict=True)))
        raw.execute(f"CREATE TABLE {_quoted('x_' + name)} ({_quoted(column)}, {_quoted('y')})")
        raw.executemany(f"INSERT INTO {_quoted('x_' + name)} VALUES (?, ?)", rows)
    stream = io.BytesIO()
    with opened(*urls) as (source, target):
        export(source, stream)
        import_(target, io.BytesIO(stream.getvalue()))
    with closing(sqlite3.connect(folder / "source.db")) as one, closing(sqlite3.connect(folder / "target.db")) as two:
        cell = _quoted(column) if any(cell is not None for cell in cells) else "NULL"
        for query in (f"SELECT id, {cell} FROM chat_sessions ORDER BY id", f"SELECT * FROM {_quoted('x_' + name)}"):
            assert list(map(repr, one.execute(query))) == list(map(repr, two.execute(query)))


def test_a_session_takes_what_is_of_its_own_rows_along(pair: Pair) -> None:
    with opened(pair[0]) as (source,):
        ids = [source.chat.sessions.create(agent="build", model={}).id for _ in range(2)]
        for id in ids:
            source.chat.messages.append(id, role="user", parts=[{"type": "text", "text": "Hello"}])
    place = Place(pair[0])
    for table in ("chat_sessions", "chat_messages", "workflow_runs"):
        place.run(f"ALTER TABLE {place.named(table)} ADD COLUMN note TEXT")
    place.run(
        f"UPDATE {place.named('chat_sessions')} SET note = 'of ' || id",
        f"UPDATE {place.named('chat_messages')} SET note = 'of ' || session_id WHERE session_id = '{ids[1]}'",
        f"CREATE TABLE {place.named('x_notes')} (note TEXT)",
        f"INSERT INTO {place.named('x_notes')} VALUES ('of nobody')",
    )
    with opened(*pair) as (source, target):
        for id, carried in zip(ids, ({"chat_sessions.note": 1}, {"chat_messages.note": 1, "chat_sessions.note": 1}), strict=True):
            stream = io.BytesIO()
            assert export(source, stream, session_id=id).carried == carried
            assert import_(target, io.BytesIO(stream.getvalue())).carried == carried
    there = Place(pair[1])
    assert sorted(there.ask(f"SELECT id, note FROM {there.named('chat_sessions')}")) == sorted((id, f"of {id}") for id in ids)
    assert there.ask(f"SELECT note FROM {there.named('chat_messages')} WHERE note IS NOT NULL") == [(f"of {ids[1]}",)]


def test_rows_that_were_there_have_to_have_the_same(pair: Pair, clock: FrozenClock) -> None:
    for url in pair:
        with Store.open(url, clock=clock) as store:
            store.chat.prompts.put("You are terse.")
    for url in pair:
        place = Place(url)
        place.run(f"ALTER TABLE {place.named('system_prompts')} ADD COLUMN note TEXT")
    there = Place(pair[1])
    Place(pair[0]).run(f"UPDATE {Place(pair[0]).named('system_prompts')} SET note = 'mine'")
    with opened(*pair) as (source, target):
        stream = io.BytesIO()
        export(source, stream)
        import_(target, io.BytesIO(stream.getvalue()))  # it lacked it
        import_(target, io.BytesIO(stream.getvalue()))  # it is the same
        there.run(f"UPDATE {there.named('system_prompts')} SET note = 'yours'")
        with pytest.raises(Conflict, match="has another value in 'note'"):
            import_(target, io.BytesIO(stream.getvalue()))
        assert import_(target, io.BytesIO(stream.getvalue()), leave_unknown=True).left_unknown == {"system_prompts.note": 1}
    assert there.ask(f"SELECT note FROM {there.named('system_prompts')}") == [("yours",)]


def test_they_come_into_a_database_that_logs_events(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)
    with opened(*pair) as (source, target):
        source.switch_events(False)
        target.switch_events(True)
        target.chat.sessions.create(agent="build", model={})
        _add(Place(pair[0]), "chat_sessions", "note", "TEXT", "'mine'")
        _add(Place(pair[0]), "bindings", "note", "TEXT", "'mine'")
        _add(Place(pair[0]), "event_heads", "note", "TEXT", "'mine'")
        stream = io.BytesIO()
        report = export(source, stream, session_id=source.chat.sessions.list().items[0].id)
        found = import_(target, io.BytesIO(stream.getvalue()))
        assert found.carried == report.carried == {"chat_sessions.note": 1}
    assert Place(pair[1]).ask(f"SELECT count(note) FROM {Place(pair[1]).named('chat_sessions')}") == [(1,)]


def test_a_table_of_a_host_is_filled_if_it_has_no_rows(pair: Pair) -> None:
    for url in pair:
        Store.open(url).close()
        Place(url).run(f"CREATE TABLE {Place(url).named('x_notes')} (note TEXT NOT NULL)")
    Place(pair[0]).run(f"INSERT INTO {Place(pair[0]).named('x_notes')} VALUES ('mine')")
    stream = io.BytesIO()
    with opened(*pair) as (source, target):
        export(source, stream)
        import_(target, io.BytesIO(stream.getvalue()))
        with pytest.raises(Conflict, match="'x_notes' with rows"):
            import_(target, io.BytesIO(stream.getvalue()))
    assert Place(pair[1]).ask(f"SELECT note FROM {Place(pair[1]).named('x_notes')}") == [("mine",)]


LOST: dict[str, tuple[str, str, str]] = {
    "numbers and text": ("sqlite", "mixed", "mixed = CASE agent WHEN 'build' THEN 1 ELSE 'two' END"),
    "a name that is too long": ("sqlite", "m" * 64, f"{'m' * 64} = 1"),
    "no number": ("postgres", "mixed DOUBLE PRECISION", "mixed = CASE agent WHEN 'build' THEN 1 ELSE 'NaN'::float8 END"),
    "names that are one in a file": ("postgres", 'mixed TEXT, ADD COLUMN "Mixed" TEXT', "mixed = 'a', \"Mixed\" = 'b'"),
}


@each("what", LOST)
def test_what_a_database_cannot_have_is_refused_by_name(
    tmp_path: Path, new_postgres_database: Callable[[], str], what: str
) -> None:
    file, server = f"sqlite:///{(tmp_path / f'{what}.db').as_posix()}", new_postgres_database()
    kind, column, value = LOST[what]
    urls = (file, server) if kind == "sqlite" else (server, file)
    with opened(*urls) as (store, target):
        for agent in ("build", "plan"):
            store.chat.sessions.create(agent=agent, model={})
        sessions = Place(urls[0]).named("chat_sessions")
        Place(urls[0]).run(f"ALTER TABLE {sessions} ADD COLUMN {column}", f"UPDATE {sessions} SET {value}")
        ways: list[Callable[[], object]] = [lambda: copy(store, target), lambda: copy_resumably(store, urls[1])]
        for way in ways:
            with pytest.raises(InvalidValue, match=r"chat_sessions\.\w+' \(2 values\).*--leave-unknown"):
                way()
        stream = io.BytesIO()
        carried = export(store, stream).carried
        with pytest.raises(InvalidValue, match=r"chat_sessions\.\w+' \(2 values\).*--leave-unknown"):
            import_(target, io.BytesIO(stream.getvalue()))
        assert not target.chat.sessions.list().items
        with Store.open("sqlite:///:memory:") as memory:
            copy(store, memory, leave_unknown=kind == "postgres")
        assert import_(target, io.BytesIO(stream.getvalue()), leave_unknown=True).left_unknown == carried
        assert len(target.chat.sessions.list().items) == 2


ADD = "ALTER TABLE {0} ADD COLUMN colour "
ONCE = "CREATE UNIQUE INDEX once ON {0} (colour)"
RULES: dict[str, tuple[tuple[str, ...], str | None]] = {
    "a default": ((ADD + "TEXT DEFAULT 'new'",), None),
    "no NULL": ((ADD + "TEXT NOT NULL DEFAULT ''",), "has to have a value"),
    "no NULL and no default": ((ADD + "TEXT NOT NULL DEFAULT ''", "ALTER TABLE {0} ALTER COLUMN colour DROP DEFAULT"), ""),
    "each value once": ((ADD + "TEXT", ONCE), "It says: "),
    "a check": ((ADD + "TEXT CHECK (colour <> 'red')",), "It says: "),
    "another type": ((ADD + "INTEGER CHECK (colour IS NULL OR colour < 7)",), ""),
    "computed": ((ADD + "TEXT GENERATED ALWAYS AS ('red') STORED",), ""),
}


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", TYPES)
def test_a_column_that_was_there_takes_the_same_or_is_refused_by_name(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    source_url = f"sqlite:///{(tmp_path / 'source.db').as_posix()}"
    with opened(source_url) as (source,):
        ids = sorted(source.chat.sessions.create(agent="build", model={}).id for _ in range(3))
        _add(Place(source_url), "chat_sessions", "colour", "TEXT", f"CASE id WHEN '{ids[2]}' THEN NULL ELSE 'red' END")
        stream = io.BytesIO()
        export(source, stream)

        def copied(url: str) -> None:
            with opened(url) as (target,):
                copy(source, target)

        def imported(url: str) -> None:
            with opened(url) as (target,):
                import_(target, io.BytesIO(stream.getvalue()))

        def merged(url: str) -> None:
            with opened(url) as (target,):
                target.conversations.sessions.create(user="maria")
            imported(url)

        ways: list[Callable[[str], object]] = [copied, partial(copy_resumably, source), imported, merged]
        for (rule, (statements, refusal)), (number, way) in product(RULES.items(), enumerate(ways)):
            if kind == "sqlite" and (rule == "no NULL and no default"):
                continue  # no file gets such a column later on
            url = new_url(request, kind, tmp_path, f"{rule} {number}.db")
            with opened(url):
                sessions = Place(url).named("chat_sessions")
            sql = [one.format(sessions).replace("STORED", "STORED" if kind == "postgres" else "") for one in statements]
            Place(url).run(*sql)
            why = "gives each new row a default" if rule == "a default" and way is merged else refusal
            if why is None:
                way(url)
                assert Place(url).ask(f"SELECT colour FROM {sessions} ORDER BY id") == [("red",), ("red",), (None,)], rule
            else:
                with pytest.raises(InvalidValue, match=rf"chat_sessions\.colour' \(2 values\)\..*{why}.*--leave-unknown"):
                    way(url)
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psycopg")] == []


def test_text_that_is_not_utf8_is_refused_by_name(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        store.chat.sessions.create(agent="build", model={})
        Place(sqlite_url).run(
            "ALTER TABLE chat_sessions ADD COLUMN note TEXT", "UPDATE chat_sessions SET note = CAST(x'ff41' AS TEXT)"
        )
        with pytest.raises(InvalidValue, match=r"chat_sessions\.note: a row holds text that is not UTF-8\. .*--leave-unknown"):
            export(store, io.BytesIO())
        assert export(store, io.BytesIO(), leave_unknown=True).left_unknown == {"chat_sessions.note": 1}


def _written(lines: Lines) -> bytes:
    """The lines with an end that fits their rows."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
    return body + json.dumps({"end": {**lines[-1]["end"], "checksum": sha256(body).hexdigest()}}).encode() + b"\n"


def _column(**values: Any) -> list[dict[str, Any]]:
    return [{"name": "note", "kind": "text", "values": 1, "declared": None, **values}]


def _table(**values: Any) -> list[dict[str, Any]]:
    return [{"table": "chat_sessions", "rows": 0, "columns": _column(), **values}]


HEADERS: dict[str, tuple[Any, str]] = {
    "no list": ({}, "expected a list"),
    "no table": ([None], "there is no table None"),
    "an unknown table": (_table(table="tables"), "there is no table 'tables'"),
    "no rows": (_table(rows=None), "a number of rows"),
    "no name": (_table(columns=_column(name=None)), "expected the name"),
    "no kind": (_table(columns=_column(kind=None)), "expected the name"),
    "another kind": (_table(columns=_column(kind=["text"])), "expected the name"),
    "a type that is none": (_table(columns=_column(declared=5)), "expected the name"),
    "a column twice": (_table(columns=_column() * 2), "a column twice"),
    "the key": (_table(columns=_column(name="id")), "a column twice"),
    "a table twice": (_table() * 2, "names a table twice"),
    "a column of persist's": (_table(columns=_column(name="Agent")), "chat_sessions.Agent' (1 value)"),
    "nothing": (None, "does not say that 'chat_sessions' has"),
}
LINES: dict[str, tuple[Any, str]] = {
    "no table": ({"unknown": {"id": "ses_1", "note": "mine"}}, "expected"),
    "nothing": ({"table": "chat_sessions", "unknown": None}, "expected"),
    "no values": ({"table": "chat_sessions", "unknown": {}}, "expected"),
    "no key": ({"table": "chat_sessions", "unknown": {"note": "mine"}}, "a value for each of 'id', 'note'"),
    "a key that is none": ({"table": "chat_sessions", "unknown": {"id": 0.5, "note": "mine"}}, "none of those"),
    "another column": ({"table": "chat_sessions", "unknown": {"id": "ses_1", "colour": "red"}}, "a value for each"),
    "a number for text": ({"table": "chat_sessions", "unknown": {"id": "ses_1", "note": 1}}, "note: the value is none of those"),
    "a NUL": ({"table": "chat_sessions", "unknown": {"id": "ses_1", "note": "a\0"}}, "note: the value is none of those"),
    "an object": ({"table": "chat_sessions", "unknown": {"id": "ses_1", "note": {"a": 1}}}, "found an object"),
    "no such row": ({"table": "chat_sessions", "unknown": {"id": "ses_2", "note": "mine"}}, "gives back other values"),
}


@pytest.fixture
def exported(tmp_path: Path) -> Lines:
    """An export of one session with a note."""
    url = f"sqlite:///{(tmp_path / 'exported.db').as_posix()}"
    with Store.open(url) as store:
        store.chat.sessions.create(agent="build", model={}, id="ses_1")
        _add(Place(url), "chat_sessions", "note", "TEXT", "'mine'")
        lines = _exported(store)
    assert lines[-2] == {"table": "chat_sessions", "unknown": {"id": "ses_1", "note": "mine"}}
    return lines


@pytest.mark.one_database
def test_a_wrong_header_or_line_is_named_and_nothing_is_written(store: Store, url: str, exported: Lines) -> None:
    before = Place(url).catalog()
    head, body = exported[0], exported[1:]
    wrong = {f"header: {name}": ([head | {"unknown": given}, *body], said) for name, (given, said) in HEADERS.items()}
    wrong |= {f"line: {name}": ([head, *body[:-2], given, body[-1]], said) for name, (given, said) in LINES.items()}
    wrong["a row after them"] = [head, *body[:-1], body[-3], body[-1]], 'expected {"table": …, "unknown": {…}}'

    @each("change", wrong)
    def refused(change: str) -> None:
        lines, said = wrong[change]
        with pytest.raises((InvalidValue, StoreCorrupt), match=re.escape(said)):
            import_(store, io.BytesIO(_written(lines)))
        assert not store.chat.sessions.list().items

    refused()
    assert Place(url).catalog() == before


@each("declared", ["mood", "text; DROP SCHEMA persist CASCADE; --", "))", "int(1"])
def test_a_type_that_the_server_has_not_is_that_of_what_is_there(
    new_postgres_database: Callable[[], str], exported: Lines, declared: str
) -> None:
    postgres_url = new_postgres_database()
    exported[0]["unknown"] = _table(columns=_column(declared=declared))
    with Store.open(postgres_url) as store:
        import_(store, io.BytesIO(_written(exported)))
    assert Place(postgres_url).ask("SELECT note, pg_typeof(note)::text FROM persist.chat_sessions") == [("mine", "text")]


def test_an_export_without_any_is_of_the_first_version(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        lines = _exported(store)
    assert (lines[0]["version"], "unknown" in lines[0]) == (1, False)


def test_what_a_database_computes_is_named_and_nothing_is_said_to_be_the_same(pair: Pair, clock: FrozenClock) -> None:
    filled(pair[0], clock)
    for place in map(Place, pair):
        kind = "STORED" if place.is_postgres else "VIRTUAL"
        with opened(place.url):
            named = place.named("chat_sessions")
        place.run(f"ALTER TABLE {named} ADD COLUMN twice TEXT GENERATED ALWAYS AS (agent || agent) {kind}")
    with opened(*pair) as (source, target):
        whole, part = (
            export(source, io.BytesIO()),
            export(source, io.BytesIO(), session_id=source.chat.sessions.list().items[0].id),
        )
        assert whole.computed == part.computed == ("chat_sessions.twice",)
        report = copy(source, target, scopes={})
        assert target.chat.sessions.list().items
    assert as_said(report)["computed"] == ["chat_sessions.twice"]
    assert same(report, "all is the same") != "all is the same" == same(replace(report, computed=()), "all is the same")
    assert place.ask(f"SELECT count(*) FROM {named} WHERE twice IS NULL OR twice <> agent || agent") == [(0,)]


def test_a_server_is_copied_to_a_server_with_its_own_types(postgres_url: str) -> None:
    with Store.open(postgres_url) as server:
        session = server.chat.sessions.create(agent="build", model={})
        with psycopg.connect(postgres_url, autocommit=True) as raw:
            raw.execute("ALTER TABLE persist.chat_sessions ADD COLUMN seen timestamptz, ADD COLUMN tags text[]")
            raw.execute("UPDATE persist.chat_sessions SET seen = '2026-01-02 03:04:05.678901+00', tags = '{a,b}'")
        upgrade(postgres_url, schema="other")
        with Store.open(postgres_url, schema="other") as other:
            assert copy(server, other).carried == {"chat_sessions.seen": 1, "chat_sessions.tags": 1}
        with psycopg.connect(postgres_url) as raw:
            query = "SELECT id, seen, tags FROM {}.chat_sessions"
            assert raw.execute(query.format("other")).fetchall() == raw.execute(query.format("persist")).fetchall()
            assert raw.execute(query.format("other")).fetchall()[0][0] == session.id


def test_adopting_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "tags.db"
    url = f"sqlite:///{path.as_posix()}"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(
            "CREATE TABLE agent_tags (kind TEXT NOT NULL, value TEXT NOT NULL, first_seen INTEGER NOT NULL,"
            " last_seen INTEGER NOT NULL, colour TEXT, PRIMARY KEY (kind, value))"
        )
        raw.execute("INSERT INTO agent_tags VALUES ('repo', 'o/r', 1, 1, 'red'), ('repo', 'o/s', 1, 1, NULL)")
        raw.execute("CREATE TABLE plays (id TEXT)")
        raw.execute("INSERT INTO plays VALUES ('one'), ('two')")
    found = {notice.subject: notice.count for notice in adopt(url).notices if "does not know" in notice.message}
    assert found == {"agent_tags.colour": 1, "plays": 2}
