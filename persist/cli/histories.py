"""`persist histories`: conversations as agent frameworks keep them, and runs of agents with their steps."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list, shortened, tokens
from persist.errors import NotFound
from persist.histories.schemas import Entry, History, HistoryRun
from persist.store.transaction import Transaction

_AT_MOST = 300
_UNREGISTERED = "never registered"


@click.group(cls=Group, short_help="List and show conversations and runs of agent frameworks.")
def histories() -> None:
    """List and show conversations of agent frameworks, and runs of agents with their steps."""


@histories.command(short_help="List conversations, the one written last first.")
@on_named_database
@click.option("--scope", help="Only conversations of this scope, such as a user.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the ids alone.")
def ls(
    database: Database, as_json: bool, quiet: bool, limit: int = 20, after: str | None = None, scope: str | None = None
) -> None:
    """List conversations, the one written last first. With --json: an object with `items` and `cursor`, null on the last page."""
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.histories.records.list(scope=scope, limit=limit, after=after)
        are_runs = not page.items and bool(tx.histories.runs.list(limit=1).items)
    head = ("HISTORY", "SCOPE", "UPDATED (UTC)", "TOKENS", "BRANCHES", "FORKED FROM")
    _list([(one.id, one) for one in page.items], page.cursor, head, _history_row, "conversations", as_json, quiet)
    if are_runs and not (as_json or quiet):
        say("There are runs: persist histories runs", err=True)


@histories.command(short_help="List runs, the one that took a step last first.")
@on_named_database
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--after", metavar="CURSOR", help="The page after the one that ended with this cursor.")
@as_json
@quiet("Print the ids alone.")
def runs(database: Database, limit: int, after: str | None, as_json: bool, quiet: bool) -> None:
    """List runs, registered or not, the one that took a step last first.

    With --json: an object with `items` and `cursor`, null on the last page.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        page = tx.histories.runs.list(limit=limit, after=after)
    head = ("RUN", "AGENT", "STARTED (UTC)", "LAST STEP (UTC)", "CONVERSATION", "PARENT")
    _list([(one.id, one) for one in page.items], page.cursor, head, _run_row, "runs", as_json, quiet)


@histories.command(short_help="Print a conversation with its messages, or a run with its events.")
@click.argument("id")
@on_database
@click.option("--limit", type=click.IntRange(1), help="Only so many of the newest messages or events.")
@as_json
@quiet("Leave out what is known of it as a whole.")
def show(id: str, database: Database, as_json: bool, quiet: bool, limit: int | None = None) -> None:
    """Print a conversation with the messages of its history, or a run with its events; long values are cut.

    With --json everything is there: an object with `history` and `entries`, or with `run`, `events`, `snapshots` and
    `unresolved`, the tool calls of whose end nothing is known.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        history = tx.histories.records.find(id)
        if history is None:
            run, steps = _run_of(tx, id, limit)
        else:
            head = history.head_id
            entries = [] if head is None else tx.histories.entries.list(head, limit=limit)
    if as_json:
        said = steps if history is None else {"history": _plain(history), "entries": [_plain(entry) for entry in entries]}
        say_json(said)
        return
    if not quiet:
        _say_known(_known_of_run(run) if history is None else _known_of_history(history, len(entries)))
        say("")
    rows = _event_rows(steps["events"]) if history is None else [("ENTRY", "KIND", "MESSAGE"), *map(_entry_row, entries)]
    _table(rows)


def _run_of(tx: Transaction, id: str, limit: int | None) -> tuple[HistoryRun, dict[str, Any]]:
    try:
        found = tx.histories.runs.get(id)
    except NotFound:
        raise NotFound("history", id) from None
    events = tx.histories.run_events.list(id)
    snapshots = [one.snapshot for one in tx.histories.snapshots.list(id, include_interrupted=True)]
    unresolved = tx.histories.tool_effects.unresolved(id)
    listed: dict[str, Sequence[Any]] = {
        "events": events if limit is None else events[-limit:],
        "snapshots": snapshots,
        "unresolved": unresolved,
    }
    return found, {"run": _plain(found), **{name: [_plain(one) for one in many] for name, many in listed.items()}}


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json")


def _list(
    items: Sequence[tuple[str, Any]], cursor: str | None, head: tuple[str, ...], row: Any, what: str, as_json: bool, quiet: bool
) -> None:
    if as_json:
        say_json_list((_plain(one) for _, one in items), cursor)
    elif quiet:
        for id, _ in items:
            say(inline(id))
    elif not items:
        say(f"No {what}.", err=True)
    else:
        _table([head, *(row(one) for _, one in items)])
        if cursor is not None:
            say(f"There are more: add --after {cursor}", err=True)


def _history_row(found: History) -> tuple[str, ...]:
    return (
        inline(found.id),
        inline(found.scope or "-"),
        instant(found.updated_at),
        tokens(_tokens(found)),
        f"{len(found.branches):,}",
        inline(found.forked_from or "-"),
    )


def _run_row(found: HistoryRun) -> tuple[str, ...]:
    known = (found.conversation_id, found.parent_id)
    at = (_UNREGISTERED if found.started_at is None else instant(found.started_at), instant(found.updated_at))
    return (inline(found.id), inline(found.agent_name or "-"), *at, *(inline(one or "-") for one in known))


def _tokens(found: History) -> int:
    stored: object = found.usage
    usage = stored if isinstance(stored, dict) else {}  # another program may have written anything
    counts = (usage.get(name) for name in ("input_tokens", "output_tokens"))
    return sum(count for count in counts if type(count) is int)


def _known_of_history(found: History, count: int) -> Iterator[tuple[str, str]]:
    yield "history", inline(found.id)
    if found.scope is not None:
        yield "scope", inline(found.scope)
    if found.forked_from is not None:
        yield "forked", f"from {inline(found.forked_from)} at {inline(found.forked_at or 'its beginning')}"
    for branch in found.branches:
        yield "branch", inline(branch)
    yield "messages", f"{count:,}"
    yield "tokens", tokens(_tokens(found))
    if found.deferred is not None:
        yield "waits for", shortened(found.deferred, _AT_MOST)
    yield "created", f"{instant(found.created_at)} UTC"
    yield "updated", f"{instant(found.updated_at)} UTC"


def _known_of_run(found: HistoryRun) -> Iterator[tuple[str, str]]:
    yield "run", inline(found.id)
    for name, value in (
        ("agent", found.agent_name),
        ("conversation", found.conversation_id),
        ("parent", found.parent_id),
    ):
        if value is not None:
            yield name, inline(value)
    yield "started", _UNREGISTERED if found.started_at is None else f"{instant(found.started_at)} UTC"
    yield "last step", f"{instant(found.updated_at)} UTC"


def _say_known(known: Iterator[tuple[str, str]]) -> None:
    paint, rows = Paint(), list(known)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        say(f"{paint(name.ljust(width), dim=True)}  {value}")


def _entry_row(entry: Entry) -> tuple[str, ...]:
    message = entry.message
    kind = message.get("kind", entry.kind) if isinstance(message, dict) else entry.kind
    parts = message.get("parts") if isinstance(message, dict) else None
    said = [_part(part) for part in parts] if isinstance(parts, list) else []
    return inline(entry.id), inline(str(kind)), " · ".join(said) or shortened(message, _AT_MOST)


def _part(part: Any) -> str:
    """What a part of a message says, after what it is: its text, or a tool's name with its arguments or result."""
    if not isinstance(part, dict):
        return shortened(part, _AT_MOST)
    words = [str(part.get("part_kind", "part")), *(str(part[name]) for name in ("tool_name",) if name in part)]
    content = part.get("content", part.get("args"))
    return (
        f"{inline(' '.join(words))}: {inline(content[:_AT_MOST]) if isinstance(content, str) else shortened(content, _AT_MOST)}"
    )


def _event_rows(events: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("STEP", "EVENT", "AT (UTC)", "TOOL", "ERROR")]
    for event in events:
        at = str(event["at"])[:19].replace("T", " ")
        named = (inline(str(event[name] or "-")) for name in ("tool_name", "error"))
        rows.append((str(event["step_index"]), inline(event["kind"]), at, *named))
    return rows


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    first, *rest = columns(rows)
    say(Paint()(first, bold=True))
    for line in rest:
        say(line)
