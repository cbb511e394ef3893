"""Program runs: creating, listing, finishing and resuming them."""

import secrets
from datetime import timedelta
from typing import Literal

from sqlalchemy import insert, select, update

from persist.db.changes.batch import Pending
from persist.db.expressions.upsert import insert_where, overwriting
from persist.db.operations.keyset import Keyset
from persist.db.schema.base import VERSION_TABLE
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.own_scope import ScopedValues, stored_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_choice, check_timedelta, optional_label
from persist.db.values.json import Json
from persist.db.values.pages import Page
from persist.errors import InvalidValue, NotFound
from persist.programs import names
from persist.programs.models import imports, runs
from persist.programs.schemas import AuditFinding, Import, ProgramRun, ResumePoint, RunStatus, check_run
from persist.programs.storage import run_rows
from persist.programs.storage.binding_rows import BINDING
from persist.programs.verbs.agents import AGENT, ALL_AGENTS
from persist.programs.verbs.audits import (
    Audited,
    audit_agents,
    audit_bindings,
    audit_cells,
    audit_executions,
    audit_guards,
    audit_raw_writes,
    audit_run,
    audit_tables,
)
from persist.programs.verbs.bindings import ALL_BINDINGS
from persist.programs.verbs.executions import ALL_EXECUTIONS, resume_point

List = list
_I = imports.c
_IMPORT = ScopedValues(Import, imports, "run_id")
_OF_RUN = select(*_IMPORT.columns).where(_I.run_id == param("run")).order_by(_I.alias)
_ALL = Statement(_OF_RUN)
_GET = Statement(_OF_RUN.where(_I.alias == param("row_alias")))
_PUT = Statement(overwriting(insert_where(imports, run_rows.IS_THERE), "run_id", "alias"))


class Imports(Repository[F]):
    """`tx.programs.imports`."""

    _guarded = True

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


_R = runs.c
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

    _guarded = True

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
        run = run_rows.RUN(written.must_exist("program run", id))
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
