"""`persist telemetry`: what instances of agents do and use."""

from dataclasses import replace
from typing import Any

import click

from persist.cli.nouns import Answer, Noun, Table, limit, table
from persist.cli.output import inline, shortened
from persist.store.transaction import Transaction
from persist.telemetry.schemas import GithubLink, StatusEntry, ToolCall, UsageTotals

_MILLION = 1_000_000
_instance = click.option("--instance", "instance_id", metavar="ID", help="Of which instance; without it a SQLite file's own.")

telemetry = Noun("telemetry", "Status, usage, tool calls and links of agent instances.")
INSTANCES = Table[StatusEntry](
    "No instances.",
    ("INSTANCE", "STATUS", "SINCE (UTC)"),
    lambda entry: (entry.instance_id or "-", entry.new_status, entry.occurred_at),
    name=lambda entry: entry.instance_id or "",
)
STATUSES = Table[StatusEntry](
    "No status.",
    ("SINCE (UTC)", "STATUS", "METADATA"),
    lambda entry: (entry.occurred_at, entry.new_status, "" if entry.metadata is None else shortened(entry.metadata, 80)),
    name=lambda entry: entry.new_status,
)
TOOLS = Table[ToolCall](
    "No tool calls.",
    ("AT (UTC)", "TOOL", "EXIT", "MS"),
    lambda call: (call.occurred_at, call.tool_key, call.exit_code, call.duration_ms),
    name=lambda call: call.tool_key,
)
LINKS = Table[GithubLink](
    "No links.",
    ("URL", "STATE", "FETCHED (UTC)", "AGAIN AFTER (UTC)", "ERROR"),
    lambda link: (
        link.url,
        _states(link),
        link.fetched_at if link.fetched_at.timestamp() else "never",
        link.refresh_after,
        "" if link.last_error is None else shortened(link.last_error, 60),
    ),
    name=lambda link: link.url,
)


@telemetry.reads("ls", "List instances and their status.")
@limit()
def ls(tx: Transaction, limit: int) -> Answer:
    """List instances and their status, those that changed last first. With --json: an object with `items` and `cursor`."""
    return INSTANCES.all(tx.telemetry.status.latest(limit=limit))


@telemetry.reads("status", "Print the last changes of an instance's status.", quiet="Print the current status alone.")
@_instance
@limit(maximum=10_000)
def status(tx: Transaction, **wanted: Any) -> Answer:
    """Print the last changes of an instance's status, the newest last. With --json: an object with `items` and `cursor`."""
    entries = tx.telemetry.status.history(**wanted)
    return replace(STATUSES.all(entries), quiet=(inline(entry.new_status) for entry in entries[-1:]))


@telemetry.reads("usage", "Sum up tokens and cost.", quiet="Print the cost of today alone.")
@_instance
def usage(tx: Transaction, instance_id: str | None) -> Answer:
    """Sum up tokens and cost, of today and of everything that is kept.

    "today" begins at midnight where you are. "-" is unknown. With --json: an object with `today` and `kept`.
    """
    usage = tx.telemetry.usage
    sums = {"today": usage.today(instance_id=instance_id), "kept": usage.totals(instance_id=instance_id)}
    head = ("", "SECONDS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "COST")
    return Answer(
        sums,
        table(head, ((name, *_totals(totals)) for name, totals in sums.items())),
        [_cost(sums["today"].cost_usd_micros)],
    )


@telemetry.reads("tools", "List the last tool calls.", quiet="Print the names of the tools alone.")
@_instance
@click.option("--tool", "tool_key", metavar="NAME", help="Only calls of this tool.")
@click.option("--failures", "failures_only", is_flag=True, help="Only calls that failed.")
@limit(maximum=10_000)
def tools(tx: Transaction, limit: int, **wanted: Any) -> Answer:
    """List the last tool calls, the newest first. With --json: an object with `items` and `cursor`."""
    return TOOLS.all(tx.telemetry.tools.last(limit, **wanted))


@telemetry.reads("links", "List what is known of links.", quiet="Print the URLs alone.")
@_instance
@click.option("--due", is_flag=True, help="Only those to be fetched again now, the longest due first.")
def links(tx: Transaction, instance_id: str | None, due: bool) -> Answer:
    """List what is known of links to issues and pull requests. With --json: an object with `items` and `cursor`."""
    known = tx.telemetry.links
    return LINKS.all(known.due(limit=1000, instance_id=instance_id) if due else known.list(instance_id=instance_id))


def _totals(totals: UsageTotals) -> tuple[object, ...]:
    counts = (totals.token_input, totals.token_output, totals.token_cache_read, totals.token_cache_write)
    return (totals.samples, *counts, _cost(totals.cost_usd_micros))


def _states(link: GithubLink) -> str:
    states = (link.issue_state, link.pr_state, link.build_state, link.review_state, "draft" if link.pr_is_draft else None)
    return ", ".join(state for state in states if state is not None) or "-"


def _cost(micros: int | None) -> str:
    return "-" if micros is None else f"${micros // _MILLION:,}.{micros % _MILLION:06}"
