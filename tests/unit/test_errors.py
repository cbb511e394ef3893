"""Errors: one sentence, their fields, the built-in a caller would catch, and a trip through a process pool."""

import json
import pickle
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from persist import errors
from persist.db.dialects.errors import Errors
from persist.db.dialects.postgres.dialect import DriverError, translate_error
from persist.db.files import check_path
from persist.errors import EventLogSwitched, InvalidValue, PersistError, StoreBusy, Unavailable, shown
from persist.integrations.store_bridge import kind_of
from tests.cases import each

EXAMPLES = [
    errors.NotFound("session", "ses_1"),
    errors.UnknownTenant("tenant", "acme"),
    errors.Conflict("Taken.", constraint="chat_messages.id"),
    errors.BudgetExceeded("owner:maria", "day", 1_500_000, 40_000),
    errors.RecursionLimitExceeded(101, 100),
    errors.TransitionError("workflow run 'run_1'", "succeeded", "failed"),
    errors.RunHeld("run_1", "running", "box", 123, datetime(2026, 1, 2, tzinfo=UTC), None),
    errors.EffectUnknown("run_1", "comment", 1),
    errors.LeaseLost("run_1", 3, "the lease has expired."),
    errors.InvalidValue("parts[0].type", "it is empty."),
    errors.PayloadTooLarge("metadata", 20, 10, advice="Store a reference."),
    errors.StreamProtocolError(3, "text-delta", "no text part is open"),
    errors.NotPermitted("No."),
    errors.ReadOnlyTransaction("ChatSessions.create"),
    errors.TransactionOpen("begin()"),
    errors.TransactionAborted(),
    errors.WrongOwner(),
    errors.StoreForked(),
    errors.StoreInUse(),
    errors.Closed("recorder"),
    errors.UnsupportedEngine("mysql", "not supported."),
    errors.StoreCorrupt("state.db", "not a database"),
    errors.BlobUnreadable("ab" * 32, "there is no such blob"),
    errors.UnreadableRow("workflow_runs", ("run_1",), "context", "the text is no JSON"),
    errors.SchemaOutdated(None, "0001", "persist upgrade"),
    errors.SchemaTooNew("0002", "0001"),
    errors.SchemaUnknown("v2", "0001", "_meta.schema_version"),
    errors.UnmanagedDatabase(["run", "sessions"]),
    errors.CopyUnfinished("persist copy --resumable SRC DST"),
    errors.MigrationFailed("state.db", "0001", "0002", "0002", "boom"),
    errors.StoreBusy(1.5),
    errors.EventLogSwitched(),
    errors.StoreFull("state.db"),
    errors.Unavailable("The server went away", outcome="unknown"),
]


@each("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_its_fields(error: PersistError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.__dict__) == (str(error), error.__dict__)


@each("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_one_readable_line_and_a_built_in(error: PersistError) -> None:
    assert str(error).count("\n") == 0
    assert len(str(error)) > 2
    assert isinstance(error, (LookupError, ValueError, RuntimeError, OSError))


def test_every_error_has_an_example_here() -> None:
    abstract = {"PersistError", "TransactionError", "StoreError", "SchemaError"}
    named = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, PersistError)}
    assert named - abstract == {type(error).__name__ for error in EXAMPLES}


def test_a_path_is_named_with_its_end_however_long_it_is() -> None:
    path = "/".join(["", *["a folder"] * 40, "state.db"])
    assert str(errors.NotFound("SQLite file", path)) == f"There is no SQLite file {path!r}."
    with pytest.raises(errors.InvalidValue, match=r"state\.db'? holds a NUL") as refused:
        check_path("url", path.replace("a folder", "a\0folder") + "/state.db")
    assert refused.value.reason.count("a\\x00folder") == 40


def test_what_no_system_takes_as_a_name_does_not_fill_a_log() -> None:
    said = str(errors.NotFound("session", "x" * 10_000_000 + "end"))
    assert len(said) < 33_000
    assert "…" in said
    assert said.endswith("end'.")


@each("value", ["first " + "x" * 1000 + " last", b"first " + b"x" * 1000 + b" last"])
def test_a_long_value_is_cut_in_the_middle(value: str | bytes) -> None:
    said = shown(value)
    assert len(said) == 201
    assert said.removeprefix("b").startswith("'first x")
    assert said.endswith("x last'")
    assert shown("x" * 198) == repr("x" * 198)


def test_a_value_that_cannot_be_shown_is_named_by_its_type() -> None:
    assert shown(10**5000) == "a value of type int"


@each(
    ("text", "constraint"),
    [
        ('duplicate key value violates unique constraint "pk_chat_sessions_102010"', "pk_chat_sessions"),
        ('insert or update on table "a_1" violates foreign key constraint "fk_a_b_1"', "fk_a_b"),
        ('new row for relation "a_1" violates check constraint "ck_a_1"', "ck_a"),
    ],
)
def test_what_a_node_of_a_cluster_refuses_in_a_copy_is_a_conflict(text: str, constraint: str) -> None:
    """The coordinator calls it an internal error, as it calls others, which are no conflicts."""
    refused = translate_error(DriverError("XX000", text, None, False, False), "app")
    assert isinstance(refused, errors.Conflict)
    assert (refused.constraint, text in str(refused)) == (constraint, True)
    other = translate_error(DriverError("XX000", "cache lookup failed", None, False, False), "app")
    assert type(other) is errors.StoreError


# What integrations say of an error about content: where it is and of which kind, and nothing of the content.


SECRET = "swordfish-4711"


class Inner(BaseModel):
    number: int


class Outer(BaseModel):
    listed: list[Inner] = []
    named: dict[str, int] = {}


def own() -> None:
    raise InvalidValue("state", "the keys 1 and '1' are one key in JSON.")


def foreign() -> None:
    raise ValueError(SECRET)


def deep() -> None:
    raise RecursionError(SECRET)


SAID: dict[str, tuple[Callable[[], Any], str]] = {
    "a value": (lambda: Outer.model_validate({"listed": [{"number": 1}, {"number": SECRET}]}), "int_parsing at [1]"),
    "a field": (lambda: Outer.model_validate({"listed": [{SECRET: 1}]}), "missing at [0].number"),
    "a key": (lambda: Outer.model_validate({"named": {SECRET: SECRET}}), "int_parsing"),
    "many": (
        lambda: Outer.model_validate({"named": dict.fromkeys("abcde", SECRET)}),
        "int_parsing, int_parsing, int_parsing, and 2 more",
    ),
    "a text": (lambda: json.loads(f'["{SECRET}",'), "JSONDecodeError at character 18"),
    "bytes": (lambda: json.loads(f'["{SECRET}'.encode() + b'\xff"]'), "UnicodeDecodeError"),
    "a type": (lambda: json.dumps({SECRET: {1}}), "Object of type set is not JSON serializable"),
    "another type": (lambda: to_jsonable_python(object()), "Unable to serialize unknown type: <class 'object'>"),
    "whatever a validator says": (foreign, "ValueError"),
    "depth": (deep, "it is nested too deeply"),
    "an error of persist": (own, "state: the keys 1 and '1' are one key in JSON"),
}


@each("name", SAID)
def test_what_is_said(name: str) -> None:
    fail, said = SAID[name]
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of every kind
        fail()
    assert kind_of(caught.value) == said


# One word for why an attempt was repeated, and the database's code, from whatever was raised.


class RefusedError(Exception):
    """A driver's error with an SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def caused(error: Exception, by: Any) -> Exception:
    error.__cause__ = by
    return error


ERRORS = Errors("here", lambda error: None, lambda error: True)
ITSELF = Unavailable("gone")
ITSELF.__cause__ = ITSELF


@each(
    ("error", "cause", "code"),
    [
        (caused(StoreBusy(0.0), RefusedError("40001")), "serialization", "40001"),
        (caused(StoreBusy(0.0), caused(ValueError(), RefusedError("40P01"))), "deadlock", "40P01"),
        (caused(StoreBusy(5.0), RefusedError("55P03")), "lock", "55P03"),
        (StoreBusy(1.0), "lock", None),
        (ITSELF, "connection", None),
        (EventLogSwitched(), "event_log_switched", None),
        (sqlite3.OperationalError("x"), "lock", None),
    ],
    ids=["serialization", "deadlock", "lock timeout", "busy", "its own cause", "switched", "driver"],
)
def test_causes_and_codes(error: Exception, cause: str, code: str | None) -> None:
    assert ERRORS.retry_cause(error) == cause
    assert ERRORS.code_of(error) == code
