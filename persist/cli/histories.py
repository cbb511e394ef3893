"""`persist histories`: conversations as agent frameworks keep them, and runs of agents with their steps."""

from collections.abc import Iterator
from typing import Any

import click

from persist.cli.nouns import Answer, Noun, Table, pages, shown, table
from persist.cli.output import inline, shortened, tokens
from persist.errors import NotFound
from persist.framework_state.histories.schemas import Entry, History, HistoryRun
from persist.store.transaction import Transaction

_AT_MOST = 300
_UNREGISTERED = "never registered"
histories = Noun("histories", "List and show conversations of agent frameworks, and runs of agents with their steps.")
HISTORIES = Table[History](
    "No conversations.",
    ("HISTORY", "SCOPE", "UPDATED (UTC)", "TOKENS", "BRANCHES", "FORKED FROM"),
    lambda found: (
        found.id,
        found.scope or "-",
        found.updated_at,
        tokens(_tokens(found)),
        len(found.branches),
        found.forked_from or "-",
    ),
)
RUNS = Table[HistoryRun](
    "No runs.",
    ("RUN", "AGENT", "STARTED (UTC)", "LAST STEP (UTC)", "CONVERSATION", "PARENT"),
    lambda found: (
        found.id,
        found.agent_name or "-",
        found.started_at or _UNREGISTERED,
        found.updated_at,
        found.conversation_id or "-",
        found.parent_id or "-",
    ),
)


@histories.reads("ls", "List conversations, the one written last first.")
@click.option("--scope", help="Only conversations of this scope, such as a user.")
@pages()
def ls(tx: Transaction, **wanted: Any) -> Answer:
    """List conversations, the one written last first. With --json: an object with `items` and `cursor`, null on the last page."""
    page = tx.histories.records.list(**wanted)
    are_runs = not page.items and bool(tx.histories.runs.list(limit=1).items)
    return HISTORIES.page(page, "There are runs: persist histories runs" if are_runs else None)


@histories.reads("runs", "List runs, the one that took a step last first.")
@pages()
def runs(tx: Transaction, **wanted: Any) -> Answer:
    """List runs, registered or not, the one that took a step last first.

    With --json: an object with `items` and `cursor`, null on the last page.
    """
    return RUNS.page(tx.histories.runs.list(**wanted))


@histories.reads(
    "show", "Print a conversation with its messages, or a run with its events.", quiet="Leave out what is known of it as a whole."
)
@click.argument("id")
@click.option("--limit", type=click.IntRange(1), help="Only so many of the newest messages or events.")
def show(tx: Transaction, id: str, limit: int | None) -> Answer:
    """Print a conversation with the messages of its history, or a run with its events; long values are cut.

    With --json everything is there: an object with `history` and `entries`, or with `run`, `events`, `snapshots` and
    `unresolved`, the tool calls of whose end nothing is known.
    """
    history = tx.histories.records.find(id)
    if history is None:
        return _run(tx, id, limit)
    entries = [] if history.head_id is None else tx.histories.entries.list(history.head_id, limit=limit)
    return shown(
        {"history": history, "entries": entries},
        _facts_of_history(history, len(entries)),
        table(("ENTRY", "KIND", "MESSAGE"), map(_entry_row, entries)),
    )


def _run(tx: Transaction, id: str, limit: int | None) -> Answer:
    try:
        found = tx.histories.runs.get(id)
    except NotFound:
        raise NotFound("history", id) from None
    events = tx.histories.run_events.list(id)
    events = events if limit is None else events[-limit:]
    snapshots = [one.snapshot for one in tx.histories.snapshots.list(id, include_interrupted=True)]
    unresolved = tx.histories.tool_effects.unresolved(id)
    return shown(
        {"run": found, "events": events, "snapshots": snapshots, "unresolved": unresolved},
        (
            ("run", found.id),
            ("agent", found.agent_name),
            ("conversation", found.conversation_id),
            ("parent", found.parent_id),
            ("started", found.started_at or _UNREGISTERED),
            ("last step", found.updated_at),
        ),
        table(
            ("STEP", "EVENT", "AT (UTC)", "TOOL", "ERROR"),
            ((str(one.step_index), one.kind, one.at, one.tool_name or "-", one.error or "-") for one in events),
        ),
    )


def _tokens(found: History) -> int:
    stored: object = found.usage
    usage = stored if isinstance(stored, dict) else {}  # another program may have written anything
    counts = (usage.get(name) for name in ("input_tokens", "output_tokens"))
    return sum(count for count in counts if type(count) is int)


def _facts_of_history(found: History, count: int) -> Iterator[tuple[str, object]]:
    yield "history", found.id
    yield "scope", found.scope
    if found.forked_from is not None:
        yield "forked", f"from {found.forked_from} at {found.forked_at or 'its beginning'}"
    yield from (("branch", branch) for branch in found.branches)
    yield "messages", count
    yield "tokens", tokens(_tokens(found))
    yield "waits for", None if found.deferred is None else shortened(found.deferred, _AT_MOST)
    yield "created", found.created_at
    yield "updated", found.updated_at


def _entry_row(entry: Entry) -> tuple[object, ...]:
    message = entry.message
    kind = message.get("kind", entry.kind) if isinstance(message, dict) else entry.kind
    parts = message.get("parts") if isinstance(message, dict) else None
    said = [_part(part) for part in parts] if isinstance(parts, list) else []
    return entry.id, str(kind), " · ".join(said) or shortened(message, _AT_MOST)


def _part(part: Any) -> str:
    """A part of a message: its kind, then its text, or a tool's name with the arguments or the result."""
    if not isinstance(part, dict):
        return shortened(part, _AT_MOST)
    words = [str(part.get("part_kind", "part")), *(str(part[name]) for name in ("tool_name",) if name in part)]
    content = part.get("content", part.get("args"))
    return (
        f"{inline(' '.join(words))}: {inline(content[:_AT_MOST]) if isinstance(content, str) else shortened(content, _AT_MOST)}"
    )
