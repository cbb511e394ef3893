"""`persist ls`: the sessions of a database."""

import click

from persist.chat.schemas import ChatSession
from persist.cli.database import Database, as_json, on_database, quiet
from persist.cli.output import Paint, columns, inline, instant, say, say_json

_WORKSPACE, _TITLE = 30, 60


@click.command(short_help="List sessions, the latest first.")
@on_database
@click.option("--agent", help="Only sessions of this agent.")
@click.option("--workspace", help="Only sessions with this workspace root.")
@click.option("--archived", is_flag=True, help="Archived sessions too.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the ids alone.")
def ls(
    database: Database,
    agent: str | None,
    workspace: str | None,
    archived: bool,
    limit: int,
    after: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """List sessions, the latest first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.chat.sessions.list(agent=agent, workspace_root=workspace, include_archived=archived, limit=limit, after=after)
    if as_json:
        say_json({"items": [session.model_dump(mode="json") for session in page.items], "cursor": page.cursor})
    elif quiet:
        for session in page.items:
            say(inline(session.id))
    elif not page.items:
        say("No sessions.", err=True)
    else:
        head, *rows = columns([("SESSION", "AGENT", "WORKSPACE", "UPDATED (UTC)", "TOKENS", "TITLE"), *map(_row, page.items)])
        say(Paint()(head, bold=True))
        for row in rows:
            say(row)
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


def _row(session: ChatSession) -> tuple[str, ...]:
    title = session.metadata.get("title")
    shown = inline(title) if isinstance(title, str) else ""
    if session.archived_at is not None:
        shown = f"(archived) {shown}"
    return (
        inline(session.id),
        inline(session.agent),
        _last(inline(session.workspace_root or "-")),
        instant(session.updated_at),
        f"{session.total_tokens:,}",
        shown if len(shown) <= _TITLE else shown[: _TITLE - 1] + "…",
    )


def _last(path: str) -> str:
    """The end of a long path says more than its beginning."""
    return path if len(path) <= _WORKSPACE else "…" + path[-_WORKSPACE + 1 :]
