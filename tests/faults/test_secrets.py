"""A secret that is stored in every text column is in no log, span, metric, error, `repr` or file, whatever is called."""

import logging
import re
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from sqlalchemy import Table, text
from sqlalchemy.exc import DBAPIError

from persist import Store
from persist.cli import main
from persist.db.schema.column_types import FreeText, Json
from persist.errors import PersistError
from persist.maintenance import doctor, erase
from persist.schema.metadata import metadata
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.contract.otel.scenes import instrumented
from tests.maintenance.erasing_scenes import person, secret_of, selectors
from tests.seeded_databases import with_file
from tests.statemachines.both_databases import Undo
from tests.statemachines.scene import arguments, make, verbs
from tests.statemachines.single_call import work_of

SECRET = "swordfish-4711"
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
