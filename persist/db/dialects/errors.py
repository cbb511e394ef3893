"""Translates the errors of drivers and of SQLAlchemy into persist's errors."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exc

from persist.db.connections import ONLY_INSIDE_RUN_SYNC
from persist.errors import (
    Closed,
    Conflict,
    EventLogSwitched,
    InvalidValue,
    PersistError,
    ReadOnlyTransaction,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    Unavailable,
)

# Postgres tells the row that it refused in the DETAIL of an error, and the line of JSON that it was reading in its CONTEXT.
# SQLAlchemy adds the parameters of the statement. SQLite's driver adds the text that is not UTF-8. The errors keep their class,
# their SQLSTATE and the first line of their message; a debugger finds the rest in psycopg's `diag`. What a server says of a
# refused value is replaced by what its SQLSTATE says, unless it begins as English does: only there it is known how a value is
# quoted. A database without an encoding of its own spells other languages in ASCII, too, with quotes such as << and >>.

_DRIVERS = ("psycopg.", "asyncpg.", "sqlite3", "sqlalchemy.dialects.")
_NOT_UTF8 = re.compile(r"(Could not decode to UTF-8 column '[^']*') with text .*", re.DOTALL)
_QUOTED = re.compile("[\"'].*[\"']", re.DOTALL)  # asyncpg quotes values as Python does
_ENGLISH = re.compile(
    r"(?:\([\w.]+\) )?"  # the class of the error, as SQLAlchemy has it
    r"(?:(?:invalid|value|cannot|malformed|unterminated|division by) |[\w/ ]+ (?:out of range|overflow|must be|must not)\b)"
)
_BAD_VALUE, _BAD_ENCODING = "22", ("22021", "22P05")


_REFUSED = {
    "22001": "the text is too long for its column",
    "22003": "the number is out of range",
    "22007": "the text is no date or time",
    "22008": "the date or time is out of range",
    "22P02": "the text does not have the form of the column's type",
}
"""By SQLSTATE, why a server refuses a value."""


def refused_write(text: str, constraint: str | None) -> Conflict:
    """The error of a write that a constraint of the database refuses, which says so by this text."""
    return Conflict(f"The database refuses the write: {text}.", constraint=constraint)


def public_text(text: str, state: str = "") -> str:
    """The first line of a driver's message, without a value of the caller's. `state`: the SQLSTATE, if there is one."""
    if state.startswith(_BAD_VALUE) and state not in _BAD_ENCODING:
        text = _QUOTED.sub('""', text)  # "invalid input syntax for type bigint", and then the value
        if not (text.isascii() and _ENGLISH.match(text)):  # another language may have quoted it in its own way
            text = f"{_REFUSED.get(state, 'the value is not valid')} (SQLSTATE {state})"
        text = text.replace('""', '"…"')
    return _NOT_UTF8.sub(r"\1", text.strip()).partition("\n")[0]


def conceal_values(error: BaseException) -> None:
    """Remove stored values from the messages of a driver's error and of those that it comes from, which stay the same objects."""
    for one in _chain(error):
        if isinstance(one, exc.StatementError):
            one.hide_parameters = True
        elif not type(one).__module__.startswith(_DRIVERS):
            continue
        one.args = tuple(public_text(text, _state_of(one)) if isinstance(text, str) else text for text in one.args)
        if type(one).__module__.startswith("asyncpg."):  # whose text is made of these
            vars(one).update(dict.fromkeys(("detail", "hint", "context"), None))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[Any] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__, getattr(one, "orig", None)]


def _state_of(error: BaseException) -> str:
    return str(getattr(getattr(error, "orig", None) or error, "sqlstate", None) or "")


_POOL_TIMEOUT = 30.0
"""Seconds that a QueuePool of SQLAlchemy waits for a connection by default; persist's own engines leave it at that."""


_CAUSES = {"40001": "serialization", "40P01": "deadlock"}
"""By SQLSTATE; whatever else is retried waited for a lock, or lost its connection."""

READ_ONLY = "25006"
"""The SQLSTATE of a write in a transaction that reads only: persist began it so, or the server takes no writes."""

_BEING_RESTORED = frozenset(("3D000", "3F000", "42P01", "42703", "42P10"))
"""SQLSTATEs of a database, schema, table, column or key that is missing, as while a backup is restored under who had it open."""

_NO_FILE = ("SQLITE_CANTOPEN", "SQLITE_READONLY")
"""What SQLite says of the file of a store that was opened for writing, once the disk or the descriptors are gone."""


def _originals(error: BaseException | None) -> Iterator[Any]:
    """The driver's errors, or others, that an error comes from, but for the sixth: an error may be its own cause."""
    for _ in range(5):
        if error is not None:
            yield getattr(error, "orig", None) or error
            error = error.__cause__


@dataclass(frozen=True, eq=False, slots=True)
class Errors:
    """The errors of one database, which is called `where`."""

    where: str
    translate_driver_error: Callable[[BaseException], PersistError | None]
    """Translates an error that the driver raised into a PersistError; None for any other error."""
    retryable: Callable[[PersistError], bool]
    """Whether a retry may succeed: after StoreBusy, and on Postgres after Unavailable that rolled back."""
    tells_rollback: Callable[[BaseException], bool] = lambda _: False
    """Whether a driver's error that COMMIT met is the server's word that it has rolled back, also if the connection is gone."""

    def retry_cause(self, error: BaseException | None) -> str:
        """Return one word for what made another attempt necessary, from the error or from what it was raised from."""
        for original in _originals(error):
            if (state := getattr(original, "sqlstate", None)) in _CAUSES:
                return _CAUSES[state]
        if isinstance(error, EventLogSwitched):
            return "event_log_switched"
        return "connection" if isinstance(error, Unavailable) else "lock"

    def code_of(self, error: BaseException | None) -> str | None:
        """Return the database's own code, from the error or from what it was raised from: an SQLSTATE, or SQLite's name."""
        for original in _originals(error):
            code = getattr(original, "sqlstate", None) or getattr(original, "sqlite_errorname", None)
            if isinstance(code, str):
                return code
        return None

    def is_outage(self, error: BaseException) -> bool:
        """Whether who waits can go on later without doing anything: the one rule for workers, followers and watchers."""
        if isinstance(error, StoreBusy | StoreFull | Unavailable):
            return True
        code = self.code_of(error) or ""
        return code in _BEING_RESTORED or (code.startswith(_NO_FILE) and not isinstance(error, ReadOnlyTransaction))

    def refuses_writes(self, error: BaseException) -> bool:
        return self.code_of(error) == READ_ONLY

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise what a driver's error of the block is for callers, and any other error as it is."""
        try:
            yield
        except PersistError:
            raise
        except Exception as error:
            raise (self.classify(error) or error) from error

    def classify(self, error: BaseException) -> PersistError | None:
        """Translate an error of the driver or of SQLAlchemy into a PersistError; None for any other error."""
        original = error.orig if isinstance(error, exc.StatementError) else error
        if isinstance(original, PersistError):
            return original
        if isinstance(original, OverflowError):
            return InvalidValue("value", "an integer must fit 64 bits.")
        if isinstance(original, UnicodeEncodeError):
            if "\ud800" <= original.object[original.start] <= "\udfff":
                return InvalidValue("value", "the text holds a lone surrogate half.")
            return InvalidValue("value", f"the connection's encoding, {original.encoding}, lacks a character of the text.")
        if isinstance(original, UnicodeDecodeError):  # the driver could not decode text, in a row or in its error message
            return StoreCorrupt(self.where, f"stored text is not UTF-8 ({original.reason}).")
        if isinstance(original or error, exc.MissingGreenlet):
            return InvalidValue("connection", ONLY_INSIDE_RUN_SYNC)
        if isinstance(error, exc.ResourceClosedError):
            return Closed("connection")
        if isinstance(error, exc.InvalidRequestError):  # the caller's connection is in an unusable state
            return InvalidValue("connection", str(error).partition("\n")[0])
        if isinstance(error, exc.TimeoutError):
            return StoreBusy(_POOL_TIMEOUT, "every connection of the pool is in use")
        if original is None:
            return None
        translated = self.translate_driver_error(original)
        if translated is not None:
            conceal_values(error)
        return translated
