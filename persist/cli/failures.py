"""How a command fails: one line on standard error, without credentials, and an exit code; with --json an object on that line."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click
from pydantic import ValidationError

from persist.cli.output import inline, say_json
from persist.errors import PersistError

_CREDENTIALS = re.compile(r"(://[^\s:/@]*:)\S*@")
_PARAMETERS = re.compile(r"(?i)\b((?:ssl)?password=)[^\s&'\"]+")
_AS_JSON = "persist.cli.failures.as_json"


class Failed(click.ClickException):
    """Ends the command with exit code 1. `kind` and `fields`: the type of an error and what it carries, for --json."""

    def __init__(self, message: str, kind: str = "Failed", fields: Mapping[str, Any] | None = None) -> None:
        super().__init__(inline(redacted(" ".join(message.split()))))
        self.kind, self.fields = kind, fields or {}


class FailedAsJson(click.ClickException):
    """A failure of a command with --json: `{"error": {"type": …, "message": …}}`, with the fields of the error."""

    def __init__(self, error: click.ClickException) -> None:
        super().__init__(error.format_message())
        setattr(self, "exit_code", error.exit_code)  # noqa: B010  # click has it on the class
        kind, fields = (error.kind, error.fields) if isinstance(error, Failed) else (type(error).__name__, {})
        self.error = {"type": kind, "message": self.message, **{name: _plain(value) for name, value in fields.items()}}

    def show(self, file: Any = None) -> None:
        """Print it."""
        say_json({"error": self.error}, err=True)


def note_json(ctx: click.Context, args: list[str]) -> None:
    """Remember whether the command line asks for JSON, even where the rest of it is wrong."""
    ctx.meta[_AS_JSON] = "--json" in (args[: args.index("--")] if "--" in args else args)


def wants_json(ctx: click.Context | None) -> bool:
    """Whether the command line asks for JSON."""
    return ctx is not None and bool(ctx.meta.get(_AS_JSON))


def failure_of(error: Exception) -> click.ClickException:
    """What a command ends with because of an error."""
    match error:
        case click.UsageError():
            return click.UsageError(redacted(error.format_message()), error.ctx)
        case click.ClickException():
            return error
        case PersistError():
            fields = {name: value for name, value in vars(error).items() if not name.startswith("_")}
            return Failed(str(error), type(error).__name__, fields)
        case ValidationError():
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            name = f"PERSIST_{'_'.join(map(str, first['loc'])).upper()}"
            return Failed(f"{name}: {first['msg']}.", "InvalidSetting", {"name": name})  # without its value
        case OSError():
            return Failed(f"{error.filename or 'input or output'}: {error.strerror or error}", type(error).__name__)
    raise error


def redacted(text: str) -> str:
    """The text without the passwords of database URLs that it may repeat."""
    return _PARAMETERS.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))


def _plain(value: Any) -> Any:
    """A field of an error as JSON has it, without passwords."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return redacted(value if isinstance(value, str) else str(value))


class Group(click.Group):
    """For `cls=` of every group: `persist run` asks whether `runs` was meant, `persist --json ls` about `persist ls --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)  # click takes them out one by one
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            at = next((at for at, word in enumerate(given) if word.startswith(error.option_name)), len(given))
            place = next((at for at, word in enumerate(given) if word in self.list_commands(ctx)), -1)
            if place < at:
                raise
            meant = redacted(" ".join([ctx.command_path, *given[:at], *given[place:], *given[at:place]]))
            reason = f"No such option {error.option_name!r} before a command. Did you mean `{meant}`?"
            raise click.UsageError(reason, ctx) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            close = get_close_matches(name, self.list_commands(ctx), 3)
            meant = f" Did you mean {' or '.join(close)}?" if close else ""
            raise click.UsageError(f"No such command {name!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)
