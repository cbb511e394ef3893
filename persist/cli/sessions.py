"""`persist ls` and `persist show`: the latest sessions or runs of a domain, and a single one; by default chats."""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from persist.chat.schemas import ChatSession, UIMessage
from persist.chat.storage.turns import running_among
from persist.cli.database import Database, as_json, instead, on_database, place_of, quiet
from persist.cli.framework_state import find_app_session, find_transcript
from persist.cli.moving import found_in
from persist.cli.nouns import Answer, Table, facts, known, pages
from persist.cli.output import Paint, cost, cut, inline, model_name, printable, say, say_json_text, shortened, tokens
from persist.cli.root import COMMANDS
from persist.db.transactions.verb_frame import Verb
from persist.db.values.json import JsonText, encode
from persist.errors import NotFound
from persist.store.transaction import Transaction, work_of

_COLOURS = {"user": "green", "assistant": "cyan", "system": "magenta"}
_STATES = {"output-available": "green", "output-error": "red", "output-denied": "red"}


def message_lines(message: UIMessage, paint: Paint) -> Iterator[str]:
    """Who speaks, then every part in order."""
    role = str(message["role"])
    note = " (hidden)" if message.get("metadata", {}).get("hidden_at") is not None else ""
    yield f"{paint(role, fg=_COLOURS.get(role), bold=True)}  {paint(inline(message['id']) + note, dim=True)}"
    step = 0
    for part in message["parts"]:
        kind = part.get("type")
        if kind == "step-start":
            step += 1
            yield paint(f"  -- step {step}", dim=True)
        elif kind in ("text", "reasoning"):
            yield from _text_lines(part, paint, reasoning=kind == "reasoning")
        elif isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool"):
            yield from _tool_lines(part, paint)
        else:
            yield from _other_lines(part, paint)


def _text_lines(part: dict[str, Any], paint: Paint, *, reasoning: bool) -> Iterator[str]:
    lines = printable(str(part.get("text", ""))).split("\n")
    if part.get("state") == "streaming":
        lines[-1] += " … (not finished)"
    for line in lines:
        yield paint(f"  > {line}", dim=True) if reasoning else f"  {line}"


def _tool_lines(part: dict[str, Any], paint: Paint) -> Iterator[str]:
    kind, state = part["type"], inline(str(part.get("state", "?")))
    name = part.get("toolName", "?") if kind == "dynamic-tool" else kind.removeprefix("tool-")
    running = " (preliminary)" if part.get("preliminary") else ""
    call = paint(inline(str(part.get("toolCallId", ""))), dim=True)
    yield f"  tool {paint(inline(str(name)), bold=True)}  {paint(state + running, fg=_STATES.get(state, 'yellow'))}  {call}"
    if "input" in part:
        yield f"    input   {shortened(part['input'])}"
    elif "rawInput" in part:
        yield f"    input   {shortened(part['rawInput'])} (as it came)"
    approval = part.get("approval")
    if isinstance(approval, dict):
        yield f"    approval {shortened(approval)}"
    if "output" in part:
        yield f"    output  {shortened(part['output'])}"
    if "errorText" in part:
        yield f"    error   {paint(shortened(part['errorText']), fg='red')}"


def _other_lines(part: dict[str, Any], paint: Paint) -> Iterator[str]:
    kind = inline(str(part.get("type", "?")))
    match kind:
        case "source-url":
            shown = _words(part, "title", "url")
        case "source-document":
            shown = _words(part, "title", "filename", "mediaType")
        case "file":
            shown = _words(part, "filename", "mediaType", "url")
        case _:
            shown = shortened(part.get("data", {name: value for name, value in part.items() if name != "type"}))
    yield f"  {paint(kind, fg='blue')}  {shown}"


def _words(part: dict[str, Any], *names: str) -> str:
    return "  ".join(shortened(part[name], 120) for name in names if part.get(name))


F = TypeVar("F", bound=Callable[..., Any])
_WORKSPACE, _TITLE = 30, 60
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

_DOMAINS = sorted({*_KINDS, "consumers", "events", "telemetry"})
"""What `persist ls` lists: whatever `persist show` finds, and what has no id of its own."""


def _group(domain: str) -> str:
    return "runs" if domain == "workflows" else domain


def _command_of(domain: str, name: str) -> click.Command:
    module, group, _ = COMMANDS[_group(domain)]
    return getattr(import_module(module), group).commands[name]  # type: ignore[no-any-return]  # a group of click


def _on_domain(command: F) -> F:
    """DATABASE and DOMAIN, either of which may be left out; the command receives `domain` and `database`."""
    with_options = on_database(command)

    def run(*args: Any, words: Sequence[str] = (), **rest: Any) -> Any:
        chosen = [word for word in words if word in _DOMAINS]
        named = [word for word in words if word not in chosen]
        if len(chosen) > 1 or len(named) > 1:
            raise click.UsageError(f"One DATABASE and one DOMAIN at most, and a domain is one of {', '.join(_DOMAINS)}.")
        if named and not Path(named[0]).suffix and isinstance(place_of(named[0]), Path) and not Path(named[0]).exists():
            close = get_close_matches(named[0], _DOMAINS, 3)
            meant = f" Did you mean {' or '.join(close)}?" if close else ""
            raise click.UsageError(f"{inline(repr(named[0]))} is neither a domain nor a file.{meant}")
        options = instead(named[0] if named else None, rest)
        return with_options(*args, domain=chosen[0] if chosen else _CHAT, **options)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__dict__.update(with_options.__dict__)
    return click.argument("words", nargs=-1, metavar="[DATABASE] [DOMAIN]")(run)  # type: ignore[return-value]  # click's options


@click.command(short_help="List the latest sessions or runs of a domain.")
@_on_domain
@click.option("--agent", help="Only chats of this agent.")
@click.option("--workspace", help="Only chats with this workspace root.")
@click.option("--owner", help="Only chats of this owner.")
@click.option("--archived", is_flag=True, help="Archived chats too.")
@pages()
@as_json
@quiet("Print the ids alone.")
@click.pass_context
def ls(
    ctx: click.Context,
    domain: str,
    database: Database,
    agent: str | None,
    workspace: str | None,
    owner: str | None,
    archived: bool,
    limit: int,
    after: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """List the latest of a domain, of chats without DOMAIN.

    DATABASE is a file or a URL, instead of --url. DOMAIN is {domains}. The groups of commands have more filters. A chat that is
    being answered is marked as running, and chats show their owners where any has one. With --json: an object with `items` and
    `cursor`, null on the last page.
    """
    if domain != _CHAT:
        if archived or any(one is not None for one in (agent, workspace, owner)):
            raise click.UsageError(
                f"--agent, --workspace, --owner and --archived are for chats; see `persist {_group(domain)} ls -h`."
            )
        command = _command_of(domain, "ls")
        has_pages = any(param.name == "after" for param in command.params)
        if after is not None and not has_pages:
            raise click.UsageError(f"The list of {domain} has no pages.")
        where = {"url": database.url, "schema": database.schema, **({"after": after} if has_pages else {})}
        ctx.invoke(command, limit=limit, as_json=as_json, quiet=quiet, **where)
        return
    wanted: dict[str, Any] = {"agent": agent, "workspace_root": workspace, "owner": owner, "include_archived": archived}
    with database.open(read_only=True) as store, store.read() as tx:
        answer = listed_chats(tx, quiet=quiet, **wanted, limit=limit, after=after)
    answer.say(as_json=as_json, quiet=quiet)


*_first, _last_domain = _DOMAINS
ls.help = str(ls.help).format(domains=f"{', '.join(_first)} or {_last_domain}".replace("consumers", "consumers (of events)"))


def listed_chats(tx: Transaction, *, quiet: bool = False, **wanted: Any) -> Answer:
    """The answer of `persist ls` for the chats that `tx.chat.sessions.list` finds. `quiet`: nobody asks which of them run."""
    page = tx.chat.sessions.list(**wanted)
    running = set() if quiet else running_chats(tx, "ls", *page.items)
    return _table(running, owners=any(one.owner is not None for one in page.items)).page(page)


def _table(running: AbstractSet[str], *, owners: bool) -> Table[ChatSession]:
    def row(session: ChatSession) -> tuple[object, ...]:
        title = session.metadata.get("title")
        shown = title if isinstance(title, str) else ""
        shown = shown if session.archived_at is None else f"(archived) {shown}"
        return (
            session.id,
            session.agent,
            *([session.owner or "-"] if owners else []),
            _last(inline(session.workspace_root or "-")),
            session.updated_at,
            tokens(session.total_tokens),
            cut(f"(running) {shown}" if session.id in running else shown, _TITLE),
        )

    return Table(
        "No sessions.",
        ("SESSION", "AGENT", *(["OWNER"] if owners else []), "WORKSPACE", "UPDATED (UTC)", "TOKENS", "TITLE"),
        row,
        json=lambda one: _fields(one, running=one.id in running),
    )


def _fields(session: ChatSession, *, running: bool) -> dict[str, Any]:
    return {**session.model_dump(mode="json"), "running": running}


def running_chats(tx: Transaction, command: str, *found: ChatSession) -> AbstractSet[str]:
    """The ids of those that are being answered. `command`: who asks, as the metrics of the store name it."""
    with Verb(work_of(tx), command, writes=False):
        return running_among(work_of(tx), [one.id for one in found])


def _last(path: str) -> str:
    return path if len(path) <= _WORKSPACE else "…" + path[-_WORKSPACE + 1 :]


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

    Long values are cut; with --json everything is there: a chat is an object with `session`, which has `running`, too, and
    `messages`, hydrated for the AI SDK; other domains print the JSON of their own `show`.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        kind = _kind_of(tx, id) if domain is None else domain
        if kind == _CHAT:
            if as_json:
                text = chat_as_json(tx, id, hidden=hidden)
            else:
                found = tx.chat.sessions.get(id)
                running = bool(running_chats(tx, "show", found))
                listed = tx.chat.messages.list(id, include_hidden=hidden, files="reference")
    if kind != _CHAT:
        if hidden:
            raise click.UsageError(f"--hidden is for chats, and this is {_KINDS[kind][0]}.")
        command = _command_of(kind, "show")
        (argument,) = (str(param.name) for param in command.params if isinstance(param, click.Argument))
        ctx.invoke(command, as_json=as_json, quiet=quiet, url=database.url, schema=database.schema, **{argument: id})
        return
    if as_json:
        say_json_text(text)
        return
    paint = Paint()
    if not quiet:
        for line in known(_facts(found, len(listed), running=running)):
            say(line)
    for message in listed:
        say("\n".join(["", *message_lines(message, paint)]))


def chat_as_json(tx: Transaction, id: str, *, hidden: bool = False) -> JsonText:
    """What `persist show --json` prints of a chat, joined from stored text. Raises NotFound."""
    found = tx.chat.sessions.get(id)
    session = encode(_fields(found, running=bool(running_chats(tx, "show", found))))
    messages = tx.chat.messages.list_json(id, include_hidden=hidden).decode()
    return JsonText(f'{{"session":{session},"messages":{messages}}}')


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


def _facts(session: ChatSession, count: int, *, running: bool) -> Iterator[tuple[str, object]]:
    title = session.metadata.get("title")
    yield "session", session.id
    yield "title", title if isinstance(title, str) else None
    yield "agent", session.agent
    yield "owner", session.owner
    yield "state", "running" if running else None
    yield "model", model_name(session.model)
    yield "workspace", session.workspace_root
    if session.parent_id is not None:
        yield "forked", f"from {session.parent_id} at {session.parent_message_id or '?'}"
    yield "messages", count
    yield "tokens", _tokens(session)
    yield "cost", cost(session.cost_usd)
    yield from facts(session, created="created_at", updated="updated_at", archived="archived_at")


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
