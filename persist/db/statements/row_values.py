"""`Values`: the columns of a table that a value is read from, and the function that makes the value."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import Table
from sqlalchemy.sql.elements import ColumnElement

from persist.db.statements.prepared import Row
from persist.db.values.frozen import Value, built
from persist.errors import NotFound

V = TypeVar("V", bound=Value)


class Values(Generic[V]):
    """The values of one kind in the rows of a table. It is called with a row of `columns`, and returns the row's value.

    A field is read from the column of its name, or of its name with `_json`, or from the expression in `read` under its name.
    `decode`: what makes the value of a field from its cell, where the column's type does not. `without`: fields that no column
    holds, and that the caller gives beside the row.
    """

    __slots__ = ("_decode", "columns", "fields", "kind")

    def __init__(
        self,
        kind: type[V],
        table: Table,
        *,
        decode: Mapping[str, Callable[[Any], Any]] | None = None,
        without: Collection[str] = (),
        **read: ColumnElement[Any],
    ) -> None:
        of = table.c
        self.kind, self.fields = kind, tuple(name for name in kind.model_fields if name not in without)
        self.columns: tuple[ColumnElement[Any], ...] = tuple(
            read[name] if name in read else of[name] if name in of else of[f"{name}_json"] for name in self.fields
        )
        self._decode = tuple((decode or {}).items())

    def __call__(self, row: Sequence[Any]) -> V:
        cells = dict(zip(self.fields, row))  # noqa: B905  # the statement has a column for each field; a check costs a quarter
        for name, decode in self._decode:
            cells[name] = decode(cells[name])
        return built(self.kind, cells)

    def beside(self, row: Sequence[Any], **given: Any) -> V:
        """The value of a row and of the fields that no column holds."""
        return built(self.kind, {**self(row).__dict__, **given})

    def optional(self, row: Row | None) -> V | None:
        return None if row is None else self(row)

    def found(self, row: Row | None, what: str, id: str) -> V:
        """The value of a row that was looked for by its id. Raises NotFound, which names `what` is missing."""
        if row is None:
            raise NotFound(what, id)
        return self(row)
