"""`persist logs`: the session logs below a folder, without any database."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from persist import sessionlog
from persist.cli.database import FloatRange, as_json, quiet
from persist.cli.nouns import Answer, Noun, Table, answers, facts, known
from persist.cli.output import Paint, inline, printable, say, say_json, shortened
from persist.errors import NotFound

F = TypeVar("F", bound=Callable[..., Any])
_COLOURS = {"user": "green", "assistant": "cyan", "system": "magenta", "tool": "yellow"}


def in_home(command: F) -> F:
    """--home; the command receives a folder that exists."""

    def run(*args: Any, home: Path | None, **rest: Any) -> Any:
        if home is None:
            raise click.UsageError("Which logs? Give --home FOLDER, the one that holds projects/, or set PERSIST_LOG_HOME.")
        if not home.is_dir():
            raise NotFound("folder", str(home))
        return command(*args, home=home, **rest)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__dict__.update(command.__dict__)
    option = click.option(
        "--home",
        envvar="PERSIST_LOG_HOME",
        type=click.Path(path_type=Path),
        help="The folder that holds projects/; without it PERSIST_LOG_HOME.",
    )
    return option(run)  # type: ignore[return-value]  # click's options go on whatever they decorate


project = click.option("--project", metavar="SLUG", help="The session's project, where several have a log of that session.")
logs = Noun("logs", "List, print and follow the JSONL logs of agent sessions. They are files; no database is involved.")
LOGS = Table[sessionlog.SessionLogInfo](
    "No session logs.",
    ("SESSION", "PROJECT", "STARTED (UTC)", "WRITTEN (UTC)", "BYTES"),
    lambda info: (info.session_id, info.project_slug, info.started_at, info.modified_at, info.size),
    name=lambda info: info.session_id,
    json=lambda info: {
        **asdict(info),
        "path": str(info.path),
        "started_at": info.started_at.isoformat(),
        "modified_at": info.modified_at.isoformat(),
    },
)


@logs.command(short_help="List logs, the last written first.")
@in_home
@click.option("--project", metavar="SLUG", help="Only this project's.")
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in sessionlog.Scope]),
    default="all",
    show_default=True,
    help="Which ones.",
)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@answers("Print the session ids alone.")
def ls(home: Path, project: str | None, scope: str, limit: int) -> Answer:
    """List logs, the last written first.

    With --json: an object with `items`, `cursor` (null) and `more`, how many were left out.
    """
    return listed(find_logs(home, project, scope), limit)


def find_logs(home: Path, project: str | None, scope: str) -> list[sessionlog.SessionLogInfo]:
    """The logs of one project, or of all, the last written first."""
    return [info for info in sessionlog.list_session_logs(home, scope=scope) if project in (None, info.project_slug)]


def listed(found: list[sessionlog.SessionLogInfo], limit: int) -> Answer:
    """The answer of `persist logs ls`."""
    more = max(0, len(found) - limit)
    note = f"There are {more:,} more: add --limit {len(found)}" if more else None
    return LOGS.all(found[:limit], note, more=more)


@logs.command(short_help="Print a session's log as a conversation.")
@click.argument("session")
@in_home
@project
@as_json
@quiet("Leave out what is known of the log as a whole.")
def show(session: str, home: Path, project: str | None, as_json: bool, quiet: bool) -> None:
    """Print a session's log as a conversation, in the order it was written.

    Long inputs and outputs of tools are cut; with --json everything is there, one message on each line: an object with
    `index` and `msg`. However long the log is, only one message of it is in memory.
    """
    info = sessionlog.find_session_log(home, session, project_slug=project)
    paint = Paint()
    if not as_json and not quiet:
        told = facts(info, session="session_id", project="project_slug", file="path", bytes="size")
        for line in known([*told, *facts(info, started="started_at", written="modified_at")]):
            say(line)
    for message in sessionlog.iter_session_log(info.path):
        if as_json:
            say_json({"index": message.index, "msg": message.msg})
        else:
            _say_message(message.msg, paint)


@logs.command(short_help="Follow a session's log while it is written.")
@click.argument("session")
@in_home
@project
@click.option("--since", type=click.IntRange(min=0), default=0, help="The index of the first line to print; 0 is the first.")
@click.option("--poll", type=FloatRange(min=0.01), default=0.5, show_default=True, help="Seconds between two looks.")
@click.option("--until-result", is_flag=True, help="End after the line with the result of the run.")
@as_json
def tail(session: str, home: Path, project: str | None, since: int, poll: float, until_result: bool, as_json: bool) -> None:
    """Follow a session's log while it is written, from its first line on, until Ctrl-C.

    With --json every line of the log is printed as it is stored, in an object with `index` and `msg`. A log that does not
    exist yet is waited for if --project says where it will be.
    """
    path = (
        sessionlog.find_session_log(home, session).path
        if project is None
        else sessionlog.session_log_path(home, project, session)
    )
    paint = Paint()
    for line in _lines(path, since, poll):
        if as_json:
            say_json({"index": line.index, "msg": line.msg})
        else:
            for message in sessionlog.messages_of(line.msg):
                _say_message(message, paint)
        if until_result and line.msg.get("type") == "result":
            return


def _lines(path: Path, since: int, poll: float) -> Iterator[sessionlog.LogMessage]:
    for batch in sessionlog.tail_session_log(path, since_index=since, poll=poll):
        yield from batch


def _say_message(message: dict[str, Any], paint: Paint) -> None:
    say("\n".join(["", *log_message_lines(message, paint)]))


def log_message_lines(message: dict[str, Any], paint: Paint) -> Iterator[str]:
    """The speaker and the time, then the content, whatever its shape."""
    role = str(message.get("role"))
    at = [inline(str(message[name])) for name in ("timestamp", "tool_call_id") if message.get(name) is not None]
    yield f"{paint(inline(role), fg=_COLOURS.get(role), bold=True)}  {paint('  '.join(at), dim=True)}".rstrip()
    if message.get("reasoning") is not None:
        for line in _text(message["reasoning"]):
            yield paint(f"  > {line}", dim=True)
    content = message.get("content")
    if role == "tool":
        yield f"  {shortened(content)}"
    elif content is not None:
        for line in _text(content):
            yield f"  {line}"
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        yield from _call_lines(call, paint)


def _text(value: Any) -> list[str]:
    return printable(value).split("\n") if isinstance(value, str) else [shortened(value)]


def _call_lines(call: Any, paint: Paint) -> Iterator[str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        yield f"  tool {shortened(call)}"
        return
    yield f"  tool {paint(inline(str(function.get('name', '?'))), bold=True)}  {paint(inline(str(call.get('id', ''))), dim=True)}"
    if "arguments" in function:
        yield f"    input   {shortened(function['arguments'])}"
