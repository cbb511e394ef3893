"""`persist show`: one session's transcript."""

from collections.abc import Iterator

import click

from persist.chat.schemas import ChatSession
from persist.cli.database import Database, as_json, on_database, quiet
from persist.cli.output import Paint, columns, inline, instant, model_name, say, say_json_text
from persist.cli.transcript import message_lines
from persist.db.json import encode


@click.command(short_help="Print a session's transcript.")
@click.argument("session")
@on_database
@click.option("--hidden", is_flag=True, help="Messages that a rewind or a cancellation hid, too.")
@as_json
@quiet("Leave out what is known of the session as a whole.")
def show(session: str, database: Database, hidden: bool, as_json: bool, quiet: bool) -> None:
    """Print a session's transcript, as it is stored at this moment.

    Long inputs and outputs of tools are cut; with --json everything is there: an object with `session` and `messages`, these
    as the AI SDK hydrates them.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.chat.sessions.get(session)
        if as_json:
            messages = tx.chat.messages.list_json(session, include_hidden=hidden).decode()
        else:
            listed = tx.chat.messages.list(session, include_hidden=hidden)
    if as_json:
        say_json_text(f'{{"session":{encode(found.model_dump(mode="json"))},"messages":{messages}}}')
        return
    paint = Paint()
    if not quiet:
        for line in columns(_header(found, len(listed))):
            name, _, value = line.partition(" ")
            say(f"{paint(name, dim=True)} {value}")
    for message in listed:
        say("\n".join(["", *message_lines(message, paint)]))


def _header(session: ChatSession, count: int) -> Iterator[tuple[str, str]]:
    yield "session", inline(session.id)
    title = session.metadata.get("title")
    if isinstance(title, str):
        yield "title", inline(title)
    yield "agent", inline(session.agent)
    yield "model", model_name(session.model)
    if session.workspace_root is not None:
        yield "workspace", inline(session.workspace_root)
    if session.parent_id is not None:
        yield "forked", f"from {inline(session.parent_id)} at {inline(session.parent_message_id or '?')}"
    yield "messages", f"{count:,}"
    yield "tokens", _tokens(session)
    yield "cost", f"${session.cost_usd:,.4f}"
    yield "created", f"{instant(session.created_at)} UTC"
    yield "updated", f"{instant(session.updated_at)} UTC"
    if session.archived_at is not None:
        yield "archived", f"{instant(session.archived_at)} UTC"


def _tokens(session: ChatSession) -> str:
    counts = {
        "input": session.prompt_tokens,
        "output": session.completion_tokens,
        "reasoning": session.reasoning_tokens,
        "cache read": session.cache_read,
        "cache write": session.cache_write,
    }
    of = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    return f"{session.total_tokens:,}" + (f" ({of})" if of else "")
