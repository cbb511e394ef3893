"""Finds what this library did not write into a run, and what is inconsistent; a virtual machine may write raw, too."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import literal_column, select

from persist.db.changes.batch import Batch, Pending
from persist.db.dialects.backends import ask_row_guards, missing_row_guards, unknown_triggers
from persist.db.schema import row_guards
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.database_transaction import LEFT
from persist.db.transactions.own_scope import stored_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import error_of, is_unreadable
from persist.errors import InvalidValue, NotFound, PersistError, shown
from persist.programs import names
from persist.programs.models import STRICT_TABLES, agents, bindings, executions, imports, raw_writes, runs, segments
from persist.programs.schemas import AgentScope, AuditFinding, Binding, BindingKind, ExecutionStatus, RunStatus
from persist.programs.storage import attachments
from persist.programs.storage.attachments import RunFolder

GUARDED = [
    table for table in (runs, executions, bindings, agents, segments, imports, raw_writes) if row_guards.GUARDS in table.info
]
_R, _E, _S, _W = runs.c, executions.c, segments.c, raw_writes.c
_RUN = Statement(select(_R.status, _R.written_status).where(_R.id == param("run")))
_TREE = Statement(select(_E.id, _E.parent_id, _E.status, _E.written_status).where(_E.run_id == param("run")).order_by(_E.id))
_SEGMENTS = Statement(select(_S.id, _S.agent_name).where(_S.run_id == param("run")).order_by(_S.id))
_NOTES = (
    select(_W.at, _W.table_name, _W.operation, _W.row_key_json, _W.writer_json, _W.before_json)
    .where(_W.at != literal_column("0"))
    .order_by(_W.id)
)
_RAW = Statement(_NOTES.where(_W.run_id == param("run")).limit(literal_column(str(row_guards.MAX_NOTES + 1))))
_OF_NO_RUN = Statement(
    _NOTES.where(_W.run_id == literal_column("''"), _W.run_id != param("run")).limit(literal_column(str(row_guards.MAX_EMPTIED)))
)
RAW_WRITE = "raw_write"
"""The code of what a program that is not persist wrote."""
_DONE = {
    row_guards.INSERT: "inserted",
    row_guards.REPLACE: "replaced",
    row_guards.UPDATE: "changed",
    row_guards.DELETE: "deleted",
    row_guards.TRUNCATE: "emptied",
}


class Audited:
    """The rows that only audits read, asked for with a batch."""

    def __init__(self, work: UnitOfWork, batch: Batch, run_id: str) -> None:
        stored = stored_scope(work, "run_id", run_id)
        self.run: Pending[Row | None] = batch.row(_RUN, run=run_id)
        self.tree: Pending[list[Row]] = batch.rows(_TREE, run=stored)
        self.guards: Pending[list[Row]] = ask_row_guards(work.runtime.dialect, batch)
        self.left: Pending[Row | None] = batch.row(LEFT)
        self.raw_writes: Pending[list[Row]] = batch.rows(_RAW, run=stored)
        self.of_no_run: Pending[list[Row]] = batch.rows(_OF_NO_RUN, run=stored)
        self.segments: Pending[list[Row]] = batch.rows(_SEGMENTS, run=stored)


def audit_run(row: Row | None, run_id: str) -> Iterator[AuditFinding]:
    """Check the run's status."""
    if row is not None and not any(map(is_unreadable, row)):
        yield from _status(f"run {run_id}", row[0], row[1], RunStatus)


def audit_executions(rows: Sequence[Row]) -> Iterator[AuditFinding]:
    """Find statuses that this library did not write, missing parents, and circles of parents."""
    parents = {id: parent for id, parent, _, _ in rows}
    for id, parent, status, written in rows:
        subject = f"execution {id}"
        yield from _status(subject, status, written, ExecutionStatus)
        if parent is not None and parent not in parents:
            yield AuditFinding.of("orphan", subject, f"its parent {parent} is not there.")
        elif _in_circle(id, parents):
            yield AuditFinding.of("circle", subject, "it is among its own parents.")


def audit_bindings(
    work: UnitOfWork, run_id: str, found: list[Binding], frames: set[int], *, unused: bool = True
) -> Iterator[AuditFinding]:
    """Find missing frames, unknown kinds, and attachments that are missing or `unused`."""
    folder = attachments.folder_of(work, run_id)
    used = set()
    for one in found:
        frame = "" if one.execution_id is None else f" of execution {one.execution_id}"
        subject = f"binding {one.name}{frame}"
        if one.execution_id is not None and one.execution_id not in frames:
            yield AuditFinding.of("orphan", subject, "the execution is not there.")
        if one.kind is not None and not isinstance(one.kind, BindingKind):
            yield AuditFinding.of("unknown_word", subject, f"its kind is {one.kind!r}.")
        if one.attachment_path is not None and folder is not None:
            try:
                used.add(names.attachment_parts(one.attachment_path)[1])
                folder.check(one.attachment_path)
            except InvalidValue as error:
                yield AuditFinding.of("attachment_escapes", subject, str(error))
            except NotFound:
                yield AuditFinding.of("attachment_missing", subject, f"{one.attachment_path} is not there.")
            except PersistError as error:
                yield AuditFinding.of("attachment_missing", subject, str(error))
    if folder is not None and unused:
        yield from _unused(folder, used)


def audit_agents(rows: Sequence[Row], known: dict[str, str | None]) -> Iterator[AuditFinding]:
    """Find segments of missing agents, and unknown scopes."""
    for name, scope in known.items():
        if scope is not None and not isinstance(scope, AgentScope):
            yield AuditFinding.of("unknown_word", f"agent {name}", f"its scope is {scope!r}.")
    for id, agent in rows:
        if agent not in known:
            yield AuditFinding.of("orphan", f"segment {id}", f"its agent {agent!r} is not there.")


def audit_cells(work: UnitOfWork) -> Iterator[AuditFinding]:
    """Report cells that the other audits could not read."""
    for table, key, column, reason in dict.fromkeys(
        (e.table, e.key, e.column, e.reason) for e in map(error_of, work.carried or ())
    ):
        row = "" if not key else f" {shown(key[0] if len(key) == 1 else key)}"
        yield AuditFinding.of("unreadable", f"{table}{row}", f"{column}: {reason}.")


def audit_tables(work: UnitOfWork, run_id: str, ours: set[str]) -> Iterator[AuditFinding]:
    """In a run's own file, find tables that are neither persist's nor named as extensions (x_…)."""
    if work.runtime.scopes.get("run_id") != run_id:
        return
    for name in sorted(work.whole_tables.names() - ours):
        if not name.startswith("x_"):
            yield AuditFinding.of("unexpected_table", f"table {name}", "extensions are named x_…")


def audit_raw_writes(rows: Sequence[Row], of_no_run: Sequence[Row]) -> Iterator[AuditFinding]:
    """Report writes of other programs, from the triggers' notes; `of_no_run`: those of emptied tables, with room of their own."""
    for at, table, operation, key, writer, before in (*of_no_run, *rows[: row_guards.MAX_NOTES]):
        if any(map(is_unreadable, (at, table, operation))):
            continue  # `audit_cells` reports it
        subject = f"{table} {_named(key)}" if isinstance(key, dict) else f"table {table}"
        noted = {"before": before if isinstance(before, dict) else None, "writer": writer if isinstance(writer, dict) else None}
        role = "" if noted["writer"] is None else f" of the role {shown(noted['writer'].get('role'))}"
        message = f"it was {_DONE.get(operation, shown(operation))} by a raw writer{role} at {at:%Y-%m-%d %H:%M:%S} UTC."
        yield AuditFinding.of(RAW_WRITE, subject, message, at=at, **noted)
    for found, room, whose in ((rows, row_guards.MAX_NOTES, "a run"), (of_no_run, row_guards.MAX_EMPTIED, "what is of no run")):
        if len(found) >= room:
            yield AuditFinding.of(RAW_WRITE, "notes", f"{whose} has room for {room:,}: what was written later has none.")


def _named(key: dict[str, Any]) -> str:
    """The key of a row, without its run, which the caller knows."""
    return ", ".join(f"{name}={shown(value)}" for name, value in key.items() if name != "run_id" and value is not None)


def audit_guards(work: UnitOfWork, found: Sequence[Row], left: Row | None) -> Iterator[AuditFinding]:
    """Find missing and changed row guards, and triggers of other programs: anything may have been written then."""
    runtime = work.runtime
    strict = STRICT_TABLES if runtime.strict else ()
    if left is not None and not work.writable:
        yield AuditFinding.of("guard_missing", f"_meta {left[0]}", "somebody left persist's mark there: nobody is refused.")
    for name in missing_row_guards(runtime.dialect, found, GUARDED, strict, marked_rows=runtime.marks_writes):
        yield AuditFinding.of("guard_missing", f"trigger {name}", "it is not there as it was made: nothing checked raw writers.")
    for name in unknown_triggers(runtime.dialect, found, GUARDED, strict):
        yield AuditFinding.of("trigger_unknown", f"trigger {name}", "persist did not make it: it writes in persist's name, too.")


def _status(
    subject: str, status: str | None, written: str | None, words: type[RunStatus] | type[ExecutionStatus]
) -> Iterator[AuditFinding]:
    if status != written:
        how = "inserted" if written is None else f"changed from {written}"
        yield AuditFinding.of("status_not_ours", subject, f"its status {status!s} was {how} by a raw writer.")
    if status is not None and not isinstance(status, words):
        yield AuditFinding.of("unknown_word", subject, f"its status is {status!r}.")


def _in_circle(id: int, parents: dict[int, int | None]) -> bool:
    slow: int | None = parents.get(id)
    steps = 0
    while slow is not None and slow != id and steps <= len(parents):
        slow, steps = parents.get(slow), steps + 1
    return slow == id


def _unused(folder: RunFolder, used: set[str]) -> Iterator[AuditFinding]:
    try:
        there = folder.names()
    except OSError as error:
        yield AuditFinding.of("attachment_escapes", f"folder {names.ATTACHMENTS}", f"nothing in it is read: {error.strerror}.")
        return
    for name in there:
        if name not in used:
            yield AuditFinding.of("attachment_unused", f"attachment {name}", "no binding names it.")
