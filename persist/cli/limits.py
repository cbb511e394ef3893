"""`persist limits` and `persist budgets`: how many runs run at once, and what owners, agents and others may use."""

from datetime import timedelta

import click

from persist.cli.database import FloatRange, to_age
from persist.cli.failures import Failed
from persist.cli.nouns import Answer, Noun, Table, told
from persist.cli.output import inline
from persist.cli.usage import cost
from persist.store.transaction import Transaction
from persist.usage.schemas import Budget, BudgetStanding, Period
from persist.workflows.limit_values import Limit

_PERIODS = click.Choice([str(period) for period in Period])
_MILLION = 1_000_000

limits = Noun(
    "limits",
    "List, set and lift limits of workflows and keys.",
    "List, set and lift limits: how many runs of a workflow or a key run at once, and start in a period.",
)
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
    """How many at once, and how many in a period."""
    at_once = "any" if limit.concurrency is None else f"{limit.concurrency:,}"
    return at_once, "any" if limit.rate is None or limit.per is None else f"{limit.rate:,} per {limit.per}"


budgets = Noun(
    "budgets",
    "List, set and lift budgets of owners, agents and more.",
    "List, set and lift budgets: what an owner, agent or workflow may use in an hour, day, week or month, or in all.",
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
