"""`persist telemetry`: what instances of agents do and use."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from persist.cli.database import Database, as_json, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list, shortened
from persist.telemetry.schemas import GithubLink, StatusEntry, ToolCall, UsageTotals

F = TypeVar("F", bound=Callable[..., Any])

_MILLION = 1_000_000


def _instance(command: F) -> F:
    return click.option("--instance", metavar="ID", help="Of which instance; without it a SQLite file's own.")(command)


def _limit(maximum: int) -> Callable[[F], F]:
    return click.option("--limit", type=click.IntRange(1, maximum), default=20, show_default=True, help="How many.")


@click.group(cls=Group, short_help="Status, usage, tool calls and links of agent instances.")
def telemetry() -> None:
    """Status, usage, tool calls and links of agent instances."""


@telemetry.command(short_help="List instances and their status.")
@on_named_database
@_limit(1000)
@as_json
@quiet("Print the ids alone.")
def ls(database: Database, limit: int, as_json: bool, quiet: bool) -> None:
    """List instances and their status, those that changed last first. With --json: an object with `items` and `cursor`."""
    with database.open(read_only=True) as store, store.read() as tx:
        entries = tx.telemetry.status.latest(limit=limit)
    if as_json:
        say_json_list(entry.model_dump(mode="json") for entry in entries)
    elif quiet:
        for entry in entries:
            say(inline(entry.instance_id))
    else:
        rows = [(inline(entry.instance_id or "-"), entry.new_status, instant(entry.occurred_at)) for entry in entries]
        _table(("INSTANCE", "STATUS", "SINCE (UTC)"), [(id, inline(word), at) for id, word, at in rows], "No instances.")


@telemetry.command(short_help="Print the last changes of an instance's status.")
@on_named_database
@_instance
@_limit(10_000)
@as_json
@quiet("Print the current status alone.")
def status(database: Database, instance: str | None, limit: int, as_json: bool, quiet: bool) -> None:
    """Print the last changes of an instance's status, the newest last. With --json: an object with `items` and `cursor`."""
    with database.open(read_only=True) as store, store.read() as tx:
        entries = tx.telemetry.status.history(limit=limit, instance_id=instance)
    if as_json:
        say_json_list(entry.model_dump(mode="json") for entry in entries)
    elif quiet:
        for entry in entries[-1:]:
            say(inline(entry.new_status))
    else:
        _table(("SINCE (UTC)", "STATUS", "METADATA"), map(_status, entries), "No status.")


@telemetry.command(short_help="Sum up tokens and cost.")
@on_named_database
@_instance
@as_json
@quiet("Print the cost of today alone.")
def usage(database: Database, instance: str | None, as_json: bool, quiet: bool) -> None:
    """Sum up tokens and cost, of today and of everything that is kept.

    "today" begins at midnight where you are. "-" is unknown. With --json: an object with `today` and `kept`.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        today, kept = tx.telemetry.usage.today(instance_id=instance), tx.telemetry.usage.totals(instance_id=instance)
    if as_json:
        say_json({"today": today.model_dump(mode="json"), "kept": kept.model_dump(mode="json")})
    elif quiet:
        say(_cost(today.cost_usd_micros))
    else:
        head = ("", "SECONDS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "COST")
        _table(head, [("today", *_usage(today)), ("kept", *_usage(kept))], "")


@telemetry.command(short_help="List the last tool calls.")
@on_named_database
@_instance
@click.option("--tool", metavar="NAME", help="Only calls of this tool.")
@click.option("--failures", is_flag=True, help="Only calls that failed.")
@_limit(10_000)
@as_json
@quiet("Print the names of the tools alone.")
def tools(
    database: Database, instance: str | None, tool: str | None, failures: bool, limit: int, as_json: bool, quiet: bool
) -> None:
    """List the last tool calls, the newest first. With --json: an object with `items` and `cursor`."""
    with database.open(read_only=True) as store, store.read() as tx:
        calls = tx.telemetry.tools.last(limit, tool_key=tool, failures_only=failures, instance_id=instance)
    if as_json:
        say_json_list(call.model_dump(mode="json") for call in calls)
    elif quiet:
        for call in calls:
            say(inline(call.tool_key))
    else:
        _table(("AT (UTC)", "TOOL", "EXIT", "MS"), map(_call, calls), "No tool calls.")


@telemetry.command(short_help="List what is known of links.")
@on_named_database
@_instance
@click.option("--due", is_flag=True, help="Only those to be fetched again now, the longest due first.")
@as_json
@quiet("Print the URLs alone.")
def links(database: Database, instance: str | None, due: bool, as_json: bool, quiet: bool) -> None:
    """List what is known of links to issues and pull requests. With --json: an object with `items` and `cursor`."""
    with database.open(read_only=True) as store, store.read() as tx:
        known = tx.telemetry.links
        found = known.due(limit=1000, instance_id=instance) if due else known.list(instance_id=instance)
    if as_json:
        say_json_list(link.model_dump(mode="json") for link in found)
    elif quiet:
        for link in found:
            say(inline(link.url))
    else:
        _table(("URL", "STATE", "FETCHED (UTC)", "AGAIN AFTER (UTC)", "ERROR"), map(_link, found), "No links.")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], nothing: str) -> None:
    first, *lines = columns([head, *rows])
    if not lines:
        say(nothing, err=True)
        return
    say(Paint()(first, bold=True))
    for line in lines:
        say(line)


def _status(entry: StatusEntry) -> tuple[str, ...]:
    metadata = "" if entry.metadata is None else shortened(entry.metadata, 80)
    return instant(entry.occurred_at), inline(entry.new_status), metadata


def _usage(totals: UsageTotals) -> tuple[str, ...]:
    counts = (totals.token_input, totals.token_output, totals.token_cache_read, totals.token_cache_write)
    return (f"{totals.samples:,}", *map(_count, counts), _cost(totals.cost_usd_micros))


def _call(call: ToolCall) -> tuple[str, ...]:
    return instant(call.occurred_at), inline(call.tool_key), _count(call.exit_code), _count(call.duration_ms)


def _link(link: GithubLink) -> tuple[str, ...]:
    states = (link.issue_state, link.pr_state, link.build_state, link.review_state, "draft" if link.pr_is_draft else None)
    fetched = instant(link.fetched_at) if link.fetched_at.timestamp() else "never"
    error = "" if link.last_error is None else shortened(link.last_error, 60)
    known = ", ".join(inline(state) for state in states if state is not None) or "-"
    return inline(link.url), known, fetched, instant(link.refresh_after), error


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _cost(micros: int | None) -> str:
    return "-" if micros is None else f"${micros // _MILLION:,}.{micros % _MILLION:06}"
