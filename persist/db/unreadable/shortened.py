"""Lists with a limit from which unreadable rows were left out: these do not count, and do not end the list before its end."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Row = tuple[Any, ...]


class Shortened(list[Row]):
    """The readable rows of a list, and the number of unreadable ones that were left out."""

    __slots__ = ("left_out",)

    def __init__(self, rows: Iterable[Row], left_out: int) -> None:
        super().__init__(rows)
        self.left_out = left_out


def left_out(rows: list[Row]) -> int:
    """How many unreadable rows were left out of a list."""
    return rows.left_out if isinstance(rows, Shortened) else 0


def filled_up(rows: list[Row], values: Mapping[str, Any], read: Callable[[Mapping[str, Any]], list[Row]]) -> list[Row]:
    """As many readable rows as the parameter `limit` asks for, if there are so many; `rows` as they are without one.

    `read`: the rows of the same list with other `values`. The limit grows by what was left out, so it doubles at most.
    """
    asked = limit = values.get("limit")
    while asked is not None and isinstance(rows, Shortened) and len(rows) < asked and len(rows) + rows.left_out == limit:
        limit += rows.left_out
        rows = read({**values, "limit": limit})
    if asked is None or not isinstance(rows, Shortened):
        return rows
    return Shortened(rows[:asked], rows.left_out)
