"""Program runs: creating, listing, finishing and resuming them."""

import secrets
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import insert, literal_column, select, update

from persist.db.changes.batch import Batch, Pending
from persist.db.dialects.backends import ask_row_guards, missing_row_guards, unknown_triggers
from persist.db.expressions.upsert import insert_where, overwriting
from persist.db.operations.bounded_deletion import Keyset
from persist.db.schema import row_guards
from persist.db.schema.base import VERSION_TABLE
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.database_transaction import LEFT
from persist.db.transactions.own_scope import ScopedValues, stored_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import error_of, is_unreadable
from persist.db.values.arguments import check_choice, check_timedelta, optional_label
from persist.db.values.json import Json
from persist.db.values.pages import Page
from persist.errors import InvalidValue, NotFound, PersistError, shown
from persist.programs import names
from persist.programs.models import STRICT_TABLES, agents, bindings, executions, imports, raw_writes, runs, segments
from persist.programs.schemas import (
    AgentScope,
    AuditFinding,
    Binding,
    BindingKind,
    ExecutionStatus,
    Import,
    ProgramRun,
    ResumePoint,
    RunStatus,
    check_run,
)
from persist.programs.storage import attachments, run_rows
from persist.programs.storage.attachments import RunFolder
from persist.programs.storage.binding_rows import BINDING
from persist.programs.verbs.agents import AGENT, ALL_AGENTS
from persist.programs.verbs.bindings import ALL_BINDINGS
from persist.programs.verbs.executions import ALL_EXECUTIONS, resume_point

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
    """Report writes of other programs, from the triggers' notes.

    of_no_run   notes without a run, such as those of emptied tables: a writer that fills their room leaves the run its own
    """
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


# Imports: programs that are used under an alias; their values are bound as `alias.name`.

List = list
_I = imports.c
_IMPORT = ScopedValues(Import, imports, "run_id")
_OF_RUN = select(*_IMPORT.columns).where(_I.run_id == param("run")).order_by(_I.alias)
_ALL = Statement(_OF_RUN)
_GET = Statement(_OF_RUN.where(_I.alias == param("row_alias")))
_PUT = Statement(overwriting(insert_where(imports, run_rows.IS_THERE), "run_id", "alias"))


class Imports(Repository[F]):
    """`tx.programs.imports`."""

    guarded = True

    @writes
    def add(self, run_id: str, alias: str, source_url: str, *, inputs_schema: Json = None, outputs_schema: Json = None) -> Import:
        """Register a program under an alias (without a dot), or register it anew. Raises NotFound for the run."""
        work = self._work
        name, url = names.check_alias(alias), work.label("source_url", source_url)
        work.json("inputs_schema", inputs_schema)
        work.json("outputs_schema", outputs_schema)
        stored = stored_scope(work, "run_id", run_id)
        with work.batch(last=True) as batch:
            run = batch.row(run_rows.RUN_EXISTS, row_id=run_id)
            batch.run(
                _PUT,
                row_id=run_id,
                run_id=stored,
                alias=name,
                source_url=url,
                fetched_at=run_rows.this_second(work),
                inputs_schema=inputs_schema,
                outputs_schema=outputs_schema,
            )
            written = batch.row(_GET, run=stored, row_alias=name)
        run_rows.check_found(run, run_id)
        assert written.result is not None, "it was written a moment ago"
        return _IMPORT.public(self._work, written.result)

    @reads
    def get(self, run_id: str, alias: str) -> Import:
        """The import. Raises NotFound."""
        row = self._work.row(_GET, run=stored_scope(self._work, "run_id", run_id), row_alias=self._work.label("alias", alias))
        if row is None:
            raise NotFound("import", alias)
        return _IMPORT.public(self._work, row)

    @reads
    def list(self, run_id: str) -> List[Import]:
        """Every import of the run, by alias."""
        return [_IMPORT.public(self._work, row) for row in self._work.rows(_ALL, run=stored_scope(self._work, "run_id", run_id))]


_NEWEST = Keyset(
    "programs.runs",
    run_rows.RUN,
    (_R.started_at, _R.id),
    {"status": _R.status == param("status")},
    where=[_R.started_at.is_not(None)],
    literal_limits=True,
)
_ADD = Statement(
    insert(runs).values(
        **{name: param(name) for name in ("id", "program_path", "started_at", "updated_at", "state_mode", "program_source")},
        status=param("to"),
        written_status=param("to"),
        **run_rows.HOLD,
    )
)
_set_status = (
    update(runs).where(_R.id == param("row_id")).values(status=param("to"), written_status=param("to"), updated_at=param("at"))
)
_FINISH, _RESUME = Statement(_set_status.values(**run_rows.LET_GO)), Statement(_set_status.values(**run_rows.HOLD))


class ProgramRuns(Repository[F]):
    """`tx.programs.runs`."""

    guarded = True

    @writes
    def create(self, *, program_path: str | None = None, program_source: str | None = None, id: str | None = None) -> ProgramRun:
        """Create a run of this process, running. By default `id` is like 20260116-143052-a7b3c9. Raises Conflict if taken."""
        work = self._work
        now = run_rows.this_second(work)
        run_id = names.run_id(now, secrets.choice) if id is None else work.label("id", id)
        path = optional_label("program_path", program_path)
        source = None if program_source is None else work.body("program_source", program_source)
        with work.batch(last=True) as batch:
            batch.run(
                _ADD,
                id=run_id,
                program_path=path,
                program_source=source,
                state_mode=work.runtime.dialect.name,
                to=RunStatus.RUNNING,
                started_at=now,
                updated_at=now,
                **run_rows.hold_values(work),
            )
            written = batch.row(run_rows.GET_RUN, row_id=run_id)
        return _written(written)

    @reads
    def get(self, id: str) -> ProgramRun:
        """The run. Raises NotFound."""
        return run_rows.get_run(self._work, id)

    @reads
    def list(self, *, status: str | None = None, limit: int = 20, after: str | None = None) -> Page[ProgramRun]:
        """Runs, the last started first. Pass `cursor` as `after` for the next page."""
        word = None if status is None else check_choice("status", status, RunStatus)
        return _NEWEST.page(self._work, limit, after, {"status": word})

    @writes
    def finish(self, id: str, status: Literal["completed", "failed", "interrupted"]) -> ProgramRun:
        """running -> `status`; afterwards no process runs the run. Raises TransitionError for a run that is not running."""
        to = check_choice("status", status, RunStatus)
        if to is RunStatus.RUNNING:
            raise InvalidValue("status", "a run finishes as completed, failed or interrupted; resume() goes on with one.")
        run = run_rows.get_run(self._work, id, lock=True)
        check_run(run.id, run.status, to)
        return self._become(run, to, _FINISH)

    @writes
    def resume(self, id: str, *, stale_after: timedelta = run_rows.STALE_AFTER) -> ProgramRun:
        """interrupted or failed -> running, and this process runs it; or take a running run over from a process that is gone.

        A process of this machine and boot is gone when it has ended. Where that cannot be known, such as on another machine, it
        is gone when `seen` was not called for `stale_after`. Raises RunHeld, a TransitionError, if it is not gone, and
        TransitionError for a completed run and for a running one of which no process is known: just continue that one.
        """
        work = self._work
        span = check_timedelta("stale_after", stale_after)
        run = run_rows.get_run(work, id, lock=True)
        if (
            run.status == RunStatus.COMPLETED
            or not run_rows.check_free(run, run_rows.this_second(work), span)
            or run.status != RunStatus.RUNNING
        ):
            check_run(run.id, run.status, RunStatus.RUNNING)
        return self._become(run, RunStatus.RUNNING, _RESUME, **run_rows.hold_values(work))

    @writes
    def seen(self, id: str) -> ProgramRun:
        """Say that this process still runs a run: a process that cannot see this one must not take the run over.

        A running run without a known process is this process's from then on. Raises LeaseLost if another has it, or it has ended.
        """
        work = self._work
        run_id = work.label("id", id)
        with work.batch(last=True) as batch:
            renewed = batch.run(run_rows.SEEN, row_id=run_id, **run_rows.hold_values(work))
            written = batch.row(run_rows.GET_RUN, row_id=run_id)
        if written.result is None:
            raise NotFound("program run", id)
        run = run_rows.RUN(written.result)
        if not renewed.result:
            raise run_rows.lost(run)
        return run

    @reads
    def resume_point(self, id: str) -> ResumePoint:
        """The state to continue from: run, executing statements, bindings as stored, agents, open parallel blocks and loops."""
        return resume_point(self._work, run_rows.get_run(self._work, id))

    def _become(self, run: ProgramRun, to: RunStatus, statement: Statement, **holder: object) -> ProgramRun:
        work = self._work
        with work.batch(last=True) as batch:
            batch.run(statement, row_id=run.id, to=to, at=run_rows.this_second(work), **holder)
            written = batch.row(run_rows.GET_RUN, row_id=run.id)
        return _written(written)

    @reads
    def audit(self, id: str) -> List[AuditFinding]:
        """What a raw writer wrote into the run against the rules, or what is inconsistent; nothing is changed.

        Findings: statuses that this library did not write, unknown words, missing parents, frames and agents, circles,
        attachments that are missing, unused or not allowed to be read, unreadable cells, raw writes that triggers noted, row
        guards that were taken away, and in the run's own file foreign tables not named x_…. In the file of a project's or a
        user's agents the id is "project" or "user". Raises NotFound.
        """
        work = self._work
        stored = stored_scope(work, "run_id", id)
        with work.batch() as batch:
            owner = run_rows.ask_agents_owner(work, batch, id)
            executions, agents = batch.rows(ALL_EXECUTIONS, run=stored), batch.rows(ALL_AGENTS, run=stored)
            bindings, audited = batch.rows(ALL_BINDINGS, run=stored), Audited(work, batch, id)
        run_rows.check_found(owner, id)
        frames = {run_rows.EXECUTION.public(work, row).id for row in executions.result}
        known = {agent.name: agent.scope for agent in (AGENT.public(work, row) for row in agents.result)}
        bound = [BINDING.public(work, row) for row in bindings.result]
        has_folder = not run_rows.outlives_runs(id, work.runtime.scopes.get("run_id"))
        found = [
            *audit_run(audited.run.result, id),
            *audit_executions(audited.tree.result),
            *audit_bindings(work, id, bound, frames, unused=has_folder),
            *audit_agents(audited.segments.result, dict(known)),
            *audit_guards(work, audited.guards.result, audited.left.result),
            *audit_raw_writes(audited.raw_writes.result, audited.of_no_run.result),
            *audit_tables(work, id, {VERSION_TABLE, *(table.name for table in work.runtime.tables())}),
        ]
        return [*found, *audit_cells(work)]


def _written(written: Pending[Row | None]) -> ProgramRun:
    assert written.result is not None, "it was written or locked a moment ago"
    return run_rows.RUN(written.result)
