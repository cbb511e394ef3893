"""How many round trips to Postgres each call may take, and how many it should: bounds.csv.

A call is a verb in a transaction of its own, commit included, or one of the `EVERYDAY` calls. A bound is what the call takes
today: it may be lowered, and is not raised. `python -m tests.roundtrips --lower` lowers what has become better.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

TABLE = Path(__file__).with_name("bounds.csv")


@dataclass(frozen=True)
class Row:
    """The bound of one call, which tests enforce, and the goal, which they do not."""

    name: str
    bound: int
    goal: int = 3


class _Bounds(dict[str, Row]):
    def __missing__(self, name: str) -> Row:
        raise LookupError(f"tests/roundtrips/bounds.csv has no row for {name}: add one with its bound.")


def _rows() -> list[Row]:
    with TABLE.open(encoding="utf-8", newline="") as table:
        return [Row(row["call"], int(row["bound"]), int(row["goal"])) for row in csv.DictReader(table)]


BOUNDS = _Bounds({row.name: row for row in _rows()})


def lower(counts: Mapping[str, int]) -> None:
    """Write each lower count into the table."""
    lowered: Iterable[Row] = (replace(row, bound=min(row.bound, counts.get(row.name, row.bound))) for row in BOUNDS.values())
    with TABLE.open("w", encoding="utf-8", newline="") as table:
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(("call", "bound", "goal"))
        writer.writerows((row.name, row.bound, row.goal) for row in lowered)
