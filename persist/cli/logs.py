"""`persist logs`: the session logs below a folder, without any database."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from persist.cli.database import as_json, quiet
from persist.cli.groups import Group
from persist.cli.log_lines import message_lines
from persist.cli.numbers import FloatRange
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list
from persist.errors import NotFound
from persist.sessionlog import (
    LogMessage,
    Scope,
    SessionLogInfo,
    find_session_log,
    iter_session_log,
    list_session_logs,
    messages_of,
    session_log_path,
    tail_session_log,
)

F = TypeVar("F", bound=Callable[..., Any])


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


@click.group(cls=Group, short_help="List, print and follow session logs; no database.")
def logs() -> None:
    """List, print and follow the JSONL logs of agent sessions. They are files; no database is involved."""


@logs.command(short_help="List logs, the last written first.")
@in_home
@click.option("--project", metavar="SLUG", help="Only this project's.")
@click.option(
    "--scope", type=click.Choice([scope.value for scope in Scope]), default="all", show_default=True, help="Which ones."
)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@as_json
@quiet("Print the session ids alone.")
def ls(home: Path, project: str | None, scope: str, limit: int, as_json: bool, quiet: bool) -> None:
    """List logs, the last written first.

    With --json: an object with `items`, `cursor` (null) and `more`, how many were left out.
    """
    found = [info for info in list_session_logs(home, scope=scope) if project in (None, info.project_slug)]
    shown, more = found[:limit], max(0, len(found) - limit)
    if as_json:
        say_json_list((_fields(info) for info in shown), more=more)
    elif quiet:
        for info in shown:
            say(info.session_id)
    elif not shown:
        say("No session logs.", err=True)
    else:
        head, *rows = columns([("SESSION", "PROJECT", "STARTED (UTC)", "WRITTEN (UTC)", "BYTES"), *map(_row, shown)])
        say(Paint()(head, bold=True))
        for row in rows:
            say(row)
        if more:
            say(f"There are {more:,} more: add --limit {len(found)}", err=True)


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
    info = find_session_log(home, session, project_slug=project)
    paint = Paint()
    if not as_json and not quiet:
        for line in columns(_header(info)):
            name, _, value = line.partition(" ")
            say(f"{paint(name, dim=True)} {value}")
    for message in iter_session_log(info.path):
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
    path = find_session_log(home, session).path if project is None else session_log_path(home, project, session)
    paint = Paint()
    for line in _lines(path, since, poll):
        if as_json:
            say_json({"index": line.index, "msg": line.msg})
        else:
            for message in messages_of(line.msg):
                _say_message(message, paint)
        if until_result and line.msg.get("type") == "result":
            return


def _lines(path: Path, since: int, poll: float) -> Iterator[LogMessage]:
    for batch in tail_session_log(path, since_index=since, poll=poll):
        yield from batch


def _say_message(message: dict[str, Any], paint: Paint) -> None:
    say("\n".join(["", *message_lines(message, paint)]))


def _fields(info: SessionLogInfo) -> dict[str, Any]:
    return {
        "session_id": info.session_id,
        "project_slug": info.project_slug,
        "path": str(info.path),
        "started_at": info.started_at.isoformat(),
        "modified_at": info.modified_at.isoformat(),
        "size": info.size,
    }


def _row(info: SessionLogInfo) -> tuple[str, ...]:
    return (
        info.session_id,
        inline(info.project_slug),
        instant(info.started_at),
        instant(info.modified_at),
        f"{info.size:,}",
    )


def _header(info: SessionLogInfo) -> Iterator[tuple[str, str]]:
    yield "session", info.session_id
    yield "project", inline(info.project_slug)
    yield "file", inline(str(info.path))
    yield "bytes", f"{info.size:,}"
    yield "started", f"{instant(info.started_at)} UTC"
    yield "written", f"{instant(info.modified_at)} UTC"
