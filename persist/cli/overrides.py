"""`persist overrides`: what an operator changed about workflows and schedules."""

import click

from persist.cli.database import Database, on_database, quiet
from persist.cli.failures import Failed
from persist.cli.groups import Group
from persist.cli.listing import by_name
from persist.cli.output import inline, instant, say, say_json_list, say_table
from persist.workflows.override_values import CronOverride, WorkflowOverride


@click.group("overrides", cls=Group, short_help="Switch workflows and schedules off and on.")
def overrides() -> None:
    """Switch workflows and schedules off and on, and give schedules other times."""


of_schedule = click.option("--schedule", "of_schedule", is_flag=True, help="NAME is a schedule, not a workflow.")
by_whom = click.option("--by", metavar="WHO", help="Who changes it.")


@overrides.command(short_help="List overrides of workflows and schedules.")
@by_name("names")
def ls(database: Database, as_json: bool, quiet: bool) -> None:
    """List overrides by name. With --json: an object with `items`, whose `kind` is workflow or schedule, and `cursor`."""
    with database.open(read_only=True) as store, store.read() as tx:
        workflows, crons = tx.workflows.workflow_overrides.all(), tx.workflows.cron_overrides.all()
    if as_json:
        kinds = (("workflow", workflows), ("schedule", crons))
        say_json_list({"kind": kind, **one.model_dump(mode="json")} for kind, found in kinds for one in found)
    elif quiet:
        for name in (*(one.name for one in workflows), *(one.name for one in crons)):
            say(inline(name))
    elif not workflows and not crons:
        say("No overrides.", err=True)
    else:
        rows = [
            *(_row("workflow", one, "-") for one in workflows),
            *(_row("schedule", one, one.schedule or "-") for one in crons),
        ]
        say_table([("KIND", "NAME", "ENABLED", "CRON", "CHANGED (UTC)", "BY"), *rows])


@overrides.command(short_help="Let the runs of a workflow be claimed, or a schedule fire.")
@click.argument("name")
@on_database
@of_schedule
@by_whom
@quiet("Print nothing.")
def enable(name: str, database: Database, of_schedule: bool, by: str | None, quiet: bool) -> None:
    """Switch the workflow NAME on again, or a schedule."""
    _switch(database, name, of_schedule=of_schedule, on=True, by=by, quiet=quiet)


@overrides.command(short_help="Let no run of a workflow be claimed, or no schedule fire.")
@click.argument("name")
@on_database
@of_schedule
@by_whom
@quiet("Print nothing.")
def disable(name: str, database: Database, of_schedule: bool, by: str | None, quiet: bool) -> None:
    """Switch the workflow NAME off: its queued runs wait. A schedule that is off queues nothing, and does not catch up."""
    _switch(database, name, of_schedule=of_schedule, on=False, by=by, quiet=quiet)


@overrides.command("set", short_help="Give a schedule another cron expression.")
@click.argument("name")
@on_database
@click.option("--cron", metavar="EXPRESSION", help="When the schedule fires; without it at the times that it was made with.")
@by_whom
@quiet("Print nothing.")
def set_(name: str, database: Database, cron: str | None, by: str | None, quiet: bool) -> None:
    """Give the schedule NAME another cron expression. Whether it is enabled does not change."""
    with database.open_existing() as store, store.begin() as tx:
        override = tx.workflows.cron_overrides.set(name, schedule=cron, by=by)
    if not quiet:
        told = "has its own times" if override.schedule is None else f"fires at {inline(override.schedule)}"
        say(f"The schedule {inline(name)} {told}.")


@overrides.command(short_help="Remove an override.")
@click.argument("name")
@on_database
@of_schedule
@quiet("Print nothing.")
def rm(name: str, database: Database, of_schedule: bool, quiet: bool) -> None:
    """Remove the override of the workflow NAME, or of a schedule: the defaults hold again. Exit code 1 if there is none."""
    with database.open_existing() as store, store.begin() as tx:
        workflows = tx.workflows
        if not (workflows.cron_overrides if of_schedule else workflows.workflow_overrides).clear(name):
            raise Failed(f"There is no override of the {_kind(of_schedule)} {inline(name)}.")
    if not quiet:
        say(f"Removed the override of the {_kind(of_schedule)} {inline(name)}.")


def _switch(database: Database, name: str, *, of_schedule: bool, on: bool, by: str | None, quiet: bool) -> None:
    with database.open_existing() as store, store.begin() as tx:
        if of_schedule:
            tx.workflows.cron_overrides.set(name, enabled=on, by=by)
        else:
            tx.workflows.workflow_overrides.set(name, enabled=on, by=by)
    if not quiet:
        say(f"Switched the {_kind(of_schedule)} {inline(name)} {'on' if on else 'off'}.")


def _kind(of_schedule: bool) -> str:
    return "schedule" if of_schedule else "workflow"


def _row(kind: str, override: CronOverride | WorkflowOverride, cron: str) -> tuple[str, ...]:
    by = "-" if override.updated_by is None else inline(override.updated_by)
    return kind, inline(override.name), "yes" if override.enabled else "no", inline(cron), instant(override.updated_at), by
