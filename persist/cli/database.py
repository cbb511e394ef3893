"""The options that many commands take: the store they name, ages, numbers with a fraction."""

import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from persist.cli.output import inline
from persist.cli.root import redacted
from persist.db.values.json import parse
from persist.errors import SchemaOutdated
from persist.store.store import Store

F = TypeVar("F", bound=Callable[..., Any])
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:|:|.*:[^/\\]*@")
"""How a URL begins, or what has a user and a password. A path on Windows begins with one letter and a colon."""
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h|d|w)", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_IN_MEMORY = ("sqlite://", "sqlite:///", "sqlite:///:memory:")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


@dataclass(frozen=True, slots=True, repr=False)  # the URL may hold a password
class Database:
    """Where a command works."""

    url: str | Path
    schema: str | None

    def open(self, *, read_only: bool) -> Store:
        """Readers create nothing: a missing file is their error."""
        return Store.open(self.url, schema=self.schema, read_only=read_only)

    def open_existing(self) -> Store:
        """For writing; a missing file is an error here too, since a mistyped path must not leave a new file behind."""
        with suppress(SchemaOutdated):  # opening it for writing upgrades it, or says how
            self.open(read_only=True).close()
        return self.open(read_only=False)

    def open_current(self) -> Store:
        """For upkeep: neither makes nor upgrades anything, so an empty or older file is SchemaOutdated."""
        self.open(read_only=True).close()
        return Store.open(self.url, schema=self.schema, migrate=False)


def place_of(given: str | Path) -> str | Path:
    """A URL unchanged, also a broken one, whose password no error is to repeat; any other text as the path of a file."""
    return given if isinstance(given, Path) or _SCHEME.match(given) or not given else Path(given)


def database_of(url: str | Path | None, schema: str | None) -> Database:
    """The database that --url and --schema name. Raises a usage error if they name none."""
    if url is None:
        raise click.UsageError("Which database? Give --url FILE or postgresql://…, or set PERSIST_DATABASE_URL.")
    if url in _IN_MEMORY:
        raise click.UsageError(f"Which file? {url} is a database in memory, gone when the command ends.")
    return Database(place_of(url), schema)


def database_options(command: F) -> F:
    """--url and --schema, as they were given, for a command that may need neither."""
    schema = click.option(
        "--schema", envvar="PERSIST_SCHEMA_NAME", help="The schema on Postgres: PERSIST_SCHEMA_NAME, or persist without it."
    )
    url = click.option(
        "--url", envvar="PERSIST_DATABASE_URL", help="FILE, sqlite:///FILE or postgresql://…; without it PERSIST_DATABASE_URL."
    )
    return url(schema(command))


def on_database(command: F) -> F:
    """--url and --schema; the command receives `database`."""

    def run(*args: Any, url: str | Path | None, schema: str | None, **rest: Any) -> Any:
        return command(*args, database=database_of(url, schema), **rest)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__dict__.update(command.__dict__)
    return database_options(run)  # type: ignore[return-value]  # click's options go on whatever they decorate


def on_named_database(command: F) -> F:
    """As `on_database`, for a command without an argument of its own: DATABASE is its argument, instead of --url."""
    with_options = on_database(command)

    def run(*args: Any, named: str | None = None, **rest: Any) -> Any:
        return with_options(*args, **instead(named, rest))

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__dict__.update(with_options.__dict__)
    return click.argument("named", required=False, metavar="[DATABASE]")(run)  # type: ignore[return-value]  # as above


def instead(named: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a command, with the database of an argument as the one of --url."""
    if named is None:
        return options
    if on_command_line("url"):
        raise click.UsageError(f"Which database? {inline(redacted(named))} is one, and --url names one, too.")
    return {**options, "url": named}


def on_command_line(option: str) -> bool:
    """Whether the command line has the option: not only a variable of the environment."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def quiet(help: str) -> Callable[[F], F]:
    """-q, with what the command leaves out."""
    return click.option("-q", "--quiet", is_flag=True, help=help)


def to_age(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """For `callback=` of an option: a number and a unit, seconds, minutes, hours, days or weeks."""
    if value is None:
        return None
    match = _AGE.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"expected an age such as 90m, 12h, 30d or 2w, got {value!r}.")
    try:
        return timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        raise click.BadParameter(f"{value!r} is longer than there are dates.") from None


def to_json(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """For `callback=` of an option: the value that JSON text stands for."""
    try:
        return None if value is None else parse(value)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint=param.opts[0]) from None


class FloatRange(click.FloatRange):
    """A number in a range. Click's own takes what is no number, too, as it is neither below nor above the range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; click reports what is none as a usage error."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number
