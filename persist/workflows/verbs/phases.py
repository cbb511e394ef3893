"""The phases of a run: whether one still has to run, what its worker writes at its beginning and end, and the run's progress."""

import re
from collections.abc import Mapping
from typing import Any, Literal, Unpack

from sqlalchemy import BigInteger, ColumnElement, Select, and_, bindparam, literal, or_, select, update

from persist.db.expressions.json_text import appended_items, has_room
from persist.db.schema.base import flag_set
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.repository import F, Repository, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.escaping import utf8_size
from persist.db.values.json import Json, encode, plain_object
from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge
from persist.workflows.models import IS_UNFINISHED, executions, runs
from persist.workflows.schemas import Lease, Phase, StopReason, WorkflowRun
from persist.workflows.storage import execution_rows, run_rows
from persist.workflows.storage.queue import HAS_INSTANTS, WRITABLE, guard_values

# Whether a phase still has to run, and what its earlier executions left behind.
#
# Scope: with a run id that run alone, so that a fresh run repeats what an older one finished; without, the trigger.

Scope = Literal["run", "trigger"]
_E = executions.c
_SCOPES: dict[Scope, ColumnElement[bool]] = {
    "run": and_(_E.workflow_run_id == param("scope_id"), _E.skill == param("of_skill")),
    "trigger": and_(_E.trigger_id == param("scope_id"), _E.skill == param("of_skill")),
}
_newest = (_E.started_at.desc(), _E.id.desc())
_NEVER_TRIED = (StopReason.SKIPPED, StopReason.DEFERRED)
"""Stop reasons of executions that neither succeeded nor failed: the phase was not attempted."""
_FAILED = {"success": False, "error": param("reason"), "finished_at": param("at")}


def _standing(scope: ColumnElement[bool]) -> Statement:
    any_row = select(_E.id).where(scope)
    return Statement(select(any_row.where(IS_UNFINISHED).exists(), any_row.where(flag_set(_E.success)).exists()))


def _output(scope: ColumnElement[bool]) -> Statement:
    finished = (scope, _E.finished_at.is_not(None), _E.output_text.is_not(None))
    return Statement(select(_E.output_text).where(*finished).order_by(*_newest).limit(1))


def _latest(scope: ColumnElement[bool]) -> Select[Any]:
    return select(_E.id).where(scope).order_by(*_newest).limit(1)


_skill_of_run = select(runs.c.workflow_name.concat(param("suffix"))).where(runs.c.id == param("scope_id")).scalar_subquery()
_of_phase = and_(_E.workflow_run_id == param("scope_id"), _E.skill == _skill_of_run)
# what a failed attempt left is no output of a phase that is done, whichever clock began first
_STANDING_OF_PHASE, _OUTPUT_OF_PHASE = _standing(_of_phase), _output(and_(_of_phase, flag_set(_E.success)))
_STANDING = {name: _standing(scope) for name, scope in _SCOPES.items()}
_OUTPUT = {name: _output(scope) for name, scope in _SCOPES.items()}
_VETO = {
    name: Statement(
        update(executions).where(_E.id == _latest(scope).scalar_subquery()).values(success=False, error=param("reason"))
    )
    for name, scope in _SCOPES.items()
}
_STALE = Statement(update(executions).where(_E.trigger_id == param("scope_id"), IS_UNFINISHED).values(_FAILED))
_STALE_OF_SKILL = Statement(update(executions).where(_SCOPES["trigger"], IS_UNFINISHED).values(_FAILED))
_LAST_TYPE = Statement(select(_E.trigger_type).where(_E.trigger_id == param("scope_id")).order_by(*_newest).limit(1))
_RESULTS = Statement(
    select(_E.success)
    .where(
        _E.skill == param("of_skill"),
        _E.finished_at.is_not(None),
        or_(_E.stop_reason.is_(None), _E.stop_reason.not_in([literal(word, _E.stop_reason.type) for word in _NEVER_TRIED])),
    )
    .order_by(_E.started_at.desc(), _E.id.desc())
    .limit(10)
)


def standing(work: UnitOfWork, skill: str, trigger_id: str, workflow_run_id: str | None) -> tuple[bool, bool]:
    """(an execution is unfinished, one has succeeded)."""
    scope, values = _scoped(work, skill, trigger_id, workflow_run_id)
    row = work.row(_STANDING[scope], **values)
    assert row is not None
    return bool(row[0]), bool(row[1])


def locked_phase(work: UnitOfWork, run_id: str, name: str) -> tuple[WorkflowRun, Row, str | None]:
    """Lock a run, in one round trip with what `standing` and `output` tell of its phase. Raises NotFound."""
    values = {"scope_id": work.label("run_id", run_id), "suffix": f":{name}"}
    with work.batch() as batch:
        locked = batch.row(run_rows.LOCK_RUN, row_id=run_id)
        stands, left = batch.row(_STANDING_OF_PHASE, **values), batch.row(_OUTPUT_OF_PHASE, **values)
    run = run_rows.found_run(locked.result, run_id)
    assert stands.result is not None
    return run, stands.result, None if left.result is None else left.result[0]


def output(work: UnitOfWork, skill: str, trigger_id: str, workflow_run_id: str | None) -> str | None:
    """The text of the newest finished execution that has one."""
    scope, values = _scoped(work, skill, trigger_id, workflow_run_id)
    row = work.row(_OUTPUT[scope], **values)
    return None if row is None else row[0]


def veto(work: UnitOfWork, skill: str, trigger_id: str, reason: str, workflow_run_id: str | None) -> bool:
    """Fail the newest execution after the fact; its `finished_at` stays."""
    scope, values = _scoped(work, skill, trigger_id, workflow_run_id)
    return bool(work.run_last(_VETO[scope], reason=work.body("reason", reason), **values))


def mark_stale(work: UnitOfWork, trigger_id: str, skill: str | None, reason: str) -> int:
    """Fail unfinished executions of the trigger; return how many."""
    values = {"scope_id": work.label("trigger_id", trigger_id), "reason": work.body("reason", reason), "at": work.now()}
    if skill is not None:
        values["of_skill"] = work.label("skill", skill)
    return work.run_last(_STALE if skill is None else _STALE_OF_SKILL, **values)


def trigger_type(work: UnitOfWork, trigger_id: str) -> str:
    """The type of the trigger's last execution; "api" if it had none."""
    row = work.row(_LAST_TYPE, scope_id=trigger_id)
    return "api" if row is None or is_unreadable(row[0]) else row[0]


def failures(work: UnitOfWork, skill: str) -> int:
    """How many of the last ten finished executions failed in a row, from the newest; phases not attempted are ignored."""
    streak = 0
    for (success,) in work.rows(_RESULTS, of_skill=work.label("skill", skill)):
        if success is not False:
            break
        streak += 1
    return streak


def issue_number(trigger_id: str) -> int | None:
    """The number of a trigger that ends in #N, where it fits 64 bits."""
    found = re.search(r"#([0-9]{1,18})\Z", trigger_id)
    return None if found is None else int(found[1])


def _scoped(work: UnitOfWork, skill: str, trigger_id: str, workflow_run_id: str | None) -> tuple[Scope, dict[str, Any]]:
    name, trigger = work.label("skill", skill), work.label("trigger_id", trigger_id)
    if workflow_run_id is None:
        return "trigger", {"of_skill": name, "scope_id": trigger}
    return "run", {"of_skill": name, "scope_id": work.label("workflow_run_id", workflow_run_id)}


# The progress of a run: phase history, scratch, statuses of nodes. Each is read and written under the run's lock.

_this = update(runs).where(runs.c.id == param("row_id"))
_SET_PHASE = Statement(_this.values(current_phase=param("phase"), phase_history=param("history"), updated_at=param("at")))
_APPEND = {
    leased: Statement(
        _this.where(writable, HAS_INSTANTS, has_room(runs.c.phase_history, bindparam("room", type_=BigInteger())))
        .values(
            current_phase=param("phase"),
            phase_history=appended_items(runs.c.phase_history, bindparam("added", type_=runs.c.phase_history.type)),
            updated_at=param("at"),
        )
        .returning(*run_rows.RUN.columns)
    )
    for leased, writable in WRITABLE.items()
}
_HOLD = Statement(select(executions.c.id).where(executions.c.id == param("row_id")).with_for_update())
_SET_SCRATCH = Statement(_this.values(scratch=param("value"), updated_at=param("at")))
_SET_NODES = Statement(_this.values(node_statuses=param("value"), updated_at=param("at")))


def append_phase(
    work: UnitOfWork, id: str, phase: str, entry: Json, lease: Lease | None, execution_id: str | None = None
) -> WorkflowRun:
    """Append the phase to the history and make it the current one. NotFound: its execution, where it has one, is gone."""
    item = run_rows.history_item(work, phase, entry, work.now())
    # where no statement waits for a network, to check and append in one saves nothing
    row = None if work.runtime.dialect.one_writer else _append_at_once(work, id, item, lease, execution_id)
    if row is not None:
        return run_rows.RUN(row)
    run = run_rows.held_run(work, id, lease)
    if execution_id is not None:
        _check_found(work.row(_HOLD, row_id=execution_id), execution_id)
    history = run_rows.history_with(work, run.phase_history, item)
    return run_rows.changed_run(work, _SET_PHASE, id, phase=item["phase"], history=history, at=work.now())


def _append_at_once(work: UnitOfWork, id: str, item: dict[str, Any], lease: Lease | None, execution_id: str | None) -> Row | None:
    """Check and append in one statement. None, and nothing is written, if that may not be done, or not in this way."""
    held = guard_values(work, id, lease)
    if held is None:
        return None
    limits = work.runtime.limits
    try:
        added = encode([item], "entry", limits)
    except (InvalidValue, PayloadTooLarge):
        return None
    room = min(work.runtime.settings.max_history_bytes, limits.max_bytes) - utf8_size(added)
    values = {"row_id": work.label("id", id), "phase": item["phase"], "added": added, "room": room, "at": work.now()}
    with work.batch() as batch:
        appended = batch.returned(_APPEND[lease is not None], **values, **held)
        there = None if execution_id is None else batch.row(_HOLD, row_id=execution_id)
    if execution_id is not None and there is not None:
        _check_found(there.result, execution_id)
    return appended.result


def merge_scratch(work: UnitOfWork, id: str, patch: Mapping[str, Json], lease: Lease | None) -> WorkflowRun:
    """Set the patch's keys in scratch; other keys stay."""
    given = run_rows.small_values(work, "scratch", patch)
    run = run_rows.held_run(work, id, lease)
    value = work.json("scratch", {**(run.scratch or {}), **given})
    return run_rows.changed_run(work, _SET_SCRATCH, id, value=value, at=work.now())


def set_node_status(work: UnitOfWork, id: str, node: str, status: Json, lease: Lease | None) -> WorkflowRun:
    """Set the status of one node; other nodes keep theirs."""
    name = run_rows.small_label(work, "node", node)
    run_rows.small(work, f"node_statuses.{name}", status)
    run = run_rows.held_run(work, id, lease)
    value = work.json("node_statuses", {**(run.node_statuses or {}), name: status})
    return run_rows.changed_run(work, _SET_NODES, id, value=value, at=work.now())


class Phases(Repository[F]):
    """`tx.workflows.phases`. A phase of a run is an execution with the skill `workflow:phase`; it succeeds once in a run."""

    @writes
    def begin(self, run_id: str, name: str, *, trigger_type: str = "worker", lease: Lease | None = None) -> Phase:
        """Begin a phase, unless it is done: then what it left.

        Raises Conflict while an execution of it runs, NotFound for an unknown run, and LeaseLost as every write to a run does.
        """
        work = self._work
        phase, kind = run_rows.small_label(work, "name", name), work.label("trigger_type", trigger_type)
        run, (running, done), output = locked_phase(work, run_id, phase)
        run_rows.check_hold(run, lease, work.now())
        if running:
            raise Conflict(f"The phase {phase!r} of the run {run.id!r} is running already.", constraint="executions")
        if done:
            return Phase(run_id=run.id, name=phase, execution_id=None, output=output)
        fields = {
            "trigger_type": kind,
            "trigger_id": run.trigger_id,
            "skill": work.label("name", f"{run.workflow_name}:{phase}"),
            "repo": run.repo,
            "issue_number": run.issue_number,
            "workflow_run_id": run.id,
            "started_at": work.now(),
        }
        execution = execution_rows.insert_execution(work, work.runtime.ids.mint("exe"), fields)
        return Phase(run_id=run.id, name=phase, execution_id=execution.id, output=None)

    @writes
    def finish(
        self,
        phase: Phase,
        *,
        output: str | None = None,
        entry: Mapping[str, Json] | None = None,
        lease: Lease | None = None,
        **totals: Unpack[execution_rows.ExecutionTotals],
    ) -> WorkflowRun:
        """Store that the phase is done: its text, what it used, and an entry in the run's history. It becomes the current phase.

        `totals`: see ExecutionTotals. Raises NotFound if its execution or run is gone, InvalidValue if the phase was done before.
        """
        work = self._work
        execution_id = _begun(phase)
        text = None if output is None else work.body("output", output)
        values = execution_rows.end_values(work, success=True, error=None, totals=totals)
        item: Json = {**plain_object(entry, "entry"), "execution": execution_id}
        run = append_phase(work, phase.run_id, phase.name, item, lease, execution_id)
        execution_rows.count_usage(work, execution_id, values, totals)
        _end(work, execution_id, values, text)
        return run

    @writes
    def fail(
        self,
        phase: Phase,
        error: str,
        *,
        output: str | None = None,
        lease: Lease | None = None,
        **totals: Unpack[execution_rows.ExecutionTotals],
    ) -> None:
        """Store that the phase failed, what text it had made and what it used: it is due when it is begun again.

        `totals`: see ExecutionTotals. Raises as `finish` does.
        """
        work = self._work
        execution_id = _begun(phase)
        text = None if output is None else work.body("output", output)
        values = execution_rows.end_values(work, success=False, error=work.body("error", error), totals=totals)
        _check_found(execution_rows.hold_run_of(work, phase.run_id, lease), execution_id)
        execution_rows.count_usage(work, execution_id, values, totals)
        _end(work, execution_id, values, text)


def _end(work: UnitOfWork, execution_id: str, values: dict[str, Any], text: str | None) -> None:
    with work.batch(last=True) as batch:
        ended = batch.run(execution_rows.FINISH, row_id=execution_id, **values)
        if text is not None:
            batch.run(execution_rows.SET_OUTPUT, row_id=execution_id, value=text)
    _check_found(ended.result, execution_id)


def _begun(phase: object) -> str:
    if not isinstance(phase, Phase):
        raise InvalidValue("phase", f"expected a Phase, which `phases.begin` returns, got {type(phase).__name__}.")
    if phase.execution_id is None:
        raise InvalidValue("phase", f"the phase {phase.name!r} was done before it was begun; there is nothing to end.")
    return phase.execution_id


def _check_found(found: int | Row | None, execution_id: str) -> None:
    if not found:
        raise NotFound("execution", execution_id)
