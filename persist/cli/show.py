"""`persist show`: a chat's transcript, or whatever else has that id."""

from collections.abc import Callable, Iterator

import click

from persist.chat.schemas import ChatSession
from persist.cli.app_sessions import find_app_session
from persist.cli.blobs import found_in
from persist.cli.database import Database, as_json, on_database, quiet
from persist.cli.output import Paint, columns, cost, inline, instant, model_name, say, say_json_text, tokens
from persist.cli.sessions import command_of
from persist.cli.transcript import message_lines
from persist.cli.transcripts import find_transcript
from persist.db.values.json import encode
from persist.errors import NotFound
from persist.store.transaction import Transaction

_CHAT = "chat"
_KINDS: dict[str, tuple[str, Callable[[Transaction, str], object]]] = {
    _CHAT: ("a chat session", lambda tx, id: tx.chat.sessions.get(id)),
    "workflows": ("a workflow run", lambda tx, id: tx.workflows.runs.get(id)),
    "conversations": ("a conversation", lambda tx, id: tx.conversations.sessions.get(id)),
    "messaging": ("a messaging session", lambda tx, id: tx.messaging.sessions.get(id)),
    "programs": ("a program's run", lambda tx, id: tx.programs.runs.get(id)),
    "agent_tasks": ("an agent's task", lambda tx, id: tx.agent_tasks.tasks.by_id(id)),
    "app_sessions": ("a session of an application", lambda tx, id: find_app_session(tx, id)),
    "blobs": ("a blob", lambda tx, id: found_in(tx, id)),
    "checkpoints": ("a thread", lambda tx, id: tx.checkpoints.threads.get(id)),
    "histories": ("a history", lambda tx, id: tx.histories.records.find(id) or tx.histories.runs.get(id)),
    "replay_streams": ("a replay session", lambda tx, id: tx.replay_streams.sessions.get(id)),
    "transcripts": ("a transcript", lambda tx, id: find_transcript(tx, id)),
}
_ARGUMENTS = {
    "agent_tasks": "task",
    "app_sessions": "session",
    "blobs": "digest",
    "checkpoints": "thread",
    "conversations": "session",
    "histories": "id",
    "messaging": "session",
    "replay_streams": "session",
    "transcripts": "session",
}
"""What the `show` of a domain calls the id; of the others "run"."""


@click.command(short_help="Print a session or run, whatever its kind.")
@click.argument("id")
@on_database
@click.option("--domain", type=click.Choice(list(_KINDS)), help="Which of several that have this id.")
@click.option("--hidden", is_flag=True, help="Of a chat: messages that a rewind or a cancellation hid, too.")
@as_json
@quiet("Leave out what is known of it as a whole.")
@click.pass_context
def show(ctx: click.Context, id: str, database: Database, domain: str | None, hidden: bool, as_json: bool, quiet: bool) -> None:
    """Print what has this id: a session of any domain, a run, a thread, a history or a transcript.

    Long values are cut; with --json everything is there: of a chat an object with `session` and `messages`, these as the AI
    SDK hydrates them, of the others what the `show` of their own commands prints.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        kind = _kind_of(tx, id) if domain is None else domain
        if kind == _CHAT:
            found = tx.chat.sessions.get(id)
            if as_json:
                messages = tx.chat.messages.list_json(id, include_hidden=hidden).decode()
            else:
                listed = tx.chat.messages.list(id, include_hidden=hidden, files="reference")
    if kind != _CHAT:
        if hidden:
            raise click.UsageError(f"--hidden is for chats, and this is {_KINDS[kind][0]}.")
        key = _ARGUMENTS.get(kind, "run")
        where = {"url": database.url, "schema": database.schema}
        ctx.invoke(command_of(kind, "show"), as_json=as_json, quiet=quiet, **where, **{key: id})
        return
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


def _kind_of(tx: Transaction, id: str) -> str:
    """The domain in which something has this id. Raises NotFound, or a usage error where there are several."""
    kinds = [domain for domain, (_, get) in _KINDS.items() if _has(get, tx, id)]
    if not kinds:
        raise NotFound("session or run", id)
    if len(kinds) > 1:
        several = " and ".join(_KINDS[domain][0] for domain in kinds)
        raise click.UsageError(f"{id!r} is the id of {several}; say which with --domain {'|'.join(kinds)}.")
    return kinds[0]


def _has(get: Callable[[Transaction, str], object], tx: Transaction, id: str) -> bool:
    try:
        get(tx, id)
    except NotFound:
        return False
    return True


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
    yield "cost", cost(session.cost_usd)
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
    return tokens(session.total_tokens) + (f" ({of})" if of else "")
