"""The rows of a run, its executions and bindings, the run's holder, and the columns of a strict file that only persist writes."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import exists, func, literal, null, or_, select, update

from persist.db.changes.batch import Batch, Pending
from persist.db.concurrency.ownership import is_stale, place_of, this_process_as_owner
from persist.db.expressions.upsert import insert_missing, seen
from persist.db.schema.base import table_of
from persist.db.schema.column_types import Int64
from persist.db.schema.meta_table import Meta
from persist.db.schema.row_guards import STRICT_BY_CONNECTION
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.statements.schema_version import STRICT
from persist.db.transactions.own_scope import ScopedValues, stored_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import UNBOUNDED, check_count
from persist.errors import Conflict, LeaseLost, NotFound, PersistError, RunHeld, named
from persist.programs import names
from persist.programs.models import FRAME, STRICT_TABLES, bindings, executions, runs
from persist.programs.schemas import (
    FIXED,
    SETTLED,
    AgentScope,
    Binding,
    BindingKind,
    ExecutionStatus,
    ProgramExecution,
    ProgramRun,
    RunStatus,
    check_execution,
)
from persist.programs.storage import attachments
from persist.programs.storage.attachments import RunFolder

_NOTE = Statement(insert_missing(table_of(Meta), "key"))


def make_strict(work: UnitOfWork) -> None:
    """Make the file strict as the last step of the transaction."""
    work.run(_NOTE, key=STRICT, value=STRICT_BY_CONNECTION)
    work.whole_tables.guard_strictly(STRICT_TABLES)
    work.runtime.strict = True


_R = runs.c
RUN = Values(ProgramRun, runs)
GET_RUN = Statement(select(*RUN.columns).where(_R.id == param("row_id")))
_LOCK = Statement(select(*RUN.columns).where(_R.id == param("row_id")).with_for_update())
RUN_EXISTS = Statement(select(_R.id).where(_R.id == param("row_id")))
IS_THERE = exists().where(_R.id == param("row_id"))
"""The condition that the run `row_id` exists, for an INSERT of what belongs to it."""


def get_run(work: UnitOfWork, id: str, *, lock: bool = False) -> ProgramRun:
    """The run, with `lock` locked against other writers. Raises NotFound."""
    return RUN.found(work.row(_LOCK if lock else GET_RUN, row_id=work.label("id", id)), "program run", id)


def outlives_runs(id: object, own: str | None) -> bool:
    """Whether the id is "project" or "user", in a file of that owner's agents or in a database of many (`own` None)."""
    return id in (AgentScope.PROJECT, AgentScope.USER) and own in (None, id)


def ask_agents_owner(work: UnitOfWork, batch: Batch, id: str) -> Pending[Row | None] | None:
    """Look for the owner of agents with a batch, for `check_found`; None if the id is no run's."""
    if outlives_runs(work.label("run_id", id), work.runtime.scopes.get("run_id")):
        return None
    return batch.row(RUN_EXISTS, row_id=id)


def check_found(run: Pending[Row | None] | None, id: str) -> None:
    """Raises NotFound if a batch looked for the run and did not find it."""
    if run is not None and run.result is None:
        raise NotFound("program run", id)


def this_second(work: UnitOfWork) -> datetime:
    """The store's clock, truncated to whole seconds as these tables store them."""
    return work.now().replace(microsecond=0)


_E = executions.c
EXECUTION = ScopedValues(ProgramExecution, executions, "run_id")
_THIS = (_E.run_id == param("row_run")) & (_E.id == param("row_id"))
GET_EXECUTION = Statement(select(*EXECUTION.columns).where(_THIS))
_LOCK_EXECUTION = Statement(select(*EXECUTION.columns).where(_THIS).with_for_update())
_SET = Statement(
    update(executions)
    .where(_THIS)
    .values(
        status=param("to"),
        written_status=param("to"),
        started_at=param("started"),
        completed_at=param("completed"),
        updated_at=param("at"),
        error_message=param("error"),
        metadata=param("facts"),
    )
)
_SET_METADATA = Statement(update(executions).where(_THIS).values(metadata=param("facts"), updated_at=param("at")))


def get_execution(work: UnitOfWork, run_id: str, id: int, *, lock: bool = False) -> ProgramExecution:
    """The execution. Raises NotFound unless the run has it."""
    stored, number = stored_scope(work, "run_id", run_id), check_count("id", id)
    row = work.row(_LOCK_EXECUTION if lock else GET_EXECUTION, row_run=stored, row_id=number)
    if row is None:
        raise NotFound("execution", str(id))
    return EXECUTION.public(work, row)


def become(
    work: UnitOfWork,
    execution: ProgramExecution,
    to: ExecutionStatus,
    *,
    error: str | None = None,
    facts: dict[str, Any] | None = None,
) -> ProgramExecution:
    """Change a locked execution's status and its instants, as the last write of the verb. Raises TransitionError."""
    check_execution(execution.id, execution.status, to)
    at = this_second(work)
    started: datetime | None = execution.started_at
    if to is ExecutionStatus.EXECUTING and started is None:
        started = at
    return _write(
        work,
        execution,
        _SET,
        to=to,
        started=started,
        completed=at if to in SETTLED else None,
        at=at,
        error=execution.error_message if error is None else error,
        facts=execution.metadata if facts is None else facts,
    )


def set_metadata(work: UnitOfWork, execution: ProgramExecution, facts: dict[str, Any]) -> ProgramExecution:
    """Replace the metadata of a locked execution. The last write of its verb."""
    work.json("metadata", facts)
    return _write(work, execution, _SET_METADATA, facts=facts, at=this_second(work))


def _write(work: UnitOfWork, execution: ProgramExecution, statement: Statement, **values: Any) -> ProgramExecution:
    this = {"row_run": stored_scope(work, "run_id", execution.run_id), "row_id": execution.id}
    with work.batch(last=True) as batch:
        batch.run(statement, **this, **values)
        written = batch.row(GET_EXECUTION, **this)
    assert written.result is not None, "it is locked"
    return EXECUTION.public(work, written.result)


def facts_of(execution: ProgramExecution) -> dict[str, Any]:
    """The metadata as an object; empty if a raw writer stored something else."""
    return dict(execution.metadata) if isinstance(execution.metadata, dict) else {}


# A process notes itself when it begins or resumes a run, and says with `runs.seen` that it is there. Published programs know
# nothing of this: a run that only they have written has no holder.

STALE_AFTER = timedelta(minutes=5)
"""Where nobody can look whether the process of a run still lives, such as on another machine, others wait so long for `seen`."""
HOLD = {"held_by": param("holder"), "held_since": param("second"), "seen_at": param("second")}
"""The columns of a run that this process begins or resumes; the parameters are those of `hold_values`."""
LET_GO = {"held_by": null(), "held_since": null(), "seen_at": null()}
SEEN = Statement(
    update(runs)
    .where(_R.id == param("row_id"), _R.status == RunStatus.RUNNING, or_(_R.held_by.is_(None), _R.held_by == param("holder")))
    .values(held_by=param("holder"), held_since=func.coalesce(_R.held_since, param("second")), seen_at=param("second"))
)


def hold_values(work: UnitOfWork) -> dict[str, object]:
    """The parameters of HOLD and SEEN."""
    return {"holder": this_process_as_owner(), "second": this_second(work)}


def check_free(run: ProgramRun, now: datetime, stale_after: timedelta) -> bool:
    """Whether a process that is gone held the run; False if none does, or this one. Raises RunHeld if it is there."""
    if run.held_by is None:
        return False
    mine = run.held_by == this_process_as_owner()
    if mine and run.status != RunStatus.RUNNING:
        return False
    seen = run.seen_at or run.held_since
    if not mine and (seen is None or is_stale(run.held_by, seen, now, stale_after)):
        return True
    host, pid = place_of(run.held_by)
    raise RunHeld(run.id, str(run.status), host, pid, run.held_since, run.seen_at)


def lost(run: ProgramRun) -> LeaseLost:
    """The error of a process that does not hold the run."""
    if run.held_by is None or run.status != RunStatus.RUNNING:
        reason = f"the run is {run.status}, and no process runs it."
    else:
        host, pid = place_of(run.held_by)
        reason = f"process {pid or '?'} on {named(host)} runs it; resume it when that process is gone."
    return LeaseLost(run.id, None, reason, kind="program run")


# One recursive query walks from a frame to its parents and counts the distance: the nearest frame wins regardless of ids, and a
# circle of parents made by a raw writer ends at the maximum.

_MAX = 1000
_ROOT = -1
_B = bindings.c
_frame = FRAME
BINDING = ScopedValues(Binding, bindings, "run_id")
_parent = executions.alias("parent")
_start = select(_E.id, _E.parent_id, literal(0, Int64()).label("depth")).where(_E.run_id == param("run"), _E.id == param("frame"))
_walked = _start.cte("chain", recursive=True)
_CHAIN = _walked.union_all(
    select(_parent.c.id, _parent.c.parent_id, _walked.c.depth + literal(1, Int64()))
    .select_from(_walked.join(_parent, _parent.c.id == _walked.c.parent_id))
    .where(_parent.c.run_id == param("run"), _walked.c.depth < param("maximum"))
)
_frames = (
    select(_CHAIN.c.id.label("frame"), _CHAIN.c.depth)
    .union_all(select(literal(_ROOT, Int64()), literal(UNBOUNDED, Int64())))
    .cte("frames")
)
_deepest = select(func.max(_CHAIN.c.depth)).scalar_subquery()
_RESOLVE = Statement(
    select(_deepest, *BINDING.columns)
    .select_from(_frames.join(bindings, _frame == _frames.c.frame))
    .where(_B.run_id == param("run"), _B.name == param("name"))
    .order_by(_frames.c.depth)
    .limit(1)
)
_DEEPEST = Statement(select(func.max(_CHAIN.c.depth)))


def resolve(work: UnitOfWork, run_id: str, name: str, execution_id: int) -> Row:
    """The binding's row that the name resolves to in the frame. Raises NotFound, or Conflict for a circle of frames."""
    maximum = _maximum(work)
    stored = stored_scope(work, "run_id", run_id)
    row = work.row(_RESOLVE, run=stored, frame=execution_id, name=name, maximum=maximum)
    deepest = depth(work, run_id, execution_id) if row is None else row[0]
    if deepest is None:
        raise NotFound("execution", str(execution_id))
    if deepest >= maximum:
        raise Conflict(f"The parents of execution {execution_id} form a circle.")
    if row is None:
        raise NotFound("binding", name)
    return row[1:]


def depth(work: UnitOfWork, run_id: str, execution_id: int) -> int | None:
    """How many frames are above that one; None if it does not exist. A circle of parents counts as the maximum depth."""
    stored = stored_scope(work, "run_id", run_id)
    return depth_in(work.row(_DEEPEST, run=stored, frame=execution_id, maximum=_maximum(work)))


def ask_depth(work: UnitOfWork, batch: Batch, run_id: str, execution_id: int) -> Pending[Row | None]:
    """Count the frames above an execution with a batch; `depth_in` the row is what `depth` returns."""
    stored = stored_scope(work, "run_id", run_id)
    return batch.row(_DEEPEST, run=stored, frame=execution_id, maximum=_maximum(work))


def depth_in(row: Row | None) -> int | None:
    """The number of frames in a row of `ask_depth`; None if the execution does not exist."""
    return None if row is None or row[0] is None else int(row[0])


def _maximum(work: UnitOfWork) -> int:
    return max(_MAX, work.runtime.settings.max_depth + 1)


_TRIES = 10
"""How often a name that was taken and is gone again is bound anew. It is taken for good by a row that row security hides."""
_THIS_BINDING = (_B.run_id == param("row_run")) & (_B.name == param("row_name")) & (_frame == param("row_frame"))
_GET = Statement(select(*BINDING.columns).where(_THIS_BINDING))
OF_FRAME = Statement(
    select(*BINDING.columns).where(_B.run_id == param("row_run"), _frame == param("row_frame")).order_by(_B.name)
)
_LOCK_BINDING = Statement(select(*BINDING.columns).where(_THIS_BINDING).with_for_update())
_ADD = Statement(insert_missing(bindings).returning(*BINDING.columns))
_NAMED = Statement(select(_B.name).where(_B.attachment_path.contains(param("token"))).limit(1))
"""Finds a row that names a token's file, in any spelling of the path."""
_CHANGED = ("kind", "value", "source_statement", "attachment_path", "updated_at")
_SET_BINDING = Statement(update(bindings).where(_THIS_BINDING).values(**{name: param(f"new_{name}") for name in _CHANGED}))


def find_row(work: UnitOfWork, run_id: str, name: str, execution_id: int | None, *, lock: bool = False) -> Row | None:
    """The row of a name in one frame; `execution_id` None is the root."""
    return work.row(_LOCK_BINDING if lock else _GET, **_key(work, run_id, name, execution_id))


def ask_locked(work: UnitOfWork, batch: Batch, run_id: str, name: str, execution_id: int | None) -> Pending[Row | None]:
    """What `find_row` with `lock` does, with a batch."""
    return batch.row(_LOCK_BINDING, **_key(work, run_id, name, execution_id))


def _key(work: UnitOfWork, run_id: str, name: str, execution_id: int | None) -> dict[str, Any]:
    frame = _ROOT if execution_id is None else execution_id
    return {"row_run": stored_scope(work, "run_id", run_id), "row_name": name, "row_frame": frame}


def put(
    work: UnitOfWork,
    run_id: str,
    name: str,
    execution_id: int | None,
    value: str | None,
    row: Row | None,
    *,
    kind: BindingKind,
    source_statement: str | None,
    content: Iterable[bytes] | None = None,
) -> Binding:
    """Write the value into its `row` that `ask_locked` found, or `content` into a file. Raises Conflict for a const or input."""
    folder = attachments.folder_of(work, run_id)
    fields: dict[str, Any] = {
        "kind": kind,
        "value": value,
        "source_statement": source_statement,
        "attachment_path": None,
        "updated_at": this_second(work),
    }
    _check_rebinding(name, row)
    if content is None or folder is None:
        return _put(work, run_id, name, execution_id, fields, row, folder)
    path = folder.write(name, execution_id, content)
    attachments.remove_unless_committed(work, folder, path)
    try:
        return _put(work, run_id, name, execution_id, {**fields, "attachment_path": path}, row, folder)
    except BaseException:
        with suppress(PersistError):
            folder.remove(path)  # the caller may catch this and commit
        raise


def _put(
    work: UnitOfWork,
    run_id: str,
    name: str,
    execution_id: int | None,
    fields: dict[str, Any],
    row: Row | None,
    folder: RunFolder | None,
) -> Binding:
    for _ in range(_TRIES):
        if row is not None:
            break
        written = _added(work, run_id, name, execution_id, fields)
        if written is not None:
            return BINDING.public(work, written)
        row = find_row(work, run_id, name, execution_id, lock=True)  # another writer was faster
        _check_rebinding(name, row)
    row = seen(row, _ADD, "binding", name)
    return BINDING.public(work, _replaced(work, run_id, BINDING.public(work, row), fields, folder))


def _check_rebinding(name: str, row: Row | None) -> None:
    kind = None if row is None else row[BINDING.fields.index("kind")]
    if not is_unreadable(kind) and kind in FIXED:
        raise Conflict(f"{name!r} is bound already, as {kind}, which is bound once.", constraint="bindings.kind")


def _added(work: UnitOfWork, run_id: str, name: str, execution_id: int | None, fields: dict[str, Any]) -> Row | None:
    """The new row; None, and no change, if the name is taken."""
    key = {"run_id": stored_scope(work, "run_id", run_id), "name": name, "execution_id": execution_id}
    return work.returned(_ADD, **key, **fields, created_at=fields["updated_at"])


def _replaced(work: UnitOfWork, run_id: str, before: Binding, fields: dict[str, Any], folder: RunFolder | None) -> Row:
    """Update in place: created_at and custom columns stay. A file that the library wrote is removed with its last row."""
    named = {f"new_{name}": value for name, value in fields.items()}
    this = _key(work, run_id, before.name, before.execution_id)
    with work.batch(last=folder is None) as batch:
        batch.run(_SET_BINDING, **this, **named)
        written = batch.row(_GET, **this)
    path = before.attachment_path
    if folder is not None and path is not None and not is_unreadable(path):
        token = names.attachment_token(path)
        if token is not None and work.row(_NAMED, token=token) is None:
            attachments.forget(work, folder, path)
    assert written.result is not None
    return written.result
