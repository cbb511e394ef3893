"""`persist budgets`: what an owner, workspace, workflow, instance or agent may use in a period, and how much of it is used."""

import click

from persist.cli.database import Database, as_json, on_database, quiet
from persist.cli.failures import Failed
from persist.cli.listing import by_name, say_named
from persist.cli.numbers import FloatRange
from persist.cli.output import inline, instant, say, say_json
from persist.cli.usage import cost
from persist.usage.schemas import Budget, BudgetStanding, Period

_PERIODS = click.Choice([str(period) for period in Period])
_MILLION = 1_000_000
_HEAD = ("KEY", "PERIOD", "COST", "TOKENS", "USED", "UNTIL (UTC)")


@click.group("budgets", short_help="List, set and lift budgets of owners, agents and more.")
def budgets() -> None:
    """List, set and lift budgets: what an owner, agent or workflow may use in an hour, day, week or month, or in all."""


@budgets.command(short_help="List budgets and what is used of them.")
@by_name("keys")
def ls(database: Database, as_json: bool, quiet: bool) -> None:
    """List budgets by key and period, and what is used of them now. With --json: an object with `items` and `cursor`."""
    with database.open(read_only=True) as store, store.read() as tx:
        found = tx.usage.budgets.standings()
    say_named(found, "No budgets.", _HEAD, _row, lambda standing: standing.budget.key, as_json=as_json, quiet=quiet)


@budgets.command("set", short_help="Set a budget.")
@click.argument("key")
@on_database
@click.option("--per", type=_PERIODS, default=str(Period.DAY), show_default=True, help="How often it begins anew.")
@click.option("--cost", "dollars", type=FloatRange(0, 1e12), metavar="USD", help="How many US dollars.")
@click.option("--tokens", type=click.IntRange(0), metavar="N", help="How many tokens: input, output and cached.")
@click.option("--timezone", default="UTC", show_default=True, help="In which a day or month begins.")
@as_json
@quiet("Print nothing.")
def set_(
    key: str,
    database: Database,
    per: str,
    dollars: float | None,
    tokens: int | None,
    timezone: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Set the budget of a KEY: `owner:NAME`, `workspace:ID`, `workflow:NAME`, `instance:ID` or `agent:NAME`.

    Replaces the one of the same period.
    """
    micros = None if dollars is None else round(dollars * _MILLION)
    with database.open_existing() as store, store.begin() as tx:
        budget = tx.usage.budgets.set(key, per, micros, tokens, timezone=timezone)
    if as_json:
        say_json(budget.model_dump(mode="json"))
    elif not quiet:
        say(f"Set {inline(budget.key)}: {_limits(budget)} per {budget.period}.")


@budgets.command(short_help="Lift a budget.")
@click.argument("key")
@on_database
@click.option("--per", type=_PERIODS, default=str(Period.DAY), show_default=True, help="Of which period.")
@quiet("Print nothing.")
def rm(key: str, database: Database, per: str, quiet: bool) -> None:
    """Lift the budget of a KEY. Exit code 1 if there is none."""
    with database.open_existing() as store, store.begin() as tx:
        if not tx.usage.budgets.delete(key, per):
            raise Failed(f"There is no budget {inline(key)} per {per}.")
    if not quiet:
        say(f"Lifted {inline(key)} per {per}.")


def _limits(budget: Budget) -> str:
    dollars = None if budget.max_cost_usd_micros is None else cost(budget.max_cost_usd_micros)
    tokens = None if budget.max_tokens is None else f"{budget.max_tokens:,} tokens"
    return " and ".join(limit for limit in (dollars, tokens) if limit is not None)


def _row(standing: BudgetStanding) -> tuple[str, ...]:
    budget = standing.budget
    money, tokens = cost(standing.cost_usd_micros), f"{standing.tokens:,}"
    if budget.max_cost_usd_micros is not None:
        money += f" of {cost(budget.max_cost_usd_micros)}"
    if budget.max_tokens is not None:
        tokens += f" of {budget.max_tokens:,}"
    used = {0: "", 80: "over 80 %"}.get(standing.passed, "used up")
    until = "-" if budget.period == Period.TOTAL else instant(standing.ends_at)
    return inline(budget.key), str(budget.period), money, tokens, used, until
