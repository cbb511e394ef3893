"""`persist usage`: what calls of models used and cost, by day or by who used it, with a bar for each line."""

import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from persist.cli.database import Database, on_named_database, to_age
from persist.cli.nouns import Answer, Table, answers, pages
from persist.cli.output import cells, columns, fitted, inline
from persist.db.transactions.verb_frame import Verb
from persist.db.values.clock import instant_before
from persist.db.values.pages import Page
from persist.store.transaction import Transaction, work_of
from persist.usage.schemas import Bucket, Group, UsageSum
from persist.workflows.storage.execution_rows import UncountedCost, uncounted_cost

_MILLION = 1_000_000
_LEAST_BAR, _MOST_BAR = 8, 40
_LEAST_NAME, _MOST_NAME = 12, 60
_LINES = click.Choice([str(kind) for kind in (*Bucket, *Group)])
_FILTERS = tuple(str(group) for group in Group)


def _filters(command: Any) -> Any:
    for name in reversed(_FILTERS):
        shown = "KIND:ID" if name == "scope" else "NAME"
        command = click.option(f"--{name}", metavar=shown, help=f"Only of this {name}.")(command)
    return command


@click.command("usage", short_help="Usage of models and its cost, by day or by group.")
@on_named_database
@click.option("--by", type=_LINES, default=str(Bucket.DAY), show_default=True, help="A line for each.")
@click.option("--since", callback=to_age, metavar="AGE", help="Only the time since so long ago: 12h, 30d.")
@click.option("--until", callback=to_age, metavar="AGE", help="Only the time until so long ago.")
@_filters
@pages(help="How many lines.")
@answers("Print the costs alone.")
def usage(database: Database, by: str, since: timedelta | None, until: timedelta | None, **wanted: Any) -> Answer:
    """Sum up tokens and cost of calls of models, in UTC days or hours, or for each model, agent, owner and so on.

    Days and hours come newest first, the others by cost. A bar shows the cost, or the tokens where no cost is known. Long names
    are cut in the middle. What executions of workflows cost that is in no sum is said below, unless a filter is given: they were
    counted elsewhere, or ended before this version counted them. With --json: an object with `items` and `cursor`, null on the
    last page, with whole names, and `uncounted`; cost is in millionths of a US dollar.
    """
    now = datetime.now(UTC)
    begins, ends = (None if age is None else instant_before(now, age) for age in (since, until))
    with database.open(read_only=True) as store, store.read() as tx:
        return sums_by(tx, by, begins, ends, **wanted)


def sums_by(tx: Transaction, by: str, begins: datetime | None, ends: datetime | None, **wanted: Any) -> Answer:
    """Sums by a bucket of time or by a group, with what executions cost that no sum has, unless a filter is given."""
    page = sums(tx, by, begins, ends, **wanted)
    with Verb(work_of(tx), "usage", writes=False):
        filtered = any(wanted.get(name) for name in _FILTERS)
        others = UncountedCost(0, 0) if filtered else uncounted_cost(work_of(tx), begins, ends)
    head, *rows = with_bars([_head(by), *(_row(one, by) for one in page.items)], page.items)
    table = Table[tuple[UsageSum, tuple[str, ...]]](
        "No calls.", head, lambda one: one[1], name=lambda one: cost(one[0].cost_usd_micros), json=lambda one: one[0]
    )
    answer = table.page(Page([*zip(page.items, rows, strict=True)], page.cursor), uncounted=asdict(others))
    return replace(answer, lines=[*answer.lines, beside(others)]) if others.runs else answer


def sums(tx: Transaction, by: str, begins: datetime | None, ends: datetime | None, **wanted: Any) -> Page[UsageSum]:
    """A page of sums by a bucket of time or by a group."""
    if by in Bucket._value2member_map_:
        return (tx.usage.by_day if by == Bucket.DAY else tx.usage.by_hour)(begins, ends, **wanted)
    return tx.usage.by_group(by, begins, ends, **wanted)


def beside(others: UncountedCost) -> str:
    """What is said of executions whose cost no sum has."""
    runs = f"{others.runs:,} {'run' if others.runs == 1 else 'runs'}"
    return f"Beside these, executions of {runs} cost {cost(others.cost_usd_micros)} that no sum has."


def _head(by: str) -> tuple[str, ...]:
    return by.upper(), "CALLS", "INPUT", "OUTPUT", "CACHED", "COST"


def with_bars(rows: list[tuple[str, ...]], sums: list[UsageSum], width: int | None = None) -> list[tuple[str, ...]]:
    """The rows, the first one the head, with bars in what is left of the terminal's width; long first cells are cut for them."""
    width = shutil.get_terminal_size().columns if width is None else width
    figures_take = max(len(line) for line in columns([("", *row[1:], "") for row in rows])) + 2
    name = max(_LEAST_NAME, min(_MOST_NAME, width - figures_take - _LEAST_BAR))
    rows = [(fitted(row[0], name), *row[1:]) for row in rows]
    taken = max(map(cells, columns([(*row, "") for row in rows]))) + 2
    size = max(_LEAST_BAR, min(_MOST_BAR, width - taken))
    costs = [one.cost_usd_micros for one in sums]
    figures = costs if any(costs) else [one.token_input + one.token_output for one in sums]
    most = max(figures, default=0) or 1
    return [(*rows[0], ""), *((*row, bar(figure, most, size)) for row, figure in zip(rows[1:], figures, strict=True))]


def bar(figure: int, most: int, size: int) -> str:
    """A bar for a figure, of so many characters for the highest one; at least one for a figure that is not 0."""
    return "#" * (0 if figure <= 0 else max(1, figure * size // most))


def _row(one: UsageSum, by: str) -> tuple[str, ...]:
    if one.starts_at is None:
        name = inline(one.group or "-")
    else:
        name = one.starts_at.strftime("%Y-%m-%d" if by == Bucket.DAY else "%Y-%m-%d %H:00")
    counts = (one.calls, one.token_input, one.token_output, one.token_cache_read + one.token_cache_write)
    price = cost(one.cost_usd_micros) + ("+" if one.unpriced else "")
    return (name, *(f"{count:,}" for count in counts), price)


def cost(micros: int) -> str:
    """An amount of US dollars, to the hundredth of a cent."""
    return f"${micros // _MILLION:,}.{micros % _MILLION // 100:04}"
