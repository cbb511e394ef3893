"""`persist messaging`: sessions of people on chat platforms."""

from collections.abc import Iterator
from typing import Any

import click

from persist.cli.nouns import Answer, Noun, Table, facts, limit, pages, shown
from persist.cli.output import Paint, inline, instant, printable
from persist.messaging.schemas import MessagingMessage, MessagingSession
from persist.store.transaction import Transaction

_ROLES = {"user": "green", "assistant": "cyan"}
messaging = Noun("messaging")
SESSIONS = Table[MessagingSession](
    "No sessions.",
    ("SESSION", "PLATFORM", "CHANNEL", "THREAD", "USER", "STATE", "ACTIVITY (UTC)", "MESSAGES"),
    lambda session: (
        session.id,
        session.platform,
        session.channel_id,
        session.thread_id or "-",
        session.user_id,
        _state(session),
        session.last_activity_at,
        session.message_count or 0,
    ),
)


@messaging.reads("ls", "List sessions, the latest activity first.")
@click.option("--platform", metavar="NAME", help="Only sessions on this platform.")
@click.option("--active/--inactive", "active", default=None, help="Only sessions that are active, or that are over.")
@pages()
def ls(tx: Transaction, **wanted: Any) -> Answer:
    """List sessions, the latest activity first. With --json: an object with `items` and `cursor`, null on the last page."""
    return SESSIONS.page(tx.messaging.sessions.list(**wanted))


@messaging.reads("show", "Print a session and its newest messages.", quiet="Leave out what is known of the session as a whole.")
@click.argument("session")
@limit(50, help="How many of the newest messages.")
def show(tx: Transaction, session: str, limit: int, before: int | None = None) -> Answer:
    """Print a session and its newest messages, oldest first. With --json: an object with `session` and `messages`."""
    found = tx.messaging.sessions.get(session)
    messages = tx.messaging.messages.history(session, limit=limit, before=before)
    lines = (line for message in messages for line in _lines(message, Paint()))
    return shown({"session": found, "messages": messages}, _facts(found), lines, apart=False)


def _state(session: MessagingSession) -> str:
    return "unknown" if session.active is None else "active" if session.active else "over"


def _facts(session: MessagingSession) -> list[tuple[str, object]]:
    who = {"session": "id", "platform": "platform", "channel": "channel_id", "thread": "thread_id", "user": "user_id"}
    counts = [("state", _state(session)), ("messages", session.message_count or 0)]
    when = facts(session, created="created_at", activity="last_activity_at")
    return [*facts(session, **who, agent="agent_session_id"), *counts, *when]


def _lines(message: MessagingMessage, paint: Paint) -> Iterator[str]:
    about = [instant(message.timestamp), *([inline(message.platform_message_id)] if message.platform_message_id else [])]
    yield ""
    yield f"{paint(inline(message.role), fg=_ROLES.get(message.role), bold=True)}  {paint('  '.join(about), dim=True)}"
    for line in printable(message.content).split("\n"):
        yield f"  {line}"
