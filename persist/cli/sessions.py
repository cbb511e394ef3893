"""`persist ls`: the latest of what a domain has; chats have no other list."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from persist.chat.schemas import ChatSession
from persist.chat.storage.turns import running_among
from persist.cli.database import Database, as_json, instead, on_database, place_of, quiet
from persist.cli.output import Paint, columns, inline, instant, say, say_json_list, tokens
from persist.db.transactions.verb_frame import Verb
from persist.store.transaction import work_of

F = TypeVar("F", bound=Callable[..., Any])

_WORKSPACE, _TITLE = 30, 60
_CHAT = "chat"
_GROUPS = {
    "agent_tasks": "agent_tasks",
    "app_sessions": "app_sessions",
    "blobs": "blobs",
    "checkpoints": "checkpoints",
    "consumers": "consumers",
    "conversations": "conversations",
    "events": "events",
    "histories": "histories",
    "messaging": "messaging",
    "programs": "programs",
    "replay_streams": "replay_streams",
    "telemetry": "telemetry",
    "transcripts": "transcripts",
    "workflows": "runs",
}
"""The group of commands whose `ls` lists a domain."""
_WITHOUT_PAGES = {"consumers", "events", "programs", "telemetry"}


def command_of(domain: str, name: str) -> click.Command:
    """`ls` or `show` of a domain that has commands of its own."""
    group = getattr(import_module(f"persist.cli.{_GROUPS[domain]}"), _GROUPS[domain])
    assert isinstance(group, click.Group)
    return group.commands[name]


def _on_domain(command: F) -> F:
    """DATABASE and DOMAIN, either of which may be left out; the command receives `domain` and `database`."""
    with_options = on_database(command)

    def run(*args: Any, words: Sequence[str] = (), **rest: Any) -> Any:
        domains = [word for word in words if word in (_CHAT, *_GROUPS)]
        named = [word for word in words if word not in domains]
        if len(domains) > 1 or len(named) > 1:
            known = ", ".join((_CHAT, *_GROUPS))
            raise click.UsageError(f"One DATABASE and one DOMAIN at most, and a domain is one of {known}.")
        if named and not Path(named[0]).suffix and isinstance(place_of(named[0]), Path) and not Path(named[0]).exists():
            close = get_close_matches(named[0], (_CHAT, *_GROUPS), 3)
            meant = f" Did you mean {' or '.join(close)}?" if close else ""
            raise click.UsageError(f"{inline(repr(named[0]))} is neither a domain nor a file.{meant}")
        options = instead(named[0] if named else None, rest)
        return with_options(*args, domain=domains[0] if domains else _CHAT, **options)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__dict__.update(with_options.__dict__)
    return click.argument("words", nargs=-1, metavar="[DATABASE] [DOMAIN]")(run)  # type: ignore[return-value]  # click's options


@click.command(short_help="List the latest sessions or runs of a domain.")
@_on_domain
@click.option("--agent", help="Only chats of this agent.")
@click.option("--workspace", help="Only chats with this workspace root.")
@click.option("--owner", help="Only chats of this owner.")
@click.option("--archived", is_flag=True, help="Archived chats too.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
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

    DATABASE is a file or a URL, instead of --url. DOMAIN is agent_tasks, app_sessions, blobs, chat, checkpoints, consumers (of
    events), conversations, events, histories, messaging, programs, replay_streams, telemetry, transcripts or workflows. The
    groups of commands have more filters. A chat that is being answered is marked as running, and chats show their owners
    where any has one. With --json: an object with `items` and `cursor`, null on the last page.
    """
    if domain != _CHAT:
        if archived or any(one is not None for one in (agent, workspace, owner)):
            raise click.UsageError(
                f"--agent, --workspace, --owner and --archived are for chats; see `persist {_GROUPS[domain]} ls -h`."
            )
        if after is not None and domain in _WITHOUT_PAGES:
            raise click.UsageError(f"The list of {domain} has no pages.")
        page_after = {} if domain in _WITHOUT_PAGES else {"after": after}
        where = {"url": database.url, "schema": database.schema}
        ctx.invoke(command_of(domain, "ls"), limit=limit, as_json=as_json, quiet=quiet, **where, **page_after)
        return
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.chat.sessions.list(
            agent=agent, workspace_root=workspace, owner=owner, include_archived=archived, limit=limit, after=after
        )
        with Verb(work_of(tx), "ls", writes=False):
            running = set() if quiet else running_among(work_of(tx), [one.id for one in page.items])
    if as_json:
        say_json_list(({**one.model_dump(mode="json"), "running": one.id in running} for one in page.items), page.cursor)
    elif quiet:
        for session in page.items:
            say(inline(session.id))
    elif not page.items:
        say("No sessions.", err=True)
    else:
        named = any(one.owner is not None for one in page.items)
        titles = ("SESSION", "AGENT", *(["OWNER"] if named else []), "WORKSPACE", "UPDATED (UTC)", "TOKENS", "TITLE")
        head, *rows = columns([titles, *(_row(one, running=one.id in running, named=named) for one in page.items)])
        say(Paint()(head, bold=True))
        for row in rows:
            say(row)
        if page.cursor is not None:
            say(f"There are more: add --after {page.cursor}", err=True)


def _row(session: ChatSession, *, running: bool, named: bool) -> tuple[str, ...]:
    title = session.metadata.get("title")
    shown = inline(title) if isinstance(title, str) else ""
    if session.archived_at is not None:
        shown = f"(archived) {shown}"
    if running:
        shown = f"(running) {shown}"
    return (
        inline(session.id),
        inline(session.agent),
        *([inline(session.owner or "-")] if named else []),
        _last(inline(session.workspace_root or "-")),
        instant(session.updated_at),
        tokens(session.total_tokens),
        shown if len(shown) <= _TITLE else shown[: _TITLE - 1] + "…",
    )


def _last(path: str) -> str:
    """The end of a long path says more than its beginning."""
    return path if len(path) <= _WORKSPACE else "…" + path[-_WORKSPACE + 1 :]
