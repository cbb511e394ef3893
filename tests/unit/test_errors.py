"""Errors: one sentence, their fields, the built-in a caller would catch, and a trip through a process pool."""

import pickle

import pytest

from persist import errors
from persist.errors import PersistError

EXAMPLES = [
    errors.NotFound("session", "ses_1"),
    errors.Conflict("Taken.", constraint="chat_messages.id"),
    errors.RecursionLimitExceeded(101, 100),
    errors.TransitionError("workflow run 'run_1'", "succeeded", "failed"),
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
    errors.UnreadableRow("workflow_runs", ("run_1",), "context", "the text is no JSON"),
    errors.SchemaOutdated(None, "0001", "persist upgrade"),
    errors.SchemaTooNew("0002", "0001"),
    errors.UnmanagedDatabase(["run", "sessions"]),
    errors.MigrationFailed("state.db", "0001", "0002", "0002", "boom"),
    errors.StoreBusy(1.5),
    errors.EventLogSwitched(),
    errors.StoreFull("state.db"),
    errors.Unavailable("The server went away", outcome="unknown"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_its_fields(error: PersistError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.__dict__) == (str(error), error.__dict__)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_one_readable_line_and_a_built_in(error: PersistError) -> None:
    assert str(error).count("\n") == 0
    assert len(str(error)) > 2
    assert isinstance(error, (LookupError, ValueError, RuntimeError, OSError))


def test_every_error_has_an_example_here() -> None:
    abstract = {"PersistError", "TransactionError", "StoreError", "SchemaError"}
    named = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, PersistError)}
    assert named - abstract == {type(error).__name__ for error in EXAMPLES}
