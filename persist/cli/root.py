"""The `persist` command: its subcommands, the module of each, and how failures end."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem
from pydantic import ValidationError

from persist import __version__
from persist.cli.output import Interrupted, inline, say, say_json
from persist.errors import PersistError
from persist.interruption import came, exit_code, hold, raise_again, say_when_left

_CREDENTIALS = re.compile(r"(://[^\s:/@]*:)\S*@")
_PARAMETERS = re.compile(r"(?i)\b((?:ssl)?password=)[^\s&'\"]+")
_AS_JSON = "persist.cli.root.as_json"


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
        self.error = _as_json(kind, self.message, fields)

    def show(self, file: Any = None) -> None:
        say_json({"error": self.error}, err=True)


def _as_json(kind: str, message: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": kind, "message": message, **{name: _plain(value) for name, value in fields.items()}}


def error_as_json(error: PersistError) -> dict[str, Any]:
    """What --json says of an error: its type, its sentence and what it carries, without passwords."""
    failed = Failed(str(error), type(error).__name__, _fields_of(error))
    return _as_json(failed.kind, failed.message, failed.fields)


def _fields_of(error: PersistError) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if not name.startswith("_")}


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
            return Failed(str(error), type(error).__name__, _fields_of(error))
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


COMMANDS = {
    "ui": ("persist.ui.command", "ui", "Look at a store in the browser."),
    "record": ("persist.cli.record", "record", "Record a stream from standard input, chunk by chunk."),
    "show": ("persist.cli.sessions", "show", "Print a session or run, whatever its kind."),
    "ls": ("persist.cli.sessions", "ls", "List the latest sessions or runs of a domain."),
    "work": ("persist.cli.work", "work", "Run the worker, or the handlers, of a module."),
    "runs": ("persist.cli.runs", "runs", "List, show, pause, restart and cancel workflow runs."),
    "approvals": ("persist.cli.runs", "approvals", "List and answer what waits for a person."),
    "signals": ("persist.cli.runs", "signals", "Tell runs something, and list what they were told."),
    "limits": ("persist.cli.starting", "limits", "List, set and lift limits of workflows and keys."),
    "usage": ("persist.cli.usage", "usage", "Usage of models and its cost, by day or by group."),
    "budgets": ("persist.cli.starting", "budgets", "List, set and lift budgets of owners, agents and more."),
    "overrides": ("persist.cli.starting", "overrides", "Switch workflows and schedules off and on."),
    "schedules": ("persist.cli.starting", "schedules", "List, set, switch, remove and fire schedules of runs."),
    "app_sessions": ("persist.cli.framework_state", "app_sessions", "List and show sessions of applications' users."),
    "checkpoints": ("persist.cli.framework_state", "checkpoints", "List and show threads of graph runners."),
    "histories": ("persist.cli.histories", "histories", "List and show conversations and runs of agent frameworks."),
    "agent_tasks": ("persist.cli.framework_state", "agent_tasks", "List and show tasks that agents do for others."),
    "replay_streams": ("persist.cli.framework_state", "replay_streams", "List and show sessions with messages to send again."),
    "blobs": ("persist.cli.moving", "blobs", "List files and large bytes, write them out, put them in."),
    "logs": ("persist.cli.logs", "logs", "List, print and follow session logs; no database."),
    "programs": ("persist.cli.programs", "programs", "Make, list and show runs of programs."),
    "telemetry": ("persist.cli.telemetry", "telemetry", "Status, usage, tool calls and links of agent instances."),
    "conversations": ("persist.cli.conversations", "conversations", "List, show, import, prune and repair conversations."),
    "events": ("persist.cli.events", "events", "Switch the log of events on and off, look at it, trim it."),
    "consumers": ("persist.cli.events", "consumers", "List and remove durable readers of the log of events."),
    "otel": ("persist.cli.telemetry", "otel", "Write what is stored as spans of OpenTelemetry."),
    "watch": ("persist.cli.events", "watch", "Follow the log of events while it is written."),
    "stats": ("persist.cli.operations", "stats", "Sizes, rows, statuses and settings of a database."),
    "transcripts": ("persist.cli.framework_state", "transcripts", "List, show, import and write transcripts of agent sessions."),
    "messaging": ("persist.cli.messaging", "messaging", "List and show sessions of people on chat platforms."),
    "prune": ("persist.cli.operations", "prune", "Delete what is over and old."),
    "erase": ("persist.cli.operations", "erase", "Erase all that belongs to a person."),
    "maintain": ("persist.cli.operations", "maintain", "Fold, trim, prune what settings say, and tidy up."),
    "doctor": ("persist.cli.doctor", "doctor", "Look for what is wrong, and mend what is safe to mend."),
    "quarantine": ("persist.cli.doctor", "quarantine", "List, show and bring back rows that were set aside."),
    "backup": ("persist.cli.operations", "backup", "Copy a SQLite file while others write to it."),
    "checkpoint": ("persist.cli.operations", "checkpoint", "Move SQLite's write-ahead log into the file."),
    "vacuum": ("persist.cli.operations", "vacuum", "Give free space back."),
    "erd": ("persist.cli.operations", "erd", "Print the tables as a Mermaid diagram; no database."),
    "copy": ("persist.cli.moving", "copy", "Copy everything into an empty database, and compare."),
    "export": ("persist.cli.moving", "export", "Write everything, or one session, as JSON Lines."),
    "import": ("persist.cli.moving", "import_", "Write the rows of an export."),
    "adopt": ("persist.cli.schema", "adopt", "Take over a database file of another program."),
    "tenants": ("persist.cli.schema", "tenants", "List, create, drop and copy tenants."),
    "upgrade": ("persist.cli.schema", "upgrade", "Create the tables, or bring them up to date."),
    "current": ("persist.cli.schema", "current", "Print the revision a database is at."),
    "check": ("persist.cli.schema", "check", "Fail unless a database is up to date."),
    "grants": ("persist.cli.schema", "grants", "Print the SQL that gives a role its rights; no database."),
    "completion": ("persist.cli.operations", "completion", "Print a script for the shell's tab key; no database."),
    "alembic-ini": ("persist.cli.schema", "alembic_ini", "Print an alembic.ini for this installation."),
}
"""By the name of each command: module, function, and short help."""
_ACTOR = "PERSIST_ACTOR"
_KILLED_AT_ONCE = {"copy"}
"""Commands that Ctrl-C kills at once. They need no cleanup: all they do is one transaction, which the database rolls back."""


class Root(Group):
    """Imports a command's module when the command is asked for: `persist --help` reads the table above, and no more."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        try:
            command = getattr(import_module(module), name)
        except ImportError as error:
            if error.name is not None:
                raise
            raise Failed(str(error), "ImportError") from error  # an extra that is not installed, and how to get it
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Until here nothing was done that a signal could interrupt."""
        found = super().resolve_command(ctx, args)
        if found[0] not in _KILLED_AT_ONCE:
            raise_again()
            say_when_left()
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, _, help) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if not incomplete.startswith("-"):
            return [CompletionItem(name, help=text) for name, (_, _, text) in COMMANDS.items() if name.startswith(incomplete)]
        return super().shell_complete(ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        note_json(ctx, args)
        try:
            return super().parse_args(ctx, args)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise (FailedAsJson(error) if wants_json(ctx) else error) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Every failure is one line on standard error and an exit code: 1; 2: a wrong call, 130: Ctrl-C, 143: SIGTERM."""
        try:
            result = super().invoke(ctx)
            hold()
            return result
        except (click.exceptions.NoArgsIsHelpError, BrokenPipeError):
            raise  # the help repeats nothing of the call; where the reader closed the pipe, click ends quietly
        except (click.ClickException, PersistError, ValidationError, OSError) as error:
            failure = failure_of(error)
            raise (FailedAsJson(failure) if wants_json(ctx) else failure) from error
        except click.Abort:
            if not came():
                raise  # the end of standard input where a question was asked
            say("", err=True)  # the question has no end of its line
            _end(ctx, "Nothing was done.")
        except KeyboardInterrupt as error:
            _end(ctx, error.left if isinstance(error, Interrupted) else "")


def _end(ctx: click.Context, left: str) -> NoReturn:
    say(f"Interrupted. {left}".rstrip(), err=True)
    ctx.exit(exit_code())


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every command says more with -h. A database is FILE or a URL, from --url or PERSIST_DATABASE_URL.",
)
@click.version_option(__version__, prog_name="persist")
@click.option("--actor", metavar="WHO", help="Who acts, for the log of events; without it PERSIST_ACTOR.")
@click.pass_context
def main(ctx: click.Context, actor: str | None) -> None:
    """The durable state of AI agents, on SQLite and Postgres."""
    if actor is not None:
        ctx.with_resource(_acting(actor))


@contextmanager
def _acting(actor: str) -> Iterator[None]:
    """Every store that the command opens has this actor: the settings of this process name it."""
    before = os.environ.get(_ACTOR)
    os.environ[_ACTOR] = actor
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ACTOR]
        else:
            os.environ[_ACTOR] = before
