"""`persist consumers`: durable readers of the log of events, how far they are, and forgetting one."""

import click

from persist.cli.database import Database, on_database, quiet
from persist.cli.groups import Group
from persist.cli.listing import by_name, say_named
from persist.cli.output import inline, instant, say
from persist.events.schemas import Consumer

_HEAD = ("CONSUMER", "POSITION", "BEHIND", "ACKNOWLEDGED (UTC)", "LEASED UNTIL (UTC)", "TYPES")


@click.group("consumers", cls=Group, short_help="List and remove durable readers of the log of events.")
def consumers() -> None:
    """List and remove durable readers of the log of events."""


@consumers.command(short_help="List consumers and how far they are.")
@by_name("names")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
def ls(database: Database, limit: int, as_json: bool, quiet: bool) -> None:
    """List consumers by name: how far each has acknowledged, how many events are behind that, what is handed out until when.

    With --json: an object with `items` and `cursor`.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.events.consumers.list(limit=limit)
    say_named(found, "No consumers.", _HEAD, _row, lambda consumer: consumer.name, as_json=as_json, quiet=quiet)


@consumers.command(short_help="Forget a consumer.")
@click.argument("name")
@on_database
@quiet("Print nothing.")
def remove(name: str, database: Database, quiet: bool) -> None:
    """Forget a consumer: events that it has not acknowledged can be trimmed and pruned from then on."""
    with database.open_existing() as store, store.begin() as tx:
        removed = tx.events.consumers.remove(name)
    if not quiet:
        say(f"Removed {inline(name)}." if removed else f"There was no consumer {inline(name)}.")


def _row(consumer: Consumer) -> tuple[str, ...]:
    acknowledged, until = consumer.acknowledged_at, consumer.lease_expires_at
    return (
        inline(consumer.name),
        f"{consumer.position:,}",
        f"{consumer.behind:,}",
        "-" if acknowledged is None else instant(acknowledged),
        "-" if until is None else instant(until),
        "any" if consumer.types is None else inline(", ".join(consumer.types)),
    )
