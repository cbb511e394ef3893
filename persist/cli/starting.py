"""`persist limits`, `budgets`, `schedules` and `overrides`: when runs start, how many at once, and what they may use."""

from datetime import datetime, timedelta
from typing import Any

import click

from persist.cli.database import FloatRange, to_age, to_json
from persist.cli.nouns import Answer, Noun, Table, told
from persist.cli.output import inline, instant
from persist.cli.root import Failed
from persist.cli.usage import cost
from persist.store.transaction import Transaction
from persist.usage.schemas import Budget, BudgetStanding, Period
from persist.workflows.schemas import CatchUp, CronOverride, Limit, Schedule, WorkflowOverride, WorkflowRun

_PERIODS = click.Choice([str(period) for period in Period])
_MILLION = 1_000_000
limits = Noun("limits", "List, set and lift limits: how many runs of a workflow or a key run at once, and start in a period.")
LIMITS = Table[Limit](
    "No limits.",
    ("KEY", "AT ONCE", "RATE", "SET (UTC)"),
    lambda limit: (limit.key, *_limited(limit), limit.updated_at),
    name=lambda limit: limit.key,
)


@limits.reads("ls", "List limits by key.", quiet="Print the keys alone.")
def list_limits(tx: Transaction) -> Answer:
    """List limits by key. With --json: an object with `items` and `cursor`; `per` is a duration of ISO 8601."""
    return LIMITS.all(tx.workflows.limits.list())


@limits.writes("set", "Limit a workflow or a key.")
@click.argument("key")
@click.option("--concurrency", type=click.IntRange(1), metavar="N", help="How many run at once.")
@click.option("--rate", type=click.IntRange(1), metavar="N", help="How many start within --per.")
@click.option("--per", callback=to_age, metavar="TIME", help="The period of --rate: 30s, 1m, 12h.")
def set_limit(tx: Transaction, key: str, concurrency: int | None, rate: int | None, per: timedelta | None) -> Answer:
    """Limit the runs of a KEY: `workflow:NAME`, or what runs have as their concurrency key. Replaces the limit that it has."""
    limit = tx.workflows.limits.set(key, concurrency, rate, per)
    at_once, rates = _limited(limit)
    return told(limit, f"Limited {inline(limit.key)}: at once {at_once}, rate {rates}.")


@limits.writes("rm", "Lift a limit.", json=False)
@click.argument("key")
def remove_limit(tx: Transaction, key: str) -> Answer:
    """Lift the limit of a KEY. Exit code 1 if there is none."""
    if not tx.workflows.limits.delete(key):
        raise Failed(f"There is no limit {inline(key)}.")
    return told(None, f"Lifted {inline(key)}.")


def _limited(limit: Limit) -> tuple[str, str]:
    at_once = "any" if limit.concurrency is None else f"{limit.concurrency:,}"
    return at_once, "any" if limit.rate is None or limit.per is None else f"{limit.rate:,} per {limit.per}"


budgets = Noun(
    "budgets", "List, set and lift budgets: what an owner, agent or workflow may use in an hour, day, week or month, or in all."
)
BUDGETS = Table[BudgetStanding](
    "No budgets.",
    ("KEY", "PERIOD", "COST", "TOKENS", "USED", "UNTIL (UTC)"),
    lambda standing: _standing(standing),
    name=lambda standing: standing.budget.key,
)


@budgets.reads("ls", "List budgets and what is used of them.", quiet="Print the keys alone.")
def list_budgets(tx: Transaction) -> Answer:
    """List budgets by key and period, and what is used of them now. With --json: an object with `items` and `cursor`."""
    return BUDGETS.all(tx.usage.budgets.standings())


@budgets.writes("set", "Set a budget.")
@click.argument("key")
@click.option("--per", type=_PERIODS, default=str(Period.DAY), show_default=True, help="How often it begins anew.")
@click.option("--cost", "dollars", type=FloatRange(0, 1e12), metavar="USD", help="How many US dollars.")
@click.option("--tokens", type=click.IntRange(0), metavar="N", help="How many tokens: input, output and cached.")
@click.option("--timezone", default="UTC", show_default=True, help="In which a day or month begins.")
def set_budget(tx: Transaction, key: str, per: str, dollars: float | None, tokens: int | None, timezone: str) -> Answer:
    """Set the budget of a KEY: `owner:NAME`, `workspace:ID`, `workflow:NAME`, `instance:ID` or `agent:NAME`.

    Replaces the one of the same period.
    """
    micros = None if dollars is None else round(dollars * _MILLION)
    budget = tx.usage.budgets.set(key, per, micros, tokens, timezone=timezone)
    return told(budget, f"Set {inline(budget.key)}: {_limits(budget)} per {budget.period}.")


@budgets.writes("rm", "Lift a budget.", json=False)
@click.argument("key")
@click.option("--per", type=_PERIODS, default=str(Period.DAY), show_default=True, help="Of which period.")
def remove_budget(tx: Transaction, key: str, per: str) -> Answer:
    """Lift the budget of a KEY. Exit code 1 if there is none."""
    if not tx.usage.budgets.delete(key, per):
        raise Failed(f"There is no budget {inline(key)} per {per}.")
    return told(None, f"Lifted {inline(key)} per {per}.")


def _limits(budget: Budget) -> str:
    dollars = None if budget.max_cost_usd_micros is None else cost(budget.max_cost_usd_micros)
    tokens = None if budget.max_tokens is None else f"{budget.max_tokens:,} tokens"
    return " and ".join(limit for limit in (dollars, tokens) if limit is not None)


def _standing(standing: BudgetStanding) -> tuple[object, ...]:
    budget = standing.budget
    money, tokens = cost(standing.cost_usd_micros), f"{standing.tokens:,}"
    if budget.max_cost_usd_micros is not None:
        money += f" of {cost(budget.max_cost_usd_micros)}"
    if budget.max_tokens is not None:
        tokens += f" of {budget.max_tokens:,}"
    used = {0: "", 80: "over 80 %"}.get(standing.passed, "used up")
    return budget.key, str(budget.period), money, tokens, used, None if budget.period == Period.TOTAL else standing.ends_at


schedules = Noun(
    "schedules", "List, set, switch, remove and fire schedules: runs that are queued at the times of a cron expression."
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
    """Let the schedule NAME fire no more. A program that sets the schedule at its start enables it again; an override stays.

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
    kept = {field: getattr(known, field) for field in ("workflow_name", "cron", "timezone", "context", "catch_up")}
    return tx.workflows.schedules.set(name, **kept, enabled=on)


def _unknown(name: str) -> Failed:
    return Failed(f"There is no schedule {inline(name)}.")


def _as_set(schedule: Schedule) -> Answer:
    when = "is off" if not schedule.enabled else f"fires next at {_when(schedule.next_fire_at)} UTC"
    return told(schedule, f"The schedule {inline(schedule.name)} {when}.")


def _when(at: datetime | None) -> str:
    return "-" if at is None else instant(at)


overrides = Noun("overrides", "Switch workflows and schedules off and on, and give schedules other times.")
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
