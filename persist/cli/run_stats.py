"""`persist runs stats`: how many runs and executions there are, and what they used."""

from collections.abc import Iterator, Mapping

import click

from persist.cli.database import Database, as_json, on_named_database, quiet
from persist.cli.output import Paint, columns, cost, inline, say, say_json, tokens
from persist.workflows.schemas import ExecutionStats, RunStatus, StatsBucket

_HEAD = ("DAY (UTC)", "TOTAL", "SUCCEEDED", "FAILED", "SKIPPED", "DEFERRED", "RUNNING", "TOKENS", "COST")


@click.command(short_help="Count runs, executions, tokens and cost.")
@on_named_database
@click.option("--days", type=click.IntRange(1, 1000), default=7, show_default=True, help="How many days, today included.")
@as_json
@quiet("Print the days alone.")
def stats(database: Database, days: int, as_json: bool, quiet: bool) -> None:
    """Count workflow runs by status and executions by skill, and the last days of executions with their tokens and cost.

    Days are UTC days; "today" begins at midnight where you are. With --json: an object with `runs`, `executions` and `days`.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        runs = {status.value: tx.workflows.runs.count(status=status) for status in RunStatus}
        executions, buckets = tx.workflows.executions.stats(), tx.workflows.executions.daily_stats(days)
    if as_json:
        found = {"runs": runs, "executions": executions.model_dump(mode="json")}
        say_json({**found, "days": [bucket.model_dump(mode="json") for bucket in buckets]})
        return
    paint = Paint()
    if not quiet:
        for line in columns(_counts(runs, executions)):
            name, _, value = line.partition(" ")
            say(f"{paint(name, dim=True)} {value}")
        say("")
    head, *rows = columns([_HEAD, *map(_day, buckets)])
    say(paint(head, bold=True))
    for row in rows:
        say(row)


def _counts(runs: Mapping[str, int], executions: ExecutionStats) -> Iterator[tuple[str, str]]:
    yield "runs", _listed(sum(runs.values()), runs)
    yield "executions", _listed(executions.total, {"today": executions.today, "running": executions.running})
    yield "skills", ", ".join(f"{inline(name)} {count:,}" for name, count in executions.by_skill.items()) or "none"


def _listed(total: int, counts: Mapping[str, int]) -> str:
    of = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    return f"{total:,}" + (f" ({of})" if of else "")


def _day(bucket: StatsBucket) -> tuple[str, ...]:
    counts = (
        bucket.total,
        bucket.succeeded,
        bucket.failed,
        bucket.skipped,
        bucket.deferred,
        bucket.running,
    )
    return (bucket.bucket, *(f"{count:,}" for count in counts), tokens(bucket.total_tokens), cost(bucket.cost_usd))
