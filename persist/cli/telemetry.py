"""`persist telemetry`: what instances of agents do and use."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import click

from persist.cli.database import Database, on_database, quiet, to_age
from persist.cli.nouns import Answer, Noun, Table, limit, table
from persist.cli.output import inline, say, shortened
from persist.db.values.clock import instant_before, system_clock
from persist.maintenance.exporting import opened
from persist.otel.stored_spans import DOMAINS, StoredSpan, request, spans
from persist.store.transaction import Transaction
from persist.telemetry.schemas import GithubLink, StatusEntry, ToolCall, UsageTotals

_STREAM = Path("-")
_AT_ONCE = 500
"""The number of spans on one line, which a collector takes as one request."""


@click.group(short_help="Write what is stored as spans of OpenTelemetry.")
def otel() -> None:
    """What a database holds, as spans of OpenTelemetry, by its conventions for generative AI."""


@otel.command(short_help="Write sessions, runs and telemetry as spans, as OTLP JSON.")
@click.argument("file", type=click.Path(path_type=Path), default=_STREAM)
@on_database
@click.option(
    "--domain", "domains", multiple=True, type=click.Choice(DOMAINS), help="Only of this one; give it again for another."
)
@click.option("--since", metavar="AGE", callback=to_age, help="Only what changed since, such as 24h or 7d.")
@click.option("--content", is_flag=True, help="Also what tools were given and what they gave.")
@click.option("-f", "--force", is_flag=True, help="Overwrite FILE.")
@quiet("Print nothing but the spans.")
def export(
    database: Database, file: Path, domains: tuple[str, ...], since: timedelta | None, content: bool, force: bool, quiet: bool
) -> None:
    """Write chat sessions, workflow runs and telemetry to FILE as OTLP JSON, one request in a line; - is standard output.

    Each line is a request that the /v1/traces of a collector takes, and a file that its otlpjsonfile receiver reads. A second
    export gives the same ids. FILE gets its name when it is whole, and is readable for its owner alone.
    """
    with database.open(read_only=True) as store:
        begin = None if since is None else instant_before(system_clock(), since)
        found = spans(store, domains=domains or DOMAINS, since=begin, content=content)  # type: ignore[arg-type]  # click has checked them
        with opened(store, sys.stdout.buffer if file == _STREAM else file, force) as stream:
            written = 0
            for batch in _batches(found):
                stream.write(json.dumps(request(batch), separators=(",", ":")).encode() + b"\n")
                written += len(batch)
            stream.flush()
    if not quiet:
        say(f"Exported {written:,} {'span' if written == 1 else 'spans'}.", err=file == _STREAM)


def _batches(found: Iterator[StoredSpan]) -> Iterator[list[StoredSpan]]:
    while batch := list(islice(found, _AT_ONCE)):
        yield batch


_MILLION = 1_000_000
_instance = click.option("--instance", "instance_id", metavar="ID", help="Of which instance; without it a SQLite file's own.")
telemetry = Noun("telemetry")
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
def ls(tx: Transaction, limit: int, before: str | None = None) -> Answer:
    """List instances and their status, those that changed last first. With --json: an object with `items` and `cursor`."""
    return INSTANCES.all(tx.telemetry.status.latest(limit=limit, before=before))


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
        sums, table(head, ((name, *_totals(totals)) for name, totals in sums.items())), [_cost(sums["today"].cost_usd_micros)]
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
