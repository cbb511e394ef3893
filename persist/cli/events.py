"""`persist events`: the log of events on and off, how it stands, and its retention."""

from dataclasses import asdict
from datetime import timedelta

import click

from persist.cli.ages import to_age
from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.groups import Group
from persist.cli.output import Paint, columns, inline, instant, say, say_json, say_json_list
from persist.cli.progress import Progress
from persist.events.schemas import ALL
from persist.events.status import latest_streams, log_status
from persist.maintenance.snapshots import looking

_HEAD = ("STREAM", "EVENTS", "LAST (UTC)", "TYPE")


@click.group(cls=Group, short_help="Switch the log of events on and off, look at it, trim it.")
def events() -> None:
    """The log of events: every change of a row as an event, for `persist watch`, audits and rebuilding. It is off at first."""


@events.command(short_help="From now on every change is an event, too.")
@on_named_database
@as_json
@quiet("Print nothing.")
def on(database: Database, as_json: bool, quiet: bool) -> None:
    """Switch the log on, for everybody who writes to the database: a writer that does not keep it is refused.

    What the database holds becomes one snapshot of each stream, while others go on writing; the command goes on where one was
    stopped. On SQLite only persist can write to the file while the log is on, and the sqlite3 command line cannot. With
    --json: an object with `on` and `changed`.
    """
    _switch(database, on=True, as_json=as_json, quiet=quiet)


@events.command(short_help="No more events; what was written stays.")
@on_named_database
@as_json
@quiet("Print nothing.")
def off(database: Database, as_json: bool, quiet: bool) -> None:
    """Switch the log off for everybody. What it holds stays, and can be read. With --json: an object with `on` and `changed`."""
    _switch(database, on=False, as_json=as_json, quiet=quiet)


def _switch(database: Database, *, on: bool, as_json: bool, quiet: bool) -> None:
    left = "Run it again: it goes on from what is committed, and `persist events status` says how far the log is."
    progress = Progress("Writing snapshots", unit="streams", left=left, quiet=quiet or as_json)
    with progress, database.open_existing() as store:
        changed = store.switch_events(on, progress=progress.count)
        progress.finish()
    word = "on" if on else "off"
    if as_json:
        say_json({"on": on, "changed": changed})
    elif not quiet:
        say(f"The log of events is {word}." if changed else f"The log of events was {word} already.")


@events.command(short_help="Whether the log is on, and how much is in it.")
@on_named_database
@as_json
@quiet("Print on or off alone.")
def status(database: Database, as_json: bool, quiet: bool) -> None:
    """Whether the log is on, and how much is in it.

    With --json: an object with `on`, `guarded`, `snapshots`, `events`, `streams`, `position`, the number of the newest event, and
    `oldest`. A log that is not guarded lacks what is written by those who do not keep it: the database takes no triggers.
    """
    with database.open(read_only=True) as store, looking(store, "events status") as work:
        found = log_status(work)
    word = "on" if found.on else "off"
    if as_json:
        say_json({**asdict(found), "oldest": found.oldest and found.oldest.isoformat()})
    elif quiet:
        say(word)
    else:
        oldest = "-" if found.oldest is None else f"{instant(found.oldest)} UTC"
        notes = [("guard", "none: the database takes no triggers")] if found.on and not found.guarded else []
        if found.snapshots is not None:
            notes.append(("snapshots", f"{found.snapshots:,} streams so far; `persist events on` goes on"))
        counts = [(name, f"{getattr(found, name):,}") for name in ("events", "streams", "position")]
        for line in columns([("log", word), *notes, *counts, ("oldest", oldest)]):
            say(line)


@events.command("ls", short_help="List the streams.")
@on_named_database
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@as_json
@quiet("Print the names alone.")
def streams(database: Database, limit: int, as_json: bool, quiet: bool) -> None:
    """List the streams in which something happened last, with how many events they have had and the newest of these.

    With --json: an object with `items`, each with `stream_id`, `seq`, `first_seq`, `position`, `type` and `at`, and `cursor`.
    """
    with database.open(read_only=True) as store, looking(store, "events ls") as work:
        found = latest_streams(work, limit)
    if as_json:
        say_json_list({**asdict(stream), "at": stream.at.isoformat()} for stream in found)
        return
    if not found:
        say("There are no events.", err=True)
        return
    if quiet:
        for stream in found:
            say(inline(stream.stream_id))
        return
    head, *rows = columns([_HEAD, *((inline(s.stream_id), f"{s.seq:,}", instant(s.at), inline(s.type)) for s in found)])
    say(Paint()(head, bold=True))
    for row in rows:
        say(row)


@events.command(short_help="Delete old events.")
@click.argument("stream", default=ALL)
@on_database
@click.option("--older-than", metavar="AGE", callback=to_age, help="Only events older than that: 90m, 12h, 30d, 2w.")
@click.option("--keep", type=click.IntRange(min=0), help="Spare this many, the newest, of each stream.")
@as_json
@quiet("Print nothing.")
def trim(database: Database, stream: str, older_than: timedelta | None, keep: int | None, as_json: bool, quiet: bool) -> None:
    """Delete old events of STREAM, or of each (*): by age, by number, or by both.

    What the stream holds is written as a snapshot first, for those who read it later; --keep 0 leaves nothing but that.
    With --json: an object with `deleted`.
    """
    if older_than is None and keep is None:
        raise click.UsageError("Which events? Give --older-than AGE, or --keep N, or both.")
    with database.open_existing() as store:
        deleted = store.events.trim(stream, older_than=older_than, keep=keep)
    if as_json:
        say_json({"deleted": deleted})
    elif not quiet:
        say(f"Deleted {deleted:,} events.")
