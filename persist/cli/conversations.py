"""`persist conversations`: sessions with branches over shared messages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import click

from persist.cli.database import Database, FloatRange, on_database, on_named_database
from persist.cli.nouns import Answer, Noun, Table, Text, answers, facts, is_silent, known, pages, told
from persist.cli.output import Paint, Progress, columns, cut, inline, instant, printable, shortened
from persist.cli.root import Failed
from persist.conversations import end_stale, import_runs, stale_sessions
from persist.conversations.schemas import Branch, ConvMessage, ConvSession, InvocationKind, SourceKind, Status
from persist.conversations.staleness import ENDS
from persist.db.values.pages import Page
from persist.errors import NotFound
from persist.maintenance.pruning import prune_conversations
from persist.store.transaction import Transaction

_ENDS = [status.value for status in ENDS]
_MAX_HOURS = 24 * 365 * 1000  # a thousand years; more has no beginning that a datetime could hold
_NAME = 60
_ROLES = {"user": "green", "assistant": "cyan", "system": "magenta", "action": "yellow", "tool": "yellow"}
_STATUSES = {"running": "yellow", "completed": "green", "failed": "red", "timed_out": "red", "aborted": "red", "cancelled": "red"}
_SAID = ("assistant_response", "instruction", "system_message", "system", "text", "content")
conversations = Noun(
    "conversations", "List, show, import, prune and repair conversations: sessions with branches over shared messages."
)


@conversations.command("import", short_help="Import folders of runs.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@on_database
@answers("Print no progress, and no count.")
def import_(folder: Path, database: Database) -> Answer:
    """Import DIR/<run>/run.json with DIR/<run>/branches/*.json, every run once.

    A run that is there already is skipped, so the command can be repeated, after an interrupt too. Exit code 1 if a run could
    not be imported; what is wrong with it, or is left out of it, is said on standard error.
    """
    if not folder.is_dir():
        raise NotFound("folder", str(folder))

    def left() -> str:
        return f"{progress.done:,} runs are done; the same command goes on."

    progress = Progress("Importing", unit="runs", left=left, quiet=is_silent())
    with database.open(read_only=False) as store, progress:
        report = import_runs(store, folder, progress=progress.count)
    counts = f"{report.imported:,} imported, {report.skipped:,} skipped, {report.errors:,} errors"
    failed = Failed(f"Of the runs below {str(folder)!r}, {report.errors:,} could not be imported.") if report.errors else None
    return Answer(report, [counts], failed=failed)


@conversations.reads("ls", "List sessions, the latest update first.")
@click.option("--status", type=click.Choice([status.value for status in Status]), help="Only sessions with this status.")
@click.option("--agent", "agent_name", metavar="NAME", help="Only sessions of this agent.")
@click.option("--playbook", "playbook_name", metavar="NAME", help="Only sessions of this playbook.")
@click.option(
    "--kind",
    "invocation_kind",
    type=click.Choice([kind.value for kind in InvocationKind]),
    help="Only sessions started this way.",
)
@click.option(
    "--source",
    "source_kind",
    type=click.Choice([kind.value for kind in SourceKind]),
    help="Only live, or only imported sessions.",
)
@pages(50)
def ls(tx: Transaction, **wanted: Any) -> Answer:
    """List sessions, the latest update first. With --json: an object with `items` and `cursor`, null on the last page."""
    page = tx.conversations.sessions.list(**wanted)
    return _SESSIONS.page(Page([_counted(tx, session) for session in page.items], page.cursor))


@conversations.reads(
    "show", "Print a session's branches and messages.", quiet="Leave out what is known of the session as a whole."
)
@click.argument("session")
@click.option("--branch", metavar="ID|NAME", help="What this branch shows, instead of the session's whole pool.")
@click.option("--limit", type=click.IntRange(1, 100_000), help="Only the newest so many messages.")
def show(tx: Transaction, session: str, branch: str | None, limit: int | None) -> Answer:
    """Print a session, its branches and its messages, or with --branch the history of one branch with inherited messages.

    Long contents are cut; with --json everything is there: an object with `session`, `branches` and `messages`.
    """
    found = tx.conversations.sessions.get(session)
    branches = tx.conversations.branches.list(session)
    if branch is None:
        messages = _pool(tx, found, limit)
    else:
        messages = tx.conversations.branches.history(_named(branches, branch).id, limit=limit)
    paint = Paint()
    lines = (line for message in messages for line in ("", *_message_lines(message, paint)))
    about = chain(known(_facts(found, paint)), _branch_lines(branches, paint))
    return Answer({"session": found, "branches": branches, "messages": messages}, chain(about, lines), lines)


@conversations.command(short_help="Delete old sessions, and what nothing else shows.")
@on_named_database
@click.option("--keep-days", type=click.IntRange(min=0), default=30, show_default=True, help="Keep what was updated since.")
@click.option(
    "--keep-n", type=click.IntRange(min=0), default=100, show_default=True, help="Keep the latest so many, however old."
)
@click.option("--dry-run", is_flag=True, help="Delete nothing; the counts are those of a real run.")
@answers("Print nothing.")
def prune(database: Database, keep_days: int, keep_n: int, dry_run: bool) -> Answer:
    """Delete sessions that nobody updated for --keep-days, beyond the --keep-n latest; running ones are kept.

    The branches go too, and messages that no other conversation shows; forks in other sessions keep their history.
    """
    with database.open_existing() as store:
        report = prune_conversations(store, keep_days=keep_days, keep_n=keep_n, dry_run=dry_run)
    counts = ", ".join(f"{count:,} {name}" for name, count in report.model_dump().items())
    return told(
        {**report.model_dump(mode="json"), "dry_run": dry_run}, f"Would delete {counts}." if dry_run else f"Deleted {counts}."
    )


@conversations.command(short_help="End sessions that say they run and do not.")
@on_named_database
@click.option("--hours", type=FloatRange(min=0), default=24, show_default=True, help="For how long a session may run.")
@click.option("--as", "status", type=click.Choice(_ENDS), default=_ENDS[0], show_default=True, help="What they become.")
@click.option("--dry-run", is_flag=True, help="Change nothing.")
@answers("Print the ids alone.")
def doctor(database: Database, hours: float, status: str, dry_run: bool) -> Answer:
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
    found = {session.id: session for session in stale}
    note = (
        f"{len(ids):,} {'would be' if dry_run else 'are now'} {status}." if ids else "Every running session is younger than that."
    )
    said = {"items": ids, "cursor": None, "dry_run": dry_run}
    return Answer(said, (_stale(found[id]) for id in ids), map(inline, ids), [note])


def _stale(session: ConvSession) -> str:
    started, spoke = session.started_at, session.last_message_at
    since = "an unknown time" if started is None else f"{instant(started)} UTC"
    silent = "" if spoke is None or spoke == started else f", silent since {instant(spoke)} UTC"
    return f"{inline(session.id)}  running since {since}{silent}"


@dataclass(frozen=True, slots=True)
class _Counted:
    session: ConvSession
    branches: int
    messages: int


_SESSIONS = Table[_Counted](
    "No sessions.",
    ("SESSION", "STATUS", "AGENT", "UPDATED (UTC)", "BRANCHES", "MESSAGES", "NAME"),
    lambda one: (
        one.session.id,
        one.session.status or "-",
        one.session.agent_name or "-",
        one.session.updated_at,
        one.branches,
        one.messages,
        cut(one.session.name or "", _NAME),
    ),
    name=lambda one: one.session.id,
    json=lambda one: {**one.session.model_dump(mode="json"), "branch_count": one.branches, "message_count": one.messages},
)


def _counted(tx: Transaction, session: ConvSession) -> _Counted:
    branches = tx.conversations.branches.list(session.id)
    return _Counted(session, len(branches), len(tx.conversations.progressions.get(session.progression_id)))


def _pool(tx: Transaction, session: ConvSession, limit: int | None) -> list[ConvMessage]:
    ids = tx.conversations.progressions.get(session.progression_id)[-(limit or 0) :]
    found = tx.conversations.messages.get_many(ids)
    return [found[id] for id in ids if id in found]


def _named(branches: Sequence[Branch], wanted: str) -> Branch:
    found = [branch for branch in branches if branch.id == wanted] or [branch for branch in branches if branch.name == wanted]
    if not found:
        raise NotFound("branch", wanted)
    if len(found) > 1:
        raise Failed(f"There are {len(found)} branches named {wanted!r}: {', '.join(branch.id for branch in found)}.")
    return found[0]


def _branch_lines(branches: Sequence[Branch], paint: Paint) -> Iterator[str]:
    if branches:
        yield from ("", paint("branches", bold=True))
        yield from columns([_branch(branch) for branch in branches])


def _message_lines(message: ConvMessage, paint: Paint) -> Iterator[str]:
    """The sender, the time and the recipient, then the content, whatever its shape."""
    role = inline(message.role)
    to = [f"{name} {inline(value)}" for name, value in (("to", message.recipient), ("in", message.channel)) if value]
    about = "  ".join([instant(message.created_at), *to, inline(message.id)])
    yield f"{paint(role, fg=_ROLES.get(message.role), bold=True)}  {paint(about, dim=True)}"
    for line in _said(message.content):
        yield f"  {line}"


def said_by(content: Any) -> Any:
    """What a message says: of an object that holds a single text that text, anything else as it is."""
    if isinstance(content, dict):
        said = {name: value for name, value in content.items() if value not in (None, "", [], {})}
        if len(said) == 1 and next(iter(said)) in _SAID:
            return next(iter(said.values()))
    return content


def _said(content: Any) -> list[str]:
    """Text as text, anything else as JSON, cut."""
    said = said_by(content)
    return printable(said).split("\n") if isinstance(said, str) else [shortened(said)]


def _facts(session: ConvSession, paint: Paint) -> Iterator[tuple[str, object]]:
    yield "session", session.id
    yield "status", Text(paint(inline(session.status or "-"), fg=_STATUSES.get(session.status or "")))
    hints = facts(session, name="name", user="user", reason="status_reason_summary", agent="agent_name", playbook="playbook_name")
    hints += facts(session, kind="invocation_kind", show="show_topic", play="show_play_name", artifacts="artifacts_path")
    hints += facts(session, source="source_kind")
    yield from ((name, value or None) for name, value in hints)
    yield from facts(session, created="created_at", started="started_at", updated="updated_at", spoke="last_message_at")
    if session.ended_at is not None:
        yield "ended", f"{instant(session.ended_at)} UTC{' (about)' if session.ended_at_is_approximate else ''}"
    yield "metadata", shortened(session.node_metadata) if session.node_metadata else None


def _branch(branch: Branch) -> tuple[str, ...]:
    origin = "" if branch.parent_branch_id is None else f"from {inline(branch.parent_branch_id)} at {branch.forked_at_ord}"
    return f"  {inline(branch.id)}", inline(branch.status or "-"), cut(branch.name or "-", _NAME), origin
