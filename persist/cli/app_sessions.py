"""`persist app_sessions`: sessions of applications' users, and the events and state of one."""

import json

import click

from persist.app_sessions.schemas import AppSession, AppSessionEvent, LoadedSession
from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, inline, instant, say, say_json, say_json_list, say_table
from persist.store.transaction import Transaction

_WIDTH = 100


@click.group("app_sessions", cls=Group, short_help="List and show sessions of applications' users.")
def app_sessions() -> None:
    """List and show sessions of applications' users."""


@app_sessions.command(short_help="List sessions, the one used last first.")
@on_named_database
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the ids alone.")
def ls(database: Database, limit: int, after: str | None, as_json: bool, quiet: bool) -> None:
    """List sessions, the one used last first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.app_sessions.sessions.list(limit=limit, after=after)
    if as_json:
        say_json_list((session.model_dump(mode="json") for session in page.items), page.cursor)
    elif quiet:
        for session in page.items:
            say(inline(session.id))
    elif not page.items:
        say("No sessions.", err=True)
    else:
        rows = [
            (
                inline(one.id),
                inline(one.app_name),
                inline(one.user_id),
                inline(one.session_id),
                f"{one.revision:,}",
                instant(one.updated_at),
            )
            for one in page.items
        ]
        say_table([("ID", "APP", "USER", "SESSION", "EVENTS", "USED (UTC)"), *rows])
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


@app_sessions.command(short_help="Print a session, its state and its newest events.")
@click.argument("session", metavar="ID")
@on_database
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many of the newest events.")
@as_json
@quiet("Leave out what is known of the session as a whole.")
def show(session: str, database: Database, limit: int, as_json: bool, quiet: bool) -> None:
    """Print a session, its state and its newest events, oldest first. ID is APP/USER/SESSION, or what `ls` prints first.

    With --json: an object with `session`, `state` and `events`; values are the JSON texts that the runner stored.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        row = find_app_session(tx, session)
        found = tx.app_sessions.sessions.load(row.app_name, row.user_id, row.session_id, recent=limit)
        files = tx.app_sessions.artifacts.names(row.app_name, row.user_id, row.session_id)
    assert found is not None, "the snapshot has the row"
    scopes = {"app": found.state.app, "user": found.state.user, "session": found.state.session}
    if as_json:
        events = [event.model_dump(mode="json") for event in found.events]
        say_json({"session": row.model_dump(mode="json"), "state": scopes, "events": events})
        return
    paint = Paint()
    if not quiet:
        known = _known(found)
        known += [(f"{scope} {inline(key)}", inline(text)) for scope, entries in scopes.items() for key, text in entries.items()]
        known += [("artifact", inline(key.filename)) for key in files]
        width = max(len(name) for name, _ in known)
        for name, value in known:
            say(f"{paint(name.ljust(width), dim=True)}  {_cut(value)}")
        say("")
    say_table([("EVENT", "AUTHOR", "SAID"), *map(_row, found.events)])


def find_app_session(tx: Transaction, given: str) -> AppSession:
    """The session of an id, or of APP/USER/SESSION. Raises NotFound."""
    names = given.split("/")
    for user in range(1, len(names) - 1):  # names may hold slashes, too
        for session in range(user + 1, len(names)):
            named = ("/".join(names[:user]), "/".join(names[user:session]), "/".join(names[session:]))
            found = tx.app_sessions.sessions.load(*named, recent=0) if all(named) else None
            if found is not None:
                return found.session
    return tx.app_sessions.sessions.get(given)


def _known(found: LoadedSession) -> list[tuple[str, str]]:
    session = found.session
    return [
        ("id", inline(session.id)),
        ("app", inline(session.app_name)),
        ("user", inline(session.user_id)),
        ("session", inline(session.session_id)),
        ("events", f"{session.revision:,}"),
        ("created", f"{instant(session.created_at)} UTC"),
        ("used", f"{instant(session.updated_at)} UTC"),
    ]


def _row(event: AppSessionEvent) -> tuple[str, ...]:
    return inline(event.id), inline(event.author or "-"), _cut(inline(_said(event.data)))


def _said(data: str) -> str:
    """The text of an event's parts, or else its JSON text."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):  # another program wrote it
        return data
    content = event.get("content") if isinstance(event, dict) else None
    parts = content.get("parts") if isinstance(content, dict) else None
    found = parts if isinstance(parts, list) else []
    return " ".join(part["text"] for part in found if isinstance(part, dict) and isinstance(part.get("text"), str)) or data


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
