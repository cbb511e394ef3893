"""The table of a run, in Markdown."""

from collections.abc import Iterable

from tests.torture.scenario import Tally

HEAD = """\
| what is done to it | database | rounds | acknowledged | lost | repaired | errors by type |
|---|---|---|---|---|---|---|"""


def row(name: str, database: str, tally: Tally) -> str:
    if tally.missing:
        return f"| {name} | {database} | not run: there is no {tally.missing} | | | | |"
    errors = ", ".join(f"{kind} {count:,}" for kind, count in sorted(tally.errors.items()))
    counts = " | ".join(f"{count:,}" for count in (tally.rounds, tally.acknowledged, tally.lost, tally.repaired))
    return f"| {name} | {database} | {counts} | {errors} |"


def verdict(tallies: Iterable[Tally]) -> str:
    """One sentence on all of them."""
    rounds = acknowledged = lost = problems = 0
    for tally in tallies:
        rounds += tally.rounds
        acknowledged += tally.acknowledged
        lost += tally.lost
        problems += len(tally.problems)
    return f"{rounds:,} rounds, {acknowledged:,} acknowledged writes, {lost:,} lost, {problems:,} broken promises."
