"""`persist replay_streams`: sessions of a server's clients, and what they are sent again after a lost connection."""

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list, say_table
from persist.replay_streams.schemas import ReplayMessage

_MESSAGE = 60


@click.group("replay_streams", cls=Group, short_help="List and show sessions with messages to send again.")
def replay_streams() -> None:
    """List and show sessions with messages to send again."""


@replay_streams.command(short_help="List sessions, the one written to last first.")
@on_named_database
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the ids alone.")
def ls(database: Database, limit: int, after: str | None, as_json: bool, quiet: bool) -> None:
    """List sessions, the one written to last first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.replay_streams.sessions.list(limit=limit, after=after)
    if as_json:
        say_json_list((session.model_dump(mode="json") for session in page.items), page.cursor)
    elif quiet:
        for session in page.items:
            say(inline(session.id))
    elif not page.items:
        say("No sessions.", err=True)
    else:
        rows = [(inline(session.id), instant(session.created_at), instant(session.updated_at)) for session in page.items]
        say_table([("SESSION", "CREATED (UTC)", "WRITTEN (UTC)"), *rows])
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


@replay_streams.command(short_help="Print a session and its newest messages.")
@click.argument("session")
@on_database
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many of the newest.")
@as_json
@quiet("Leave out what is known of the session as a whole.")
def show(session: str, database: Database, limit: int, as_json: bool, quiet: bool) -> None:
    """Print a session and its newest messages, newest first. With --json: an object with `session` and `messages`."""
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.replay_streams.sessions.get(session)
        messages = tx.replay_streams.messages.newest(session, limit=limit)
    if as_json:
        dumped = [message.model_dump(mode="json") for message in messages]
        say_json({"session": found.model_dump(mode="json"), "messages": dumped})
        return
    paint = Paint()
    if not quiet:
        known = [("session", inline(found.id)), ("created", f"{instant(found.created_at)} UTC")]
        for line in columns([*known, ("written", f"{instant(found.updated_at)} UTC")]):
            name, _, value = line.partition(" ")
            say(f"{paint(name, dim=True)} {value}")
        say("")
    say_table([("ID", "STREAM", "STORED (UTC)", "MESSAGE"), *map(_row, messages)])


def _row(message: ReplayMessage) -> tuple[str, ...]:
    text = "-" if message.message is None else inline(message.message)
    shown = text if len(text) <= _MESSAGE else text[: _MESSAGE - 1] + "…"
    return inline(message.id), inline(message.stream), instant(message.created_at), shown
