"""`persist transcripts`: sessions of agents that mirror their transcript here, and their files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from persist.cli.database import Database, on_database
from persist.cli.logs import in_home, log_message_lines
from persist.cli.logs import project as of_logs
from persist.cli.nouns import Answer, Noun, Table, answers, limit, pages, shown, told
from persist.cli.output import Paint, inline
from persist.errors import NotFound
from persist.maintenance.session_files import session_files_of, store_session_files
from persist.sessionlog import list_session_logs, messages_of
from persist.sessionlog.session_files import read_session_files, write_session_files
from persist.store.transaction import Transaction
from persist.transcripts.schemas import Transcript

transcripts = Noun(
    "transcripts",
    "List, show, import and write transcripts of agent sessions.",
    "List and show transcripts of agent sessions, import them from their files, and write them as files again.",
)
project = click.option("--project", metavar="KEY", help="The session's project, where several have a session of that id.")
TRANSCRIPTS = Table[Transcript](
    "No transcripts.",
    ("SESSION", "PROJECT", "CREATED (UTC)", "WRITTEN (UTC)", "ENTRIES"),
    lambda found: (found.session_id, found.project, found.created_at, found.updated_at, found.length),
    name=lambda found: found.session_id,
)


@transcripts.reads("ls", "List sessions, the one written last first.", quiet="Print the session ids alone.")
@click.option("--project", metavar="KEY", help="Only this project's.")
@pages()
def ls(tx: Transaction, **wanted: Any) -> Answer:
    """List sessions, the one written last first. With --json: an object with `items` and `cursor`, null on the last page."""
    return TRANSCRIPTS.page(tx.transcripts.sessions.list(**wanted))


@transcripts.reads(
    "show", "Print a session's newest entries as a conversation.", quiet="Leave out what is known of the session as a whole."
)
@click.argument("session")
@project
@click.option("--subpath", default="", help="A part of it, such as subagents/agent-1.")
@limit(50, 100_000, help="How many of the newest entries.")
def show(tx: Transaction, session: str, project: str | None, subpath: str, limit: int) -> Answer:
    """Print a session's newest entries as a conversation, oldest first. SESSION is its id, or that of its transcript.

    With --json everything is there: an object with `transcript`, `subpaths` and `entries`.
    """
    found = find_transcript(tx, session, project)
    key = (found.project, found.session_id)
    subpaths = tx.transcripts.sessions.subpaths(*key)
    entries = tx.transcripts.entries.tail(*key, limit, subpath=subpath)
    facts: list[tuple[str, object]] = [
        ("session", found.session_id),
        ("project", found.project),
        ("transcript", found.id),
        ("entries", found.length),
        ("created", found.created_at),
        ("written", found.updated_at),
        *(("subpath", subpath) for subpath in subpaths),
    ]
    paint = Paint()
    lines = (line for entry in entries for message in messages_of(entry) for line in ("", *log_message_lines(message, paint)))
    return shown({"transcript": found, "subpaths": subpaths, "entries": entries}, facts, lines, apart=False)


@transcripts.command("import", short_help="Store what the files of sessions hold.")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@on_database
@in_home
@of_logs
@click.option("--as", "key", metavar="KEY", help="The project to store them in; without it the folder below projects/.")
@answers("Print no count.")
def import_(sessions: Sequence[str], database: Database, home: Path, project: str | None, key: str | None) -> Answer:
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
    broken = f"; {counts['skipped']:,} broken lines were skipped" if counts["skipped"] else ""
    return told(counts, f"{counts['entries']:,} new entries of {counts['sessions']:,} sessions{broken}")


@transcripts.command(short_help="Write a session as files, to resume it from them.")
@click.argument("session")
@on_database
@in_home
@project
@click.option("-f", "--force", is_flag=True, help="Overwrite files that are there.")
@answers("Print nothing.")
def write(session: str, database: Database, home: Path, project: str | None, force: bool) -> Answer:
    """Write a session and its subagents as files below the folder, as `persist transcripts import` reads them.

    Each file gets its name when it is whole, and is readable for its owner alone.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        found = find_transcript(tx, session, project)
        files = session_files_of(tx, found.project, found.session_id)
    paths = [str(path) for path in write_session_files(home, files, overwrite=force)]
    return told({"paths": paths}, *map(inline, paths))


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
