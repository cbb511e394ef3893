"""What a resumable copy notes in the `_meta` of its target: whose copy it is, and how far it has come."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import delete, insert, select, update

from persist.db.dialects.bulk import Row
from persist.db.schema.base import table_of
from persist.db.schema.meta_table import Meta
from persist.db.statements.prepared import Statement, param
from persist.db.statements.schema_version import COPY, COPYING, HEAD
from persist.errors import Conflict, InvalidValue
from persist.maintenance.transactions import Session

META = table_of(Meta)
_IS_MARK, _IS_VERSION = META.c.key == COPY, META.c.key == "schema_version"
_READ = Statement(select(META.c.value).where(_IS_MARK))
_BEGIN = Statement(insert(META).values(key=COPY, value=param("noted")))
_GO_ON = Statement(update(META).where(_IS_MARK, META.c.value == param("before")).values(value=param("noted")))
_END = Statement(delete(META).where(_IS_MARK, META.c.value == param("before")))
_NOTE_VERSION = Statement(update(META).where(_IS_VERSION).values(value=param("version")))


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a resumable copy.

    source    the source, as in a shell command
    identity  tells the source from other databases, also after a restart of its server
    revision  the schema revision of both
    scopes    the ids of the source file's owners
    rule      "last snapshot": rows are read in many snapshots; the target ends as equal to the one that it is compared with
    process   a random value for the process that copies: another one that goes on replaces it
    table     the table whose rows are being copied; None once all were, and the databases are compared
    after     the key of the last row of that table that was copied; None before the first
    """

    source: str
    identity: list[Any]
    revision: str
    scopes: dict[str, str]
    rule: str
    process: str
    table: str | None
    after: list[Any] | None = None

    def text(self) -> str:
        """The mark as it is stored."""
        return orjson.dumps({name: getattr(self, name) for name in self.__slots__}, default=_bytes).decode()


def first_mark(source: Session, scopes: Mapping[str, str], table: str) -> Mark:
    """The mark of a copy that begins."""
    words = source.store.runtime.dialect.tables.arguments("--source-schema")
    identity = list(source.bulk.lasting_identity())
    return Mark(words, identity, HEAD, dict(scopes), "last snapshot", secrets.token_hex(8), table)


def read_mark(target: Session) -> Mark | None:
    """The mark in the target; None if no copy is under way."""
    row = target.work.row(_READ)
    if row is None:
        return None
    fields = orjson.loads(row[0])
    if fields["after"] is not None:
        fields["after"] = [bytes.fromhex(one["bytes"]) if isinstance(one, dict) else one for one in fields["after"]]
    return Mark(**fields)


def begin(target: Session, mark: Mark) -> None:
    """Note that a copy begins: from now on the target is no store that can be opened."""
    target.work.run(_BEGIN, noted=mark.text())
    target.work.run(_NOTE_VERSION, version=COPYING)


def take_over(target: Session, found: Mark, asked: Mark) -> Mark:
    """Continue the copy that was found. Raises InvalidValue unless it is the copy that the caller asks for."""
    if found.identity != asked.identity:
        raise InvalidValue("source", f"the copy under way is one of {found.source}; continue that one, or empty the target.")
    if found.revision != asked.revision:
        reason = (
            f"the copy was begun at revision {found.revision}, and this version has {asked.revision}; empty the target first."
        )
        raise InvalidValue("target", reason)
    for scope, id in asked.scopes.items():
        if found.scopes.get(scope, id) != id:
            raise InvalidValue(
                scope, f"the copy was begun as that of {found.scopes[scope]!r}, not of {id!r}; or empty the target."
            )
    return go_on(target, found, replace(found, process=asked.process, scopes={**found.scopes, **asked.scopes}))


def go_on(target: Session, mark: Mark, next: Mark) -> Mark:
    """Replace the mark, first in each transaction of the copy. Raises Conflict if another process has replaced it."""
    _expect(target.work.run(_GO_ON, before=mark.text(), noted=next.text()))
    return next


def end(target: Session, mark: Mark, rows: list[Row]) -> None:
    """Remove the mark and add the rows of the source's `_meta`: the target is a store now."""
    _expect(target.work.run(_END, before=mark.text()))
    target.work.run(_NOTE_VERSION, version=HEAD)
    target.bulk.load(META, tuple(META.columns), [rows])


def _expect(changed: int) -> None:
    if not changed:
        raise Conflict("Another process has gone on with this copy; this one has stopped.", constraint=COPY)


def _bytes(value: Any) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    raise TypeError(value)
