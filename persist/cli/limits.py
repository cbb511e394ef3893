"""`persist limits`: how many runs of a workflow or a key run at once, and start in a period."""

from datetime import timedelta

import click

from persist.cli.ages import to_age
from persist.cli.database import Database, as_json, on_database, quiet
from persist.cli.failures import Failed
from persist.cli.groups import Group
from persist.cli.listing import by_name, say_named
from persist.cli.output import inline, instant, say, say_json
from persist.workflows.limit_values import Limit

_HEAD = ("KEY", "AT ONCE", "RATE", "SET (UTC)")


@click.group("limits", cls=Group, short_help="List, set and lift limits of workflows and keys.")
def limits() -> None:
    """List, set and lift limits: how many runs of a workflow or a key run at once, and start in a period."""


@limits.command(short_help="List limits by key.")
@by_name("keys")
def ls(database: Database, as_json: bool, quiet: bool) -> None:
    """List limits by key. With --json: an object with `items` and `cursor`; `per` is a duration of ISO 8601."""
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.workflows.limits.list()
    say_named(found, "No limits.", _HEAD, _row, lambda limit: limit.key, as_json=as_json, quiet=quiet)


@limits.command("set", short_help="Limit a workflow or a key.")
@click.argument("key")
@on_database
@click.option("--concurrency", type=click.IntRange(1), metavar="N", help="How many run at once.")
@click.option("--rate", type=click.IntRange(1), metavar="N", help="How many start within --per.")
@click.option("--per", callback=to_age, metavar="TIME", help="The period of --rate: 30s, 1m, 12h.")
@as_json
@quiet("Print nothing.")
def set_(
    key: str,
    database: Database,
    concurrency: int | None,
    rate: int | None,
    per: timedelta | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Limit the runs of a KEY: `workflow:NAME`, or what runs have as their concurrency key. Replaces the limit that it has."""
    with database.open_existing() as store, store.begin() as tx:
        limit = tx.workflows.limits.set(key, concurrency, rate, per)
    if as_json:
        say_json(limit.model_dump(mode="json"))
    elif not quiet:
        _, at_once, rates, _ = _row(limit)
        say(f"Limited {inline(limit.key)}: at once {at_once}, rate {rates}.")


@limits.command(short_help="Lift a limit.")
@click.argument("key")
@on_database
@quiet("Print nothing.")
def rm(key: str, database: Database, quiet: bool) -> None:
    """Lift the limit of a KEY. Exit code 1 if there is none."""
    with database.open_existing() as store, store.begin() as tx:
        if not tx.workflows.limits.delete(key):
            raise Failed(f"There is no limit {inline(key)}.")
    if not quiet:
        say(f"Lifted {inline(key)}.")


def _row(limit: Limit) -> tuple[str, ...]:
    at_once = "any" if limit.concurrency is None else f"{limit.concurrency:,}"
    rate = "any" if limit.rate is None or limit.per is None else f"{limit.rate:,} per {limit.per}"
    return inline(limit.key), at_once, rate, instant(limit.updated_at)
