"""`persist schedules`: runs that are queued at the times of a cron expression."""

from typing import Any

import click

from persist.cli.database import Database, as_json, on_database, on_named_database, quiet
from persist.cli.failures import Failed
from persist.cli.groups import Group
from persist.cli.listing import by_name, say_named
from persist.cli.output import inline, instant, say, say_json, say_json_list, say_table
from persist.db.values.json import parse
from persist.workflows.schedule_values import CatchUp, Schedule

_HEAD = ("SCHEDULE", "WORKFLOW", "CRON", "TIME ZONE", "ENABLED", "NEXT (UTC)", "LAST (UTC)")


@click.group("schedules", cls=Group, short_help="List, set, switch, remove and fire schedules of runs.")
def schedules() -> None:
    """List, set, switch, remove and fire schedules: runs that are queued at the times of a cron expression."""


@schedules.command(short_help="List schedules by name.")
@by_name("names")
def ls(database: Database, as_json: bool, quiet: bool) -> None:
    """List schedules by name. With --json: an object with `items` and `cursor`."""
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.workflows.schedules.list()
    say_named(found, "No schedules.", _HEAD, _row, lambda schedule: schedule.name, as_json=as_json, quiet=quiet)


@schedules.command("set", short_help="Queue runs of a workflow at the times of a cron expression.")
@click.argument("name")
@on_database
@click.option("--workflow", required=True, metavar="NAME", help="The workflow whose runs are queued.")
@click.option("--cron", required=True, metavar="EXPRESSION", help="When: '30 2 * * *', or a word such as @daily.")
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="The IANA zone of these times.")
@click.option("--context", metavar="JSON", help="An object that each run gets as its context.")
@click.option(
    "--catch-up",
    type=click.Choice([word.value for word in CatchUp]),
    default=CatchUp.ONE.value,
    show_default=True,
    help="What is queued for times that nobody saw: one run, all, or none.",
)
@as_json
@quiet("Print nothing.")
def set_(
    name: str,
    database: Database,
    workflow: str,
    cron: str,
    timezone: str,
    context: str | None,
    catch_up: Any,
    as_json: bool,
    quiet: bool,
) -> None:
    """Make the schedule NAME, enabled, or replace it. A worker, or `persist schedules fire`, queues what is due."""
    try:
        given = None if context is None else parse(context)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--context") from None
    with database.open_existing() as store, store.begin() as tx:
        schedule = tx.workflows.schedules.set(
            name, workflow_name=workflow, cron=cron, timezone=timezone, context=given, catch_up=catch_up
        )
    _say_set(schedule, as_json=as_json, quiet=quiet)


@schedules.command(short_help="Let a schedule fire again.")
@click.argument("name")
@on_database
@as_json
@quiet("Print nothing.")
def enable(name: str, database: Database, as_json: bool, quiet: bool) -> None:
    """Let the schedule NAME fire again, from its next time on. Exit code 1 if there is none."""
    _say_set(_switched(database, name, on=True), as_json=as_json, quiet=quiet)


@schedules.command(short_help="Let a schedule fire no more.")
@click.argument("name")
@on_database
@as_json
@quiet("Print nothing.")
def disable(name: str, database: Database, as_json: bool, quiet: bool) -> None:
    """Let the schedule NAME fire no more. A program that sets it when it starts enables it again; an override stays.

    Exit code 1 if there is none.
    """
    _say_set(_switched(database, name, on=False), as_json=as_json, quiet=quiet)


@schedules.command(short_help="Remove a schedule.")
@click.argument("name")
@on_database
@quiet("Print nothing.")
def rm(name: str, database: Database, quiet: bool) -> None:
    """Remove the schedule NAME, not its runs. Exit code 1 if there is none."""
    with database.open_existing() as store, store.begin() as tx:
        if not tx.workflows.schedules.remove(name):
            raise _unknown(name)
    if not quiet:
        say(f"Removed {inline(name)}.")


@schedules.command(short_help="Queue the runs that are due.")
@on_named_database
@as_json
@quiet("Print the ids of the runs alone.")
def fire(database: Database, as_json: bool, quiet: bool) -> None:
    """Queue the runs that are due now, as workers do. With --json: an object with `items`, the runs, and `cursor`."""
    with database.open_existing() as store, store.begin() as tx:
        fired = tx.workflows.schedules.fire_due()
    if as_json:
        say_json_list(run.model_dump(mode="json") for run in fired)
    elif quiet:
        for run in fired:
            say(inline(run.id))
    elif not fired:
        say("Nothing is due.", err=True)
    else:
        say_table(
            [("RUN", "WORKFLOW", "TRIGGER"), *((run.id, inline(run.workflow_name), inline(run.trigger_id)) for run in fired)]
        )


def _switched(database: Database, name: str, *, on: bool) -> Schedule:
    with database.open_existing() as store, store.begin() as tx:
        known = tx.workflows.schedules.get(name)
        if known is None:
            raise _unknown(name)
        return tx.workflows.schedules.set(
            name,
            workflow_name=known.workflow_name,
            cron=known.cron,
            timezone=known.timezone,
            context=known.context,
            catch_up=known.catch_up.value,
            enabled=on,
        )


def _unknown(name: str) -> Failed:
    return Failed(f"There is no schedule {inline(name)}.")


def _say_set(schedule: Schedule, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        say_json(schedule.model_dump(mode="json"))
    elif not quiet:
        when = "is off" if not schedule.enabled else f"fires next at {_when(schedule.next_fire_at)} UTC"
        say(f"The schedule {inline(schedule.name)} {when}.")


def _when(at: Any) -> str:
    return "-" if at is None else instant(at)


def _row(schedule: Schedule) -> tuple[str, ...]:
    return (
        inline(schedule.name),
        inline(schedule.workflow_name),
        inline(schedule.cron if schedule.fires_by == schedule.cron else f"{schedule.fires_by} (override)"),
        inline(schedule.timezone),
        "yes" if schedule.enabled else "no",
        _when(schedule.next_fire_at),
        _when(schedule.last_fire_at),
    )
