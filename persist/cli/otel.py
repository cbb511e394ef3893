"""`persist otel`: what a database holds, as spans of OpenTelemetry."""

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path

import click

from persist.cli.database import Database, on_database, quiet, to_age
from persist.cli.output import say
from persist.db.values.clock import instant_before, system_clock
from persist.maintenance.exporting import opened
from persist.otel.stored_spans import StoredSpan, request
from persist.otel.storing import DOMAINS, spans

_STREAM = Path("-")
_AT_ONCE = 500
"""Spans of one line, which a collector takes as one request."""


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
    database: Database,
    file: Path,
    domains: tuple[str, ...],
    since: timedelta | None,
    content: bool,
    force: bool,
    quiet: bool,
) -> None:
    """Write chat sessions, workflow runs and telemetry to FILE as OTLP JSON, one request in a line; - is standard output.

    Each line is a request that the /v1/traces of a collector takes, and a file that its otlpjsonfile receiver reads. A second
    export gives the same ids. FILE gets its name when it is whole, and is readable for its owner alone.
    """
    with database.open(read_only=True) as store:
        begin = None if since is None else instant_before(system_clock(), since)
        found = spans(store, domains=domains or DOMAINS, since=begin, content=content)  # type: ignore[arg-type]  # click has checked them
        with opened(sys.stdout.buffer if file == _STREAM else file, force) as stream:
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
