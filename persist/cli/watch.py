"""`persist watch`: events in the terminal, as they come."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC
from fnmatch import fnmatchcase

import click

from persist.cli.database import Database, as_json, on_database, quiet
from persist.cli.event_lines import event_fields, summary
from persist.cli.interrupts import Interrupted, Interrupts
from persist.cli.numbers import FloatRange
from persist.cli.output import Paint, inline, say, say_json
from persist.events.schemas import ALL, Event
from persist.events.watching import Watcher, last_number
from persist.maintenance.snapshots import looking


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
    paint = Paint()
    with database.open(read_only=True) as store, Interrupts() as interrupts:
        if not store.logs_events:
            say("The log of events is off: nothing comes until `persist events on` switches it on.", err=True)
        if now:
            with looking(store, "watch") as work:
                after = last_number(work, stream)
        last = after
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
    return "  ".join([f"{number:>6}", paint(at, dim=True), *named, paint(did[0], bold=True), *did[1:], summary(event)])
