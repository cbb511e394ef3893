"""What a file calls its own: rows of the run, instance or workspace that its `_meta` names are stored without a scope.

A raw INSERT of a command line that knows nothing of scopes lands there too. Callers and values always say the real id.
"""

from sqlalchemy import select

from persist.db.base import table_of
from persist.db.hot import Hot, param
from persist.db.insert import insert_missing
from persist.db.models import Meta
from persist.db.scope import OWN
from persist.db.version import OWN_SCOPES
from persist.db.work import Work
from persist.errors import Conflict, InvalidValue

_meta = table_of(Meta)
_NOTE = Hot(insert_missing(_meta, "key"))
_NOTED = Hot(select(_meta.c.value).where(_meta.c.key == param("row_key")))


def stored_scope(work: Work, scope: str, given: object) -> str:
    """How the scope that a caller names is stored; InvalidValue without one."""
    text = work.label(scope, given)
    return OWN if work.runtime.scopes.get(scope) == text else text


def own_scope(work: Work, scope: str, given: str | None) -> str:
    """The same, where None is the file's own; where no file is, InvalidValue."""
    if given is not None:
        return stored_scope(work, scope, given)
    if not work.runtime.dialect.one_file:
        raise InvalidValue(scope, "this database holds those of many; say which.")
    return OWN


def shown_scope(work: Work, scope: str, stored: str) -> str:
    """The id behind a stored scope."""
    return stored or work.runtime.scopes.get(scope, OWN)


def take_scope(work: Work, scope: str, id: str) -> None:
    """Make the file one's own. Conflict if it is another one's."""
    assert scope in OWN_SCOPES, scope
    work.run(_NOTE, key=scope, value=work.label(scope, id))
    row = work.row(_NOTED, row_key=scope)
    if row is not None and row[0] != id:
        raise Conflict(f"The file has another {scope} already: {row[0]!r}.", constraint=f"_meta.{scope}")
