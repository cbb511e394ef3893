"""`persist events`, `consumers` and `watch`: the log of events, who reads it, and its events as they come."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, timedelta
from fnmatch import fnmatchcase
from typing import Any

import click

from persist.cli.database import Database, FloatRange, as_json, on_database, on_named_database, quiet, to_age
from persist.cli.nouns import Answer, Noun, Table, answers, is_silent, limit, told
from persist.cli.output import Interrupted, Interrupts, Paint, Progress, columns, inline, instant, say, say_json, shortened
from persist.db.changes.journal import logged_tables
from persist.events.first_snapshots import still_to_write
from persist.events.repository import Stream, latest_streams, log_status
from persist.events.schemas import ALL, Consumer, Event
from persist.events.watching import Watcher, last_number
from persist.maintenance.transactions import looking
from persist.store.transaction import Transaction

_SIGNS = {"put": "+", "set": "~", "delete": "-"}
_MAX = 200
_STREAMS_A_SECOND, _ROWS_A_SECOND = 2_000, 5_000
"""What two cores do beside four writers."""
_MEANWHILE = "Others go on writing: a write waits while the snapshot of its stream is written, and none is refused."
_BUT_ONCE = "A block of begin() that has read before its first write may be: it raises StoreBusy, once."
events = Noun(
    "events",
    "The log of events: every change of a row as an event, for `persist watch`, audits and rebuilding. It is off at first.",
)
STREAMS = Table[Stream](
    "There are no events.",
    ("STREAM", "EVENTS", "LAST (UTC)", "TYPE"),
    lambda stream: (stream.stream_id, stream.seq, stream.at, stream.type),
    name=lambda stream: stream.stream_id,
    json=lambda stream: {**asdict(stream), "at": stream.at.isoformat()},
)


@events.command(short_help="From now on every change is an event, too.")
@on_named_database
@as_json
@click.option("--plan", is_flag=True, help="Show how many snapshots would be written, and change nothing.")
@quiet("Print nothing.")
def on(database: Database, as_json: bool, plan: bool, quiet: bool) -> None:
    """Switch the log on, for everybody who writes to the database: a writer that does not keep it is refused.

    What the database holds becomes one snapshot of each stream, while others go on writing; the command goes on where one was
    stopped. On SQLite only persist can write to the file while the log is on, and the sqlite3 command line cannot. With
    --json: an object with `on` and `changed`; with --plan one with `on`, `items`, each with `kind`, `streams` and `rows`, and
    `seconds`.
    """
    (_to_write(database) if plan else _switch(database, on=True)).say(as_json=as_json, quiet=quiet)


def _to_write(database: Database) -> Answer:
    with database.open(read_only=True) as store, looking(store, "events on") as work:
        kinds, is_on = still_to_write(work, logged_tables(store.runtime.tables())), store.logs_events
        meanwhile = [_MEANWHILE] if store.runtime.dialect.one_writer else [_MEANWHILE, _BUT_ONCE]
    seconds = math.ceil(sum(kind.streams / _STREAMS_A_SECOND + kind.rows / _ROWS_A_SECOND for kind in kinds))
    said = {"on": is_on, "items": [asdict(kind) for kind in kinds], "seconds": seconds}
    if not kinds:
        return Answer(said, ["No snapshot is to be written."])
    table = columns([("KIND", "STREAMS", "ROWS"), *((kind.kind, f"{kind.streams:,}", f"{kind.rows:,}") for kind in kinds)])
    rate = f"{_STREAMS_A_SECOND:,} streams and {_ROWS_A_SECOND:,} rows a second"
    return Answer(said, [*table, f"About {seconds:,} s, at {rate}: a usual rate, not one that was measured here.", *meanwhile])


@events.command(short_help="No more events; what was written stays.")
@on_named_database
@answers("Print nothing.")
def off(database: Database) -> Answer:
    """Switch the log off for everybody. What it holds stays, and can be read. With --json: an object with `on` and `changed`."""
    return _switch(database, on=False)


def _switch(database: Database, *, on: bool) -> Answer:
    left = "Run it again: it goes on from what is committed, and `persist events status` says how far the log is."
    progress = Progress("Writing snapshots", unit="streams", left=left, quiet=is_silent())
    with progress, database.open_existing() as store:
        changed = store.switch_events(on, progress=progress.count)
        progress.finish()
    word = "on" if on else "off"
    said = f"The log of events is {word}." if changed else f"The log of events was {word} already."
    return told({"on": on, "changed": changed}, said)


@events.command(short_help="Whether the log is on, and how much is in it.")
@on_named_database
@answers("Print on or off alone.")
def status(database: Database) -> Answer:
    """Whether the log is on, and how much is in it.

    With --json: an object with `on`, `guarded`, `snapshots`, `events`, `streams`, `position`, the number of the newest event, and
    `oldest`. A log that is not guarded lacks what is written by those who do not keep it: the database takes no triggers.
    """
    with database.open(read_only=True) as store, looking(store, "events status") as work:
        found = log_status(work)
    word = "on" if found.on else "off"
    oldest = "-" if found.oldest is None else f"{instant(found.oldest)} UTC"
    notes = [("guard", "none: the database takes no triggers")] if found.on and not found.guarded else []
    if found.snapshots is not None:
        notes.append(("snapshots", f"{found.snapshots:,} streams so far; `persist events on` goes on"))
    counts = [(name, f"{getattr(found, name):,}") for name in ("events", "streams", "position")]
    said = {**asdict(found), "oldest": found.oldest and found.oldest.isoformat()}
    return Answer(said, columns([("log", word), *notes, *counts, ("oldest", oldest)]), [word])


@events.command("ls", short_help="List the streams.")
@on_named_database
@limit()
@answers("Print the names alone.")
def streams(database: Database, limit: int) -> Answer:
    """List the streams in which something happened last, with how many events they have had and the newest of these.

    With --json: an object with `items`, each with `stream_id`, `seq`, `first_seq`, `position`, `type` and `at`, and `cursor`.
    """
    with database.open(read_only=True) as store, looking(store, "events ls") as work:
        return STREAMS.all(latest_streams(work, limit))


@events.command(short_help="Delete old events.")
@click.argument("stream", default=ALL)
@on_database
@click.option("--older-than", metavar="AGE", callback=to_age, help="Only events older than that: 90m, 12h, 30d, 2w.")
@click.option("--keep", type=click.IntRange(min=0), help="Spare this many, the newest, of each stream.")
@answers("Print nothing.")
def trim(database: Database, stream: str, older_than: timedelta | None, keep: int | None) -> Answer:
    """Delete old events of STREAM, or of each (*): by age, by number, or by both.

    What the stream holds is written as a snapshot first, for those who read it later; --keep 0 leaves nothing but that.
    With --json: an object with `deleted`.
    """
    if older_than is None and keep is None:
        raise click.UsageError("Which events? Give --older-than AGE, or --keep N, or both.")
    with database.open_existing() as store:
        deleted = store.events.trim(stream, older_than=older_than, keep=keep)
    return told({"deleted": deleted}, f"Deleted {deleted:,} events.")


consumers = Noun("consumers")
CONSUMERS = Table[Consumer](
    "No consumers.",
    ("CONSUMER", "POSITION", "BEHIND", "ACKNOWLEDGED (UTC)", "LEASED UNTIL (UTC)", "TYPES"),
    lambda consumer: (
        consumer.name,
        consumer.position,
        consumer.behind,
        consumer.acknowledged_at,
        consumer.lease_expires_at,
        "any" if consumer.types is None else ", ".join(consumer.types),
    ),
    name=lambda consumer: consumer.name,
)


@consumers.reads("ls", "List consumers and how far they are.", quiet="Print the names alone.")
@limit()
def list_consumers(tx: Transaction, limit: int) -> Answer:
    """List consumers by name: how far each has acknowledged, how many events are behind that, what is handed out until when.

    With --json: an object with `items` and `cursor`.
    """
    return CONSUMERS.all(tx.events.consumers.list(limit=limit))


@consumers.writes("remove", "Forget a consumer.", json=False)
@click.argument("name")
def remove(tx: Transaction, name: str) -> Answer:
    """Forget a consumer: events that it has not acknowledged can be trimmed and pruned from then on."""
    removed = tx.events.consumers.remove(name)
    return told(None, f"Removed {inline(name)}." if removed else f"There was no consumer {inline(name)}.")


@click.command(short_help="Follow the log of events while it is written.")
@click.argument("stream", default=ALL)
@on_database
@click.option("--after", type=click.IntRange(min=0), default=0, help="Begin after this number; 0 is before the first event.")
@click.option("--now", is_flag=True, help="Begin after the last event there is, instead of the first one.")
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="Only of this type, such as run.failed or 'run.*'; may be repeated."
)
@click.option("--timeout", type=FloatRange(min=0), metavar="SECONDS", help="End after so many seconds without an event.")
@as_json
@quiet("Print the events alone, and not which was the last.")
def watch(
    database: Database,
    stream: str,
    after: int,
    now: bool,
    types: tuple[str, ...],
    timeout: float | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Follow the log of events, of one STREAM or of all (*), until Ctrl-C.

    Each line begins with the event's number: its place in STREAM, or among all events. At the end standard error says which
    was the last; with --after the next watch goes on behind it, with nothing missing and nothing twice.

    Every event is one line; with --json it is an object with `position`, `stream_id`, `seq`, `type`, `at`, `actor` and `data`.
    """
    if now and after:
        raise click.UsageError("--now and --after name two places to begin at.")
    if not all(types):
        raise click.UsageError("--type is empty: no event is of that type.")
    paint = Paint()
    with database.open(read_only=True) as store, Interrupts() as interrupts:
        if not store.logs_events:
            say("The log of events is off: nothing comes until `persist events on` switches it on.", err=True)
        with looking(store, "watch") as work:
            newest = last_number(work, stream)
        if not newest and stream != ALL and store.logs_events and not quiet:
            say(f"{inline(repr(stream))} has no events yet: they are shown when they come.", err=True)
        last = after = newest if now else after
        try:
            for event in _uncut(Watcher(store.runtime, stream, after, timeout), interrupts):
                number = event.position if stream == ALL else event.seq
                if types and not any(fnmatchcase(event.type, one) for one in types):
                    pass
                elif as_json:
                    say_json(event_fields(event))
                else:
                    say(_line(number, event, paint, every_stream=stream == ALL))
                last = number
        except Interrupted:
            click.get_current_context().exit(interrupts.exit_code)
        finally:
            if not quiet:
                say(f"Seen up to {last}; --after {last} goes on from there.", err=True)


def _uncut(watcher: Watcher, interrupts: Interrupts) -> Iterator[Event]:
    """The events; Ctrl-C ends the wait for one, and never a look at the log, nor a line."""
    with closing(watcher):
        while (events := watcher.poll()) is not None:
            for event in events:
                interrupts.check()
                yield event
            if not events:
                with interrupts.waiting():
                    watcher.wait()


def _line(number: int, event: Event, paint: Paint, *, every_stream: bool) -> str:
    named = [inline(event.stream_id)] if every_stream else []
    at = event.at.astimezone(UTC).strftime("%H:%M:%S")
    did = [inline(event.type), *([] if event.actor is None else [f"by {inline(event.actor)}"])]
    return "  ".join([f"{number:>6}", paint(at, dim=True), *named, paint(did[0], bold=True), *did[1:], event_summary(event)])


def event_fields(event: Event) -> dict[str, Any]:
    """An event as `persist watch --json` prints it."""
    names = ("position", "stream_id", "seq", "type", "at", "actor", "data")
    return {name: getattr(event, name) for name in names} | {"at": event.at.isoformat()}


def event_summary(event: Event) -> str:
    """What happened: text that came, or how many rows of which tables were added (+), changed (~) and deleted (-)."""
    found = event.data.get("changes") if isinstance(event.data, dict) else None
    changes = [change for change in found if isinstance(change, dict)] if isinstance(found, list) else []
    if not isinstance(found, list) or len(changes) < len(found):
        return shortened(event.data, _MAX)
    texts = [row["delta"] for change in changes if isinstance((row := _row(change)).get("delta"), str)]
    if texts and len(texts) == len(changes):
        return shortened("".join(texts), _MAX)
    counts = Counter((_SIGNS.get(str(change.get("op")), "?"), str(change.get("table"))) for change in changes)
    rows = ", ".join(f"{sign}{count:,} {inline(table)}" for (sign, table), count in counts.items())
    parts = [f"{inline(str(part.get('type')))}{_said_of(part)}" for change in changes if (part := _part(change)) is not None]
    return "; ".join([*parts, rows]) if len(parts) == 1 else rows


def _row(change: dict[str, Any]) -> dict[str, Any]:
    row = change.get("row")
    return row if isinstance(row, dict) else {}


def _part(change: dict[str, Any]) -> dict[str, Any] | None:
    part = _row(change).get("data_json") if change.get("table") == "chat_parts" else None
    return part if isinstance(part, dict) else None


def _said_of(part: dict[str, Any]) -> str:
    said = part.get("text") or part.get("state")
    return f": {shortened(said, _MAX)}" if isinstance(said, str) else ""
