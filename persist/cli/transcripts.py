"""`persist transcripts`: sessions of agents that mirror their transcript here, and their files."""

from collections.abc import Sequence
from pathlib import Path

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.log_lines import message_lines
from persist.cli.logs import in_home
from persist.cli.logs import project as of_logs
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list
from persist.errors import NotFound
from persist.maintenance.session_files import session_files_of, store_session_files
from persist.sessionlog import list_session_logs, messages_of
from persist.sessionlog.session_files import read_session_files, write_session_files
from persist.store.transaction import Transaction
from persist.transcripts.schemas import Transcript

project = click.option("--project", metavar="KEY", help="The session's project, where several have a session of that id.")


@click.group(cls=Group, short_help="List, show, import and write transcripts of agent sessions.")
def transcripts() -> None:
    """List and show transcripts of agent sessions, import them from their files, and write them as files again."""


@transcripts.command(short_help="List sessions, the one written last first.")
@on_named_database
@click.option("--project", metavar="KEY", help="Only this project's.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the session ids alone.")
def ls(database: Database, project: str | None, limit: int, after: str | None, as_json: bool, quiet: bool) -> None:
    """List sessions, the one written last first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.transcripts.sessions.list(project=project, limit=limit, after=after)
    if as_json:
        say_json_list((found.model_dump(mode="json") for found in page.items), page.cursor)
    elif quiet:
        for found in page.items:
            say(inline(found.session_id))
    elif not page.items:
        say("No transcripts.", err=True)
    else:
        head, *rows = columns([("SESSION", "PROJECT", "CREATED (UTC)", "WRITTEN (UTC)", "ENTRIES"), *map(_row, page.items)])
        say(Paint()(head, bold=True))
        for row in rows:
            say(row)
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


@transcripts.command(short_help="Print a session's newest entries as a conversation.")
@click.argument("session")
@on_database
@project
@click.option("--subpath", default="", help="A part of it, such as subagents/agent-1.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many of the newest entries.")
@as_json
@quiet("Leave out what is known of the session as a whole.")
def show(session: str, database: Database, project: str | None, subpath: str, limit: int, as_json: bool, quiet: bool) -> None:
    """Print a session's newest entries as a conversation, oldest first. SESSION is its id, or that of its transcript.

    With --json everything is there: an object with `transcript`, `subpaths` and `entries`.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        found = find_transcript(tx, session, project)
        key = (found.project, found.session_id)
        subpaths = tx.transcripts.sessions.subpaths(*key)
        entries = tx.transcripts.entries.tail(*key, limit, subpath=subpath)
    if as_json:
        say_json({"transcript": found.model_dump(mode="json"), "subpaths": subpaths, "entries": entries})
        return
    paint = Paint()
    if not quiet:
        for line in columns(_header(found, subpaths)):
            name, _, value = line.partition(" ")
            say(f"{paint(name, dim=True)} {value}")
    for entry in entries:
        for message in messages_of(entry):
            say("\n".join(["", *message_lines(message, paint)]))


@transcripts.command("import", short_help="Store what the files of sessions hold.")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@on_database
@in_home
@of_logs
@click.option("--as", "key", metavar="KEY", help="The project to store them in; without it the folder below projects/.")
@as_json
@quiet("Print no count.")
def import_(
    sessions: Sequence[str],
    database: Database,
    home: Path,
    project: str | None,
    key: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Store the log of every SESSION, with those of its subagents; without SESSION all logs below the folder.

    What is there already is left out, be it imported or mirrored, so the command can be repeated. Each session is stored
    wholly or not at all. With --home ~/.claude these are the sessions of Claude Code.
    """
    places = [(project, id) for id in sessions]
    if not sessions:
        logs = list_session_logs(home)
        places = [(info.project_slug, info.session_id) for info in logs if project in (None, info.project_slug)]
    counts = {"sessions": 0, "entries": 0, "skipped": 0}
    with database.open(read_only=False) as store:
        for slug, id in places:
            files = read_session_files(home, id, project_slug=slug)
            counts["entries"] += store.transact(lambda tx, files=files: store_session_files(tx, files, project=key))  # type: ignore[misc]  # a bound default
            counts["sessions"] += 1
            counts["skipped"] += files.skipped
    if as_json:
        say_json(counts)
    elif not quiet:
        broken = f"; {counts['skipped']:,} broken lines were skipped" if counts["skipped"] else ""
        say(f"{counts['entries']:,} new entries of {counts['sessions']:,} sessions{broken}")


@transcripts.command(short_help="Write a session as files, to resume it from them.")
@click.argument("session")
@on_database
@in_home
@project
@click.option("-f", "--force", is_flag=True, help="Overwrite files that are there.")
@as_json
@quiet("Print nothing.")
def write(session: str, database: Database, home: Path, project: str | None, force: bool, as_json: bool, quiet: bool) -> None:
    """Write a session and its subagents as files below the folder, as `persist transcripts import` reads them.

    Each file gets its name when it is whole, and is readable for its owner alone.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        found = find_transcript(tx, session, project)
        files = session_files_of(tx, found.project, found.session_id)
    paths = write_session_files(home, files, overwrite=force)
    if as_json:
        say_json({"paths": [str(path) for path in paths]})
    elif not quiet:
        for path in paths:
            say(inline(str(path)))


def find_transcript(tx: Transaction, session: str, project: str | None = None) -> Transcript:
    """The transcript of a session, given by its id in its project, or by the transcript's own.

    Raises NotFound, or a usage error where several projects have such a session and none is given.
    """
    found = tx.transcripts.sessions.list(session_id=session, project=project).items
    if not found:
        transcript = tx.transcripts.sessions.get(session)
        if project not in (None, transcript.project):
            raise NotFound("transcript", session)
        return transcript
    if len(found) > 1:
        several = " and ".join(repr(one.project) for one in found)
        raise click.UsageError(f"The projects {several} have a session {session!r}; say which with --project.")
    return found[0]


def _row(found: Transcript) -> tuple[str, ...]:
    return (
        inline(found.session_id),
        inline(found.project),
        instant(found.created_at),
        instant(found.updated_at),
        f"{found.length:,}",
    )


def _header(found: Transcript, subpaths: Sequence[str]) -> list[tuple[str, str]]:
    known = [
        ("session", inline(found.session_id)),
        ("project", inline(found.project)),
        ("transcript", inline(found.id)),
        ("entries", f"{found.length:,}"),
        ("created", f"{instant(found.created_at)} UTC"),
        ("written", f"{instant(found.updated_at)} UTC"),
    ]
    return [*known, *(("subpath", inline(subpath)) for subpath in subpaths)]
