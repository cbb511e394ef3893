"""`persist conversations`: sessions with branches over shared messages."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from persist.cli.conversation_lines import HEAD, SessionRow, message_lines, session_cells, session_lines
from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.failures import Failed
from persist.cli.groups import Group
from persist.cli.numbers import FloatRange
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list
from persist.cli.progress import Progress
from persist.conversations import end_stale, import_runs, stale_sessions
from persist.conversations.schemas import Branch, ConvMessage, ConvSession, InvocationKind, SourceKind, Status
from persist.conversations.staleness import ENDS
from persist.errors import NotFound
from persist.maintenance.pruning import prune_conversations
from persist.store.transaction import Transaction

_ENDS = [status.value for status in ENDS]
_MAX_HOURS = 24 * 365 * 1000  # a thousand years; more has no beginning that a datetime could hold


@click.group(cls=Group, short_help="List, show, import, prune and repair conversations.")
def conversations() -> None:
    """List, show, import, prune and repair conversations: sessions with branches over shared messages."""


@conversations.command("import", short_help="Import folders of runs.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@on_database
@as_json
@quiet("Print no progress, and no count.")
def import_(folder: Path, database: Database, as_json: bool, quiet: bool) -> None:
    """Import DIR/<run>/run.json with DIR/<run>/branches/*.json, every run once.

    A run that is there already is skipped, so the command can be repeated, after an interrupt too. Exit code 1 if a run could
    not be imported; what is wrong with it, or is left out of it, is said on standard error.
    """
    if not folder.is_dir():
        raise NotFound("folder", str(folder))

    def left() -> str:
        return f"{progress.done:,} runs are done; the same command goes on."

    progress = Progress("Importing", unit="runs", left=left, quiet=quiet or as_json)
    with database.open(read_only=False) as store, progress:
        report = import_runs(store, folder, progress=progress.count)
    if as_json:
        say_json(report.model_dump(mode="json"))
    elif not quiet:
        say(f"{report.imported:,} imported, {report.skipped:,} skipped, {report.errors:,} errors")
    if report.errors:
        raise Failed(f"Of the runs below {str(folder)!r}, {report.errors:,} could not be imported.")


@conversations.command(short_help="List sessions, the latest update first.")
@on_named_database
@click.option("--status", type=click.Choice([status.value for status in Status]), help="Only sessions with this status.")
@click.option("--agent", metavar="NAME", help="Only sessions of this agent.")
@click.option("--playbook", metavar="NAME", help="Only sessions of this playbook.")
@click.option("--kind", type=click.Choice([kind.value for kind in InvocationKind]), help="Only sessions started this way.")
@click.option("--source", type=click.Choice([kind.value for kind in SourceKind]), help="Only live, or only imported sessions.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the ids alone.")
def ls(
    database: Database,
    status: str | None,
    agent: str | None,
    playbook: str | None,
    kind: str | None,
    source: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """List sessions, the latest update first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.conversations.sessions.list(
            status=status,
            agent_name=agent,
            playbook_name=playbook,
            invocation_kind=kind,
            source_kind=source,
            limit=limit,
            after=after,
        )
        rows = [_counted(tx, session) for session in page.items]
    if as_json:
        say_json_list((_fields(row) for row in rows), page.cursor)
    elif quiet:
        for row in rows:
            say(inline(row.session.id))
    elif not rows:
        say("No sessions.", err=True)
    else:
        head, *lines = columns([HEAD, *map(session_cells, rows)])
        say(Paint()(head, bold=True))
        for line in lines:
            say(line)
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


@conversations.command(short_help="Print a session's branches and messages.")
@click.argument("session")
@on_database
@click.option("--branch", metavar="ID|NAME", help="What this branch shows, instead of the session's whole pool.")
@click.option("--limit", type=click.IntRange(1, 100_000), help="Only the newest so many messages.")
@as_json
@quiet("Leave out what is known of the session as a whole.")
def show(session: str, database: Database, branch: str | None, limit: int | None, as_json: bool, quiet: bool) -> None:
    """Print a session: its branches, and its messages, or with --branch the history of one branch, what it inherits included.

    Long contents are cut; with --json everything is there: an object with `session`, `branches` and `messages`.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.conversations.sessions.get(session)
        branches = tx.conversations.branches.list(session)
        if branch is None:
            messages = _pool(tx, found, limit)
        else:
            messages = tx.conversations.branches.history(_named(branches, branch).id, limit=limit)
    if as_json:
        say_json(
            {
                "session": found.model_dump(mode="json"),
                "branches": [one.model_dump(mode="json") for one in branches],
                "messages": [one.model_dump(mode="json") for one in messages],
            }
        )
        return
    paint = Paint()
    if not quiet:
        for line in session_lines(found, branches, paint):
            say(line)
    for message in messages:
        say("\n".join(["", *message_lines(message, paint)]))


@conversations.command(short_help="Delete old sessions, and what nothing else shows.")
@on_named_database
@click.option("--keep-days", type=click.IntRange(min=0), default=30, show_default=True, help="Keep what was updated since.")
@click.option(
    "--keep-n", type=click.IntRange(min=0), default=100, show_default=True, help="Keep the latest so many, however old."
)
@click.option("--dry-run", is_flag=True, help="Delete nothing; the counts are those of a real run.")
@as_json
@quiet("Print nothing.")
def prune(database: Database, keep_days: int, keep_n: int, dry_run: bool, as_json: bool, quiet: bool) -> None:
    """Delete sessions that nobody updated for --keep-days, beyond the --keep-n latest; running ones are kept.

    With them go their branches, and messages that nothing else shows; forks in other sessions keep their history.
    """
    with database.open_existing() as store:
        report = prune_conversations(store, keep_days=keep_days, keep_n=keep_n, dry_run=dry_run)
    if as_json:
        say_json({**report.model_dump(mode="json"), "dry_run": dry_run})
    elif not quiet:
        counts = ", ".join(f"{count:,} {name}" for name, count in report.model_dump().items())
        say(f"Would delete {counts}." if dry_run else f"Deleted {counts}.")


@conversations.command(short_help="End sessions that say they run and do not.")
@on_named_database
@click.option("--hours", type=FloatRange(min=0), default=24, show_default=True, help="For how long a session may run.")
@click.option("--as", "status", type=click.Choice(_ENDS), default=_ENDS[0], show_default=True, help="What they become.")
@click.option("--dry-run", is_flag=True, help="Change nothing.")
@as_json
@quiet("Print the ids alone.")
def doctor(database: Database, hours: float, status: str, dry_run: bool, as_json: bool, quiet: bool) -> None:
    """End running sessions that neither started nor said anything within --hours, or nobody knows when.

    One that ends by itself in the meantime stays as it ended. With --json: an object with `items`, the ids, `cursor` and
    `dry_run`.
    """
    span = timedelta(hours=min(hours, _MAX_HOURS))
    with database.open(read_only=True) if dry_run else database.open_existing() as store:
        with store.read() as tx:
            stale = stale_sessions(tx.conversations, now=datetime.now(UTC), older_than=span)
        ids = [session.id for session in stale]
        if not dry_run:
            with store.begin() as tx:
                ids = end_stale(tx.conversations, stale, status=status, reason=f"doctor: no end within {hours:g} hours")
    if as_json:
        say_json_list(ids, dry_run=dry_run)
    elif quiet:
        for id in ids:
            say(inline(id))
    elif not ids:
        say("Every running session is younger than that.", err=True)
    else:
        found = {session.id: session for session in stale}
        for id in ids:
            started, spoke = found[id].started_at, found[id].last_message_at
            since = "an unknown time" if started is None else f"{instant(started)} UTC"
            silent = "" if spoke is None or spoke == started else f", silent since {instant(spoke)} UTC"
            say(f"{inline(id)}  running since {since}{silent}")
        say(f"{len(ids):,} {'would be' if dry_run else 'are now'} {status}.", err=True)


def _counted(tx: Transaction, session: ConvSession) -> SessionRow:
    branches = tx.conversations.branches.list(session.id)
    return SessionRow(session, len(branches), len(tx.conversations.progressions.get(session.progression_id)))


def _fields(row: SessionRow) -> dict[str, Any]:
    return {**row.session.model_dump(mode="json"), "branch_count": row.branches, "message_count": row.messages}


def _pool(tx: Transaction, session: ConvSession, limit: int | None) -> list[ConvMessage]:
    ids = tx.conversations.progressions.get(session.progression_id)[-(limit or 0) :]
    found = tx.conversations.messages.get_many(ids)
    return [found[id] for id in ids if id in found]


def _named(branches: Sequence[Branch], wanted: str) -> Branch:
    """The branch with that id, or the only one with that name."""
    found = [branch for branch in branches if branch.id == wanted] or [branch for branch in branches if branch.name == wanted]
    if not found:
        raise NotFound("branch", wanted)
    if len(found) > 1:
        raise Failed(f"There are {len(found)} branches named {wanted!r}: {', '.join(branch.id for branch in found)}.")
    return found[0]
