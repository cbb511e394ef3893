"""Removes what callers stored from the errors of drivers, which stand in the `__cause__` of persist's own and in tracebacks.

Postgres tells the row that it refused in the DETAIL of an error, and the line of JSON that it was reading in its CONTEXT.
SQLAlchemy adds the parameters of the statement. SQLite's driver adds the text that is not UTF-8. The errors keep their class,
their SQLSTATE and the first line of their message; a debugger finds the rest in psycopg's `diag`. What a server says of a refused
value is replaced by what its SQLSTATE says, unless it begins as English does: only there it is known how a value is quoted. A
database without an encoding of its own spells other languages in ASCII, too, with quotes such as << and >>.
"""

import re
from collections.abc import Iterator
from typing import Any

from sqlalchemy import exc

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
"""By SQLSTATE, what a server says of a value that it refuses."""


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
