"""What callers stored stands in no error: neither in its text, nor in those it comes from, nor in the log."""

import logging
import re
import sqlite3
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from click.testing import CliRunner
from sqlalchemy import Table, bindparam, create_engine, insert, null, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from persist import Store
from persist.cli import main
from persist.db.dialects.errors import conceal_values, public_text
from persist.db.schema.column_types import FreeText, Json
from persist.db.statements.prepared import Statement
from persist.db.transactions.verb_frame import Verb
from persist.errors import Conflict, InvalidValue, PersistError, StoreCorrupt
from persist.maintenance import doctor, erase
from persist.schema.metadata import metadata
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.otel.scenes import instrumented
from tests.maintenance.erasing_scenes import person, secret_of, selectors
from tests.seeded_databases import with_file
from tests.statemachines.both_databases import Undo
from tests.statemachines.scene import arguments, make, verbs
from tests.statemachines.single_call import work_of

SECRET = "swordfish-4711"


def written(kind: Any) -> Any:
    """A value for a column of text or JSON that has the secret; None for another type."""
    if type(kind) is not Json:
        return SECRET if type(kind) is FreeText else None
    return {"key": SECRET} if kind.shape is not list else [SECRET if kind.of is str else {"key": SECRET}]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        make(store)
        store.switch_events(False)
        yield store


def _own(store: Store, url: str) -> AbstractContextManager[Any]:
    return store.begin()


@contextmanager
def _host(store: Store, url: str) -> Iterator[Any]:
    with create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=NullPool).connect() as connection:
        yield store.join(connection)


def told(error: BaseException, caplog: pytest.LogCaptureFixture) -> str:
    """Everything that a log or a terminal would show."""
    return "".join(traceback.format_exception(error)) + repr(error) + caplog.text


@pytest.mark.parametrize("begin", [_own, _host], ids=["own transaction", "transaction of a host"])
def test_a_refused_row_is_not_shown(
    store: Store, database_url: str, begin: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    refused = 0
    for table in metadata.sorted_tables:
        contents = [column for column in table.columns if written(column.type) is not None]
        needed = next((column for column in table.columns if not column.nullable and column not in contents), None)
        if not contents or needed is None:
            continue
        caplog.clear()
        with pytest.raises(Conflict) as caught, begin(store, database_url) as tx:
            _insert(tx, table, {column.name: written(column.type) for column in contents})
        refused += 1
        assert SECRET not in told(caught.value, caplog), table.name
        assert caught.value.__cause__ is not None
    assert refused > 20


def _insert(tx: Any, table: Table, values: dict[str, Any]) -> None:
    """A row with these values and with NULL in every other column, as a verb."""
    work = work_of(tx)
    rest = {column.name: null() for column in table.columns if column.name not in values}
    given = {name: bindparam(name, type_=table.c[name].type) for name in values}
    with Verb(work, "a test's verb", writes=True):
        work.run(Statement(insert(table).values({**rest, **given}), silent=True), **values)


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("begin", [_own, _host], ids=["own transaction", "transaction of a host"])
def test_a_value_that_a_server_of_another_language_refuses_is_not_shown(
    store: Store, database_url: str, begin: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with psycopg.connect(database_url, autocommit=True) as raw:
        raw.execute(
            """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE 'ungültige Eingabesyntax für Typ integer: »%«', NEW.key USING ERRCODE = '22P02'; END $$"""
        )
        raw.execute("CREATE TRIGGER refuse BEFORE INSERT ON persist.usage_budgets FOR EACH ROW EXECUTE FUNCTION refuse()")
    with pytest.raises(InvalidValue) as caught, begin(store, database_url) as tx:
        tx.usage.budgets.set(f"owner:{SECRET}", "day", 1)
    assert SECRET not in told(caught.value, caplog)
    assert "22P02" in str(caught.value)


def test_text_that_is_not_utf8_is_not_shown(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        make(store)
        store.switch_events(False)
        with sqlite3.connect(tmp_path / "state.db") as raw:
            raw.execute("UPDATE workflow_runs SET trigger_id = CAST(? AS TEXT)", (SECRET.encode() + b"\xff",))
        raw.close()
        with store.read() as tx, pytest.raises(PersistError) as caught, Verb(work_of(tx), "a test's verb", writes=False):
            work_of(tx).connection.execute(text("SELECT trigger_id FROM workflow_runs")).fetchall()
        assert isinstance(caught.value, StoreCorrupt)
        assert SECRET not in told(caught.value, caplog)


def test_what_asyncpg_tells_beside_its_message_is_emptied() -> None:
    """Its errors are made into text anew whenever they are shown, with their DETAIL. They stand below SQLAlchemy's."""
    about = dict.fromkeys(("detail", "hint", "context"), SECRET)
    shown = {"__str__": lambda error: f"{error.args[0]}\nDETAIL:  {error.detail}\n{error.hint}\n{error.context}"}
    refused = type("UniqueViolationError", (Exception,), {"__module__": "asyncpg.exceptions", **about, **shown})("refused")
    vars(refused).update(about)
    error = Conflict("refused")
    error.__cause__ = DBAPIError("INSERT", {"value": SECRET}, refused)
    conceal_values(error)
    assert error.__cause__.orig is refused
    assert SECRET not in "".join(traceback.format_exception(error)) + f"{error.__cause__} {refused}"


def test_an_error_that_another_one_hides_is_emptied_too() -> None:
    """A debugger and some reporters of errors show what was being handled, also behind `from None`."""
    hidden = psycopg.errors.UniqueViolation(f"refused\nDETAIL:  Key (id)=({SECRET}) exists.")
    error = Conflict("refused")
    error.__context__, error.__suppress_context__ = hidden, True
    conceal_values(error)
    assert str(hidden) == "refused"


@each(
    ("state", "message", "shown"),
    [
        (
            "22P02",
            'invalid input syntax for type bigint: "a "secret" of two\nlines"',
            'invalid input syntax for type bigint: "…"',
        ),
        (
            "22P02",
            f"ungültige Eingabesyntax für Typ integer: »{SECRET}«",
            "the text does not have the form of the column's type (SQLSTATE 22P02)",
        ),
        (
            "22P02",
            f"syntaxe en entr?e invalide pour le type bigint : << {SECRET} >>",
            "the text does not have the form of the column's type (SQLSTATE 22P02)",
        ),
        (
            "22P02",
            f"(psycopg.errors.InvalidTextRepresentation) ung?ltige Eingabesyntax f?r Typ integer: >>{SECRET} out of range<<",
            "the text does not have the form of the column's type (SQLSTATE 22P02)",
        ),
        ("22003", f"<< {SECRET} >> value out of range", "the number is out of range (SQLSTATE 22003)"),
        ("22008", f"date hors limites : << {SECRET} out of range >>", "the date or time is out of range (SQLSTATE 22008)"),
        ("22008", 'date/time field value out of range: "2026-99-01"', 'date/time field value out of range: "…"'),
        ("22012", "division by zero", "division by zero"),
        (
            "22003",
            "(psycopg.errors.NumericValueOutOfRange) bigint out of range",
            "(psycopg.errors.NumericValueOutOfRange) bigint out of range",
        ),
        ("22003", f"« {SECRET} » est hors limites", "the number is out of range (SQLSTATE 22003)"),
        ("22023", f"無効な値「{SECRET}」", "the value is not valid (SQLSTATE 22023)"),
        ("22003", f'value "{SECRET}" is out of range', 'value "…" is out of range'),
        ("22P02", 'invalid input syntax for type bigint: "größer"', 'invalid input syntax for type bigint: "…"'),
        ("22000", f"invalid input for query argument $1: '{SECRET}'", 'invalid input for query argument $1: "…"'),
        ("22001", "value too long for type character varying(5)", "value too long for type character varying(5)"),
        ("22021", 'invalid byte sequence for encoding "UTF8": 0xff', 'invalid byte sequence for encoding "UTF8": 0xff'),
        ("23505", 'duplicate key value violates "pk"\nDETAIL:  Key (id)=(x) exists.', 'duplicate key value violates "pk"'),
        ("", "Could not decode to UTF-8 column 'a' with text 'b\nc'", "Could not decode to UTF-8 column 'a'"),
    ],
)
def test_what_a_message_may_show(state: str, message: str, shown: str) -> None:
    assert public_text(message, state) == shown


# A secret that is stored in every text column is in no log, span, metric, error, `repr` or file, whatever is called.


OPERATIONS = [
    ["check"],
    ["doctor"],
    ["doctor", "--json"],
    ["stats"],
    ["events", "status"],
    ["maintain", "--dry-run"],
    ["maintain"],
    ["upgrade"],
    ["doctor", "--fix"],
    ["vacuum"],
]
"""What an operator calls. Commands that are asked for content (show, ls, export, watch) print it."""


class Spoilt(NamedTuple):
    """A database with one of everything, of which every text and JSON column holds the secret in a value that cannot be read."""

    url: str
    ids: Mapping[str, Any]
    """What stands for the names in arguments of verbs."""


@pytest.fixture
def spoilt(database_url: str) -> Spoilt:
    url = with_file(database_url)
    with Store.open(url, clock=FrozenClock()) as store:
        ids = make(store)
        store.switch_events(False)
        with store.begin() as tx:
            spoilt = [_spoil(tx, table, column) for table in metadata.sorted_tables for column in _contents(table)]
        assert sum(spoilt) > 40
    return Spoilt(url, ids)


def _contents(table: Table) -> list[str]:
    return [column.name for column in table.columns if type(column.type) in (FreeText, Json) and not column.primary_key]


def _spoil(tx: Any, table: Table, column: str) -> bool:
    """Put the secret into the column of every row; False if a CHECK refuses it."""
    connection, is_json = work_of(tx).connection, type(table.c[column].type) is Json
    if connection.dialect.name == "sqlite":  # no JSON, or text that is not UTF-8
        schema, value = "main", f"'{{ {SECRET}'" if is_json else f"CAST(x'{SECRET.encode().hex()}ff' AS TEXT)"
    else:
        schema, value = "persist", f"""'[["{SECRET}"]]'""" if is_json else f"'{SECRET}'"
    try:
        with connection.begin_nested():
            connection.execute(text(f"UPDATE {schema}.{table.name} SET {column} = {value}".replace(":", "\\:")))
    except DBAPIError:
        return False
    return True


def test_whatever_is_called(spoilt: Spoilt, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refused = 0
    ids = spoilt.ids
    with Store.open(spoilt.url, clock=FrozenClock()) as store, instrumented(store, statements=True) as collector:
        for verb in verbs():
            for given in (arguments(verb, ids), {**arguments(verb, ids), **dict.fromkeys(_bodies(verb.parameters), SECRET)}):
                caplog.clear()
                try:
                    with store.begin() as tx:
                        verb.call(tx, given)
                        raise Undo
                except Undo:
                    told = ""
                except (PersistError, TypeError) as error:
                    refused += 1
                    told = "".join(traceback.format_exception(error)) + repr(error)
                spans = "".join(f"{span.name} {span.attributes} {span.events} {span.status}" for span in collector.take())
                assert spans
                assert SECRET not in _without_calls(told + caplog.text) + spans, verb.name
        assert "chat.messages.append" in collector.metrics()["db.client.operation.duration"]
        assert SECRET not in str(collector.reader.get_metrics_data())
        assert SECRET not in repr(store) + repr(store.runtime)
    assert refused > 20


def test_the_loggers_of_sqlalchemy_show_no_parameter_and_no_row(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A host that has them show everything sees the statements alone."""
    for name in ("sqlalchemy", "sqlalchemy.engine", "sqlalchemy.pool", "sqlalchemy.dialects", "psycopg", "alembic"):
        caplog.set_level(logging.DEBUG, name)
    secret = secret_of("maria")
    with Store.open(database_url, clock=FrozenClock(), events=True) as store:
        person(store, "maria")
        for session in store.chat.sessions.list(owner="maria").items:
            store.chat.messages.list(session.id)
        doctor(store, fix=True)
        erase(store, **selectors("maria"))
    assert secret not in caplog.text
    assert "SELECT" in caplog.text
    assert not [record for record in caplog.records if secret in str(vars(record))]


@pytest.mark.parametrize("asked", [False, True], ids=["without values", "with values"])
def test_the_log_of_statements_has_no_value_of_any_argument_unless_asked(database_url: str, asked: bool) -> None:
    """Keys, names, ids and the actor too, in one argument of every verb after the other, also of those that fail."""
    logger, kept = logging.getLogger("persist.statements"), _Kept()
    settings = Settings(log_statement_values=asked)
    with Store.open(database_url, clock=FrozenClock(), settings=settings) as store, ExitStack() as stack:
        ids = make(store)
        store.switch_events(True)
        stack.callback(logger.setLevel, logger.level)
        stack.callback(logger.removeHandler, kept)
        logger.setLevel(logging.DEBUG)
        logger.addHandler(kept)
        for verb in verbs():
            given = arguments(verb, ids)
            for name in verb.parameters:
                if type(given.get(name)) in (int, float, bool):
                    continue
                with suppress(Undo, PersistError, TypeError, ValueError), store.begin(actor=SECRET) as tx:
                    verb.call(tx, {**given, name: SECRET})
                    raise Undo
        session = store.chat.sessions.create(agent=SECRET, model={"model_id": SECRET})
        with store.record(session.id) as recorder:
            recorder.feed({"type": "text-start", "id": SECRET})
            recorder.feed({"type": "text-delta", "id": SECRET, "delta": SECRET})
    assert kept.records > 1000
    assert bool(kept.telling) == asked, kept.telling[:3]


class _Kept(logging.Handler):
    """Counts records, and keeps those that tell of the secret in their text or in one of their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.records, self.telling = 0, list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.records += 1
        if SECRET in record.getMessage() + str(vars(record)):
            self.telling.append(record.getMessage())


def _bodies(parameters: Mapping[str, Any]) -> list[str]:
    return [
        name for name in parameters if name in ("content", "context", "data", "entry", "metadata", "parts", "payload", "response")
    ]


def _without_calls(told: str) -> str:
    """Without the source lines of a traceback."""
    return re.sub(r"^    .*$", "", told, flags=re.MULTILINE)


def test_whatever_an_operator_calls(
    spoilt: Spoilt, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for command in OPERATIONS:
        result = CliRunner().invoke(main, [*command, "--url", spoilt.url])
        assert SECRET not in result.output + caplog.text, command
        assert "No such command" not in result.output
        assert "No such option" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), command
    assert not [path for path in temporary.rglob("*") if path.is_file()]
