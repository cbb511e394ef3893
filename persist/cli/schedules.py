"""`persist schedules` and `persist overrides`: runs at the times of a cron expression, and what an operator changed."""

from datetime import datetime
from typing import Any

import click

from persist.cli.database import to_json
from persist.cli.failures import Failed
from persist.cli.nouns import Answer, Noun, Table, told
from persist.cli.output import inline, instant
from persist.store.transaction import Transaction
from persist.workflows.override_values import CronOverride, WorkflowOverride
from persist.workflows.schedule_values import CatchUp, Schedule
from persist.workflows.schemas import WorkflowRun

schedules = Noun(
    "schedules",
    "List, set, switch, remove and fire schedules of runs.",
    "List, set, switch, remove and fire schedules: runs that are queued at the times of a cron expression.",
)
SCHEDULES = Table[Schedule](
    "No schedules.",
    ("SCHEDULE", "WORKFLOW", "CRON", "TIME ZONE", "ENABLED", "NEXT (UTC)", "LAST (UTC)"),
    lambda one: (
        one.name,
        one.workflow_name,
        one.cron if one.fires_by == one.cron else f"{one.fires_by} (override)",
        one.timezone,
        "yes" if one.enabled else "no",
        one.next_fire_at,
        one.last_fire_at,
    ),
    name=lambda one: one.name,
)
FIRED = Table[WorkflowRun](
    "Nothing is due.", ("RUN", "WORKFLOW", "TRIGGER"), lambda run: (run.id, run.workflow_name, run.trigger_id)
)


@schedules.reads("ls", "List schedules by name.", quiet="Print the names alone.")
def list_schedules(tx: Transaction) -> Answer:
    """List schedules by name. With --json: an object with `items` and `cursor`."""
    return SCHEDULES.all(tx.workflows.schedules.list())


@schedules.writes("set", "Queue runs of a workflow at the times of a cron expression.")
@click.argument("name")
@click.option("--workflow", "workflow_name", required=True, metavar="NAME", help="The workflow whose runs are queued.")
@click.option("--cron", required=True, metavar="EXPRESSION", help="When: '30 2 * * *', or a word such as @daily.")
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="The IANA zone of these times.")
@click.option("--context", metavar="JSON", callback=to_json, help="An object that each run gets as its context.")
@click.option(
    "--catch-up",
    type=click.Choice([word.value for word in CatchUp]),
    default=CatchUp.ONE.value,
    show_default=True,
    help="What is queued for times that nobody saw: one run, all, or none.",
)
def set_schedule(tx: Transaction, name: str, **fields: Any) -> Answer:
    """Make the schedule NAME, enabled, or replace it. A worker, or `persist schedules fire`, queues what is due."""
    return _as_set(tx.workflows.schedules.set(name, **fields))


@schedules.writes("enable", "Let a schedule fire again.")
@click.argument("name")
def enable_schedule(tx: Transaction, name: str) -> Answer:
    """Let the schedule NAME fire again, from its next time on. Exit code 1 if there is none."""
    return _as_set(_switched(tx, name, on=True))


@schedules.writes("disable", "Let a schedule fire no more.")
@click.argument("name")
def disable_schedule(tx: Transaction, name: str) -> Answer:
    """Let the schedule NAME fire no more. A program that sets it when it starts enables it again; an override stays.

    Exit code 1 if there is none.
    """
    return _as_set(_switched(tx, name, on=False))


@schedules.writes("rm", "Remove a schedule.", json=False)
@click.argument("name")
def remove_schedule(tx: Transaction, name: str) -> Answer:
    """Remove the schedule NAME, not its runs. Exit code 1 if there is none."""
    if not tx.workflows.schedules.remove(name):
        raise _unknown(name)
    return told(None, f"Removed {inline(name)}.")


@schedules.writes("fire", "Queue the runs that are due.", quiet="Print the ids of the runs alone.")
def fire(tx: Transaction) -> Answer:
    """Queue the runs that are due now, as workers do. With --json: an object with `items`, the runs, and `cursor`."""
    return FIRED.all(tx.workflows.schedules.fire_due())


def _switched(tx: Transaction, name: str, *, on: bool) -> Schedule:
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


def _as_set(schedule: Schedule) -> Answer:
    when = "is off" if not schedule.enabled else f"fires next at {_when(schedule.next_fire_at)} UTC"
    return told(schedule, f"The schedule {inline(schedule.name)} {when}.")


def _when(at: datetime | None) -> str:
    return "-" if at is None else instant(at)


overrides = Noun(
    "overrides",
    "Switch workflows and schedules off and on.",
    "Switch workflows and schedules off and on, and give schedules other times.",
)
OVERRIDES = Table[tuple[str, WorkflowOverride | CronOverride]](
    "No overrides.",
    ("KIND", "NAME", "ENABLED", "CRON", "CHANGED (UTC)", "BY"),
    lambda one: (
        one[0],
        one[1].name,
        "yes" if one[1].enabled else "no",
        (one[1].schedule if isinstance(one[1], CronOverride) else None) or "-",
        one[1].updated_at,
        one[1].updated_by,
    ),
    name=lambda one: one[1].name,
    json=lambda one: {"kind": one[0], **one[1].model_dump(mode="json")},
)
of_schedule = click.option("--schedule", "of_schedule", is_flag=True, help="NAME is a schedule, not a workflow.")
by_whom = click.option("--by", metavar="WHO", help="Who changes it.")


@overrides.reads("ls", "List overrides of workflows and schedules.", quiet="Print the names alone.")
def list_overrides(tx: Transaction) -> Answer:
    """List overrides by name. With --json: an object with `items`, whose `kind` is workflow or schedule, and `cursor`."""
    workflows = [("workflow", one) for one in tx.workflows.workflow_overrides.all()]
    return OVERRIDES.all([*workflows, *(("schedule", one) for one in tx.workflows.cron_overrides.all())])


@overrides.writes("enable", "Let the runs of a workflow be claimed, or a schedule fire.", json=False)
@click.argument("name")
@of_schedule
@by_whom
def enable(tx: Transaction, name: str, of_schedule: bool, by: str | None) -> Answer:
    """Switch the workflow NAME on again, or a schedule."""
    return _switch(tx, name, of_schedule=of_schedule, on=True, by=by)


@overrides.writes("disable", "Let no run of a workflow be claimed, or no schedule fire.", json=False)
@click.argument("name")
@of_schedule
@by_whom
def disable(tx: Transaction, name: str, of_schedule: bool, by: str | None) -> Answer:
    """Switch the workflow NAME off: its queued runs wait. A schedule that is off queues nothing, and does not catch up."""
    return _switch(tx, name, of_schedule=of_schedule, on=False, by=by)


@overrides.writes("set", "Give a schedule another cron expression.", json=False)
@click.argument("name")
@click.option("--cron", metavar="EXPRESSION", help="When the schedule fires; without it at the times that it was made with.")
@by_whom
def set_override(tx: Transaction, name: str, cron: str | None, by: str | None) -> Answer:
    """Give the schedule NAME another cron expression. Whether it is enabled does not change."""
    override = tx.workflows.cron_overrides.set(name, schedule=cron, by=by)
    fires = "has its own times" if override.schedule is None else f"fires at {inline(override.schedule)}"
    return told(None, f"The schedule {inline(name)} {fires}.")


@overrides.writes("rm", "Remove an override.", json=False)
@click.argument("name")
@of_schedule
def remove_override(tx: Transaction, name: str, of_schedule: bool) -> Answer:
    """Remove the override of the workflow NAME, or of a schedule: the defaults hold again. Exit code 1 if there is none."""
    workflows, kind = tx.workflows, _kind(of_schedule)
    if not (workflows.cron_overrides if of_schedule else workflows.workflow_overrides).clear(name):
        raise Failed(f"There is no override of the {kind} {inline(name)}.")
    return told(None, f"Removed the override of the {kind} {inline(name)}.")


def _switch(tx: Transaction, name: str, *, of_schedule: bool, on: bool, by: str | None) -> Answer:
    if of_schedule:
        tx.workflows.cron_overrides.set(name, enabled=on, by=by)
    else:
        tx.workflows.workflow_overrides.set(name, enabled=on, by=by)
    return told(None, f"Switched the {_kind(of_schedule)} {inline(name)} {'on' if on else 'off'}.")


def _kind(of_schedule: bool) -> str:
    return "schedule" if of_schedule else "workflow"
