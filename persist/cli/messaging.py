"""`persist messaging`: sessions of people on chat platforms."""

from collections.abc import Iterator

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, printable, say, say_json, say_json_list
from persist.messaging.schemas import MessagingMessage, MessagingSession

_ROLES = {"user": "green", "assistant": "cyan"}


@click.group(cls=Group, short_help="List and show sessions of people on chat platforms.")
def messaging() -> None:
    """List and show sessions of people on chat platforms."""


@messaging.command(short_help="List sessions, the latest activity first.")
@on_named_database
@click.option("--platform", metavar="NAME", help="Only sessions on this platform.")
@click.option("--active/--inactive", "active", default=None, help="Only sessions that are active, or that are over.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the ids alone.")
def ls(
    database: Database,
    platform: str | None,
    active: bool | None,
    limit: int,
    after: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """List sessions, the latest activity first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.messaging.sessions.list(platform=platform, active=active, limit=limit, after=after)
    if as_json:
        say_json_list((session.model_dump(mode="json") for session in page.items), page.cursor)
    elif quiet:
        for session in page.items:
            say(inline(session.id))
    elif not page.items:
        say("No sessions.", err=True)
    else:
        head = ("SESSION", "PLATFORM", "CHANNEL", "THREAD", "USER", "STATE", "ACTIVITY (UTC)", "MESSAGES")
        first, *rows = columns([head, *map(_row, page.items)])
        say(Paint()(first, bold=True))
        for row in rows:
            say(row)
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


@messaging.command(short_help="Print a session and its newest messages.")
@click.argument("session")
@on_database
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many of the newest messages.")
@as_json
@quiet("Leave out what is known of the session as a whole.")
def show(session: str, database: Database, limit: int, as_json: bool, quiet: bool) -> None:
    """Print a session and its newest messages, oldest first. With --json: an object with `session` and `messages`."""
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.messaging.sessions.get(session)
        messages = tx.messaging.messages.history(session, limit=limit)
    if as_json:
        dumped = [message.model_dump(mode="json") for message in messages]
        say_json({"session": found.model_dump(mode="json"), "messages": dumped})
        return
    paint = Paint()
    if not quiet:
        for line in columns(_header(found)):
            name, _, value = line.partition(" ")
            say(f"{paint(name, dim=True)} {value}")
    for message in messages:
        say("\n".join(["", *_lines(message, paint)]))


def _state(session: MessagingSession) -> str:
    return "unknown" if session.active is None else "active" if session.active else "over"


def _row(session: MessagingSession) -> tuple[str, ...]:
    return (
        inline(session.id),
        inline(session.platform),
        inline(session.channel_id),
        inline(session.thread_id or "-"),
        inline(session.user_id),
        _state(session),
        instant(session.last_activity_at),
        f"{session.message_count or 0:,}",
    )


def _header(session: MessagingSession) -> Iterator[tuple[str, str]]:
    yield "session", inline(session.id)
    yield "platform", inline(session.platform)
    yield "channel", inline(session.channel_id)
    if session.thread_id is not None:
        yield "thread", inline(session.thread_id)
    yield "user", inline(session.user_id)
    if session.agent_session_id is not None:
        yield "agent", inline(session.agent_session_id)
    yield "state", _state(session)
    yield "messages", f"{session.message_count or 0:,}"
    yield "created", f"{instant(session.created_at)} UTC"
    yield "activity", f"{instant(session.last_activity_at)} UTC"


def _lines(message: MessagingMessage, paint: Paint) -> Iterator[str]:
    role = inline(message.role)
    about = "  ".join(
        [instant(message.timestamp), *([inline(message.platform_message_id)] if message.platform_message_id else [])]
    )
    yield f"{paint(role, fg=_ROLES.get(message.role), bold=True)}  {paint(about, dim=True)}"
    for line in printable(message.content).split("\n"):
        yield f"  {line}"
