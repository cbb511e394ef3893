"""Collects the export rules of the domains: the rows of a session, and tables whose rows sessions share."""

from collections.abc import Iterator

from sqlalchemy import Table

from persist.db.operations.exporting import Exported, Rows
from persist.db.schema.scope_columns import OWN
from persist.domains import upkeeps
from persist.errors import Conflict, NotFound
from persist.maintenance.transactions import Session
from persist.programs.upkeep import SCOPE
from persist.quoting import named

KINDS = tuple(kind for upkeep in upkeeps().values() for kind in upkeep.exports)


def kind_of(session: Session, id: str) -> tuple[Exported, str]:
    """Return the first kind of session or run with this id, and the id; else what the id names otherwise.

    Raises NotFound if there is none, Conflict if it names several.
    """
    for kind in KINDS:
        if session.work.row(kind.found, session=id) is not None:
            return kind, id
    for kind in KINDS:
        found = [] if kind.named is None else session.work.rows(kind.named, session=id)
        if len(found) > 1:
            raise Conflict(f"{named(id)} names several: {', '.join(row[0] for row in found)}; give one of these ids.")
        for row in found:
            return kind, row[0]
    raise NotFound("session or run", id)


def values_for(session: Session, id: str) -> dict[str, str]:
    """Return the parameters of every statement that exports a session."""
    own = session.scopes.get(SCOPE) == id
    return {"session": id, "scope": OWN if own else id}


def _all(rows: tuple[Rows, ...]) -> Iterator[Rows]:
    for one in rows:
        yield one
        yield from _all(one.then)


def tables_of(kind: Exported) -> set[Table]:
    """The tables whose rows an export of this kind has."""
    return {rows.table for rows in _all(kind.rows)}


SHARED: frozenset[Table] = frozenset(rows.table for kind in KINDS for rows in _all(kind.rows) if rows.shared)
"""Tables whose rows several sessions may share. An import accepts an existing row of these tables if it is equal."""
