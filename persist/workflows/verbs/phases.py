"""Whether a phase still has to run, and what its earlier executions left behind.

Scope: with a run id that run alone, so that a fresh run repeats what an older one finished; without, the trigger.
"""

import re
from typing import Any, Literal

from sqlalchemy import Select, and_, literal, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from persist.db.schema.base import flag_set
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.errors import NotFound
from persist.workflows.models import IS_UNFINISHED, executions, runs
from persist.workflows.schemas import StopReason, WorkflowRun
from persist.workflows.storage.run_rows import LOCK_RUN, RUN

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
_STANDING_OF_PHASE, _OUTPUT_OF_PHASE = _standing(_of_phase), _output(_of_phase)
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


def locked_phase(work: UnitOfWork, run_id: str, name: str) -> tuple[WorkflowRun, tuple[bool, bool], str | None]:
    """Lock a run, in one round trip with what `standing` and `output` tell of its phase. Raises NotFound."""
    values = {"scope_id": work.label("run_id", run_id), "suffix": f":{name}"}
    with work.batch() as batch:
        locked = batch.row(LOCK_RUN, row_id=run_id)
        stands, left = batch.row(_STANDING_OF_PHASE, **values), batch.row(_OUTPUT_OF_PHASE, **values)
    if locked.result is None:
        raise NotFound("workflow run", run_id)
    assert stands.result is not None
    running, done = map(bool, stands.result)
    return RUN(locked.result), (running, done), None if left.result is None else left.result[0]


def output(work: UnitOfWork, skill: str, trigger_id: str, workflow_run_id: str | None) -> str | None:
    """The text of the newest finished execution that has one."""
    scope, values = _scoped(work, skill, trigger_id, workflow_run_id)
    row = work.row(_OUTPUT[scope], **values)
    return None if row is None else row[0]


def veto(work: UnitOfWork, skill: str, trigger_id: str, reason: str, workflow_run_id: str | None) -> bool:
    """Fail the newest execution after the fact; its `finished_at` stays."""
    scope, values = _scoped(work, skill, trigger_id, workflow_run_id)
    with work.batch(last=True) as batch:
        written = batch.run(_VETO[scope], reason=work.body("reason", reason), **values)
    return bool(written.result)


def mark_stale(work: UnitOfWork, trigger_id: str, skill: str | None, reason: str) -> int:
    """Fail unfinished executions of the trigger; return how many."""
    values = {"scope_id": work.label("trigger_id", trigger_id), "reason": work.body("reason", reason), "at": work.now()}
    if skill is not None:
        values["of_skill"] = work.label("skill", skill)
    with work.batch(last=True) as batch:
        written = batch.run(_STALE if skill is None else _STALE_OF_SKILL, **values)
    return written.result


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
