"""Files of one run, instance or workspace: `_meta` names the owner, whose rows have an empty scope column."""

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import Table, select

from persist.db.expressions.upsert import insert_missing
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.schema.scope_columns import OWN
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.statements.schema_version import OWN_SCOPES
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.frozen import Value, built
from persist.errors import Conflict, InvalidValue

V = TypeVar("V", bound=Value)
_meta = table_of(Meta)
_NOTE = Statement(insert_missing(_meta, "key"))
_NOTED = Statement(select(_meta.c.value).where(_meta.c.key == param("row_key")))


def stored_scope(work: UnitOfWork, scope: str, given: object) -> str:
    """The stored form of a scope that a caller names: empty for the file's owner. Raises InvalidValue if empty or no text."""
    text = work.label(scope, given)
    return OWN if work.runtime.scopes.get(scope) == text else text


def resolve_scope(work: UnitOfWork, scope: str, given: str | None) -> str:
    """The stored form of a scope; None is the file's owner. Raises InvalidValue for None on a database that is no file."""
    if given is not None:
        return stored_scope(work, scope, given)
    if not work.runtime.dialect.one_file:
        raise InvalidValue(scope, "this database holds those of many; say which.")
    return OWN


def public_scope(work: UnitOfWork, scope: str, stored: str) -> str:
    """The id behind a stored scope."""
    return stored or work.runtime.scopes.get(scope, OWN)


class ScopedValues(Values[V]):
    """Values whose field `scope` holds a stored scope; `public` makes values with the id behind it."""

    __slots__ = ("scope",)

    def __init__(self, kind: type[V], table: Table, scope: str) -> None:
        super().__init__(kind, table)
        self.scope = scope

    def public(self, work: UnitOfWork, row: Sequence[Any]) -> V:
        fields = dict(zip(self.fields, row, strict=True))
        fields[self.scope] = public_scope(work, self.scope, fields[self.scope])
        return built(self.kind, fields)


def claim_file(work: UnitOfWork, scope: str, id: str) -> None:
    """Write the owner of the file into `_meta`. Raises Conflict if the file has another owner."""
    assert scope in OWN_SCOPES, scope
    work.run(_NOTE, key=scope, value=work.label(scope, id))
    row = work.row(_NOTED, row_key=scope)
    if row is not None and row[0] != id:
        raise Conflict(f"The file has another {scope} already: {row[0]!r}.", constraint=f"_meta.{scope}")
