"""Lists of executions; no list reads `output_text`."""

from sqlalchemy import bindparam, func, or_, select
from sqlalchemy.sql.elements import ColumnElement

from persist.db.operations.keyset import Keyset
from persist.db.schema.column_types import FreeText
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.pages import Page, PagedList, check_limit
from persist.errors import InvalidValue
from persist.workflows.models import IS_UNFINISHED, executions
from persist.workflows.schemas import Execution
from persist.workflows.storage.execution_rows import EXECUTION
from persist.workflows.storage.run_rows import get_run

_E = executions.c
_LONGEST_SEARCH = 1000
_FILTERS: dict[str, ColumnElement[bool]] = {
    "skill": _E.skill == param("skill"),
    "trigger_id": _E.trigger_id == param("trigger_id"),
    # Not LIKE: on SQLite it stops at the first NUL of a text. lower() of both databases maps only ASCII letters here.
    "error_contains": func.replace(func.lower(_E.error), bindparam("error_contains", type_=FreeText()), "")
    != func.lower(_E.error),
}
_NEWEST = Keyset("workflows.executions", EXECUTION, (_E.started_at, _E.id), _FILTERS)
_RUNNING = Statement(select(*EXECUTION.columns).where(IS_UNFINISHED))  # with ORDER BY, older SQLites would scan every execution
_started = func.coalesce(_E.started_at, _E.started_at)
"""No index has its order, so that unfinished executions, which are few, are found by the index that holds no others."""
_RUNNING_PAGES = Keyset(
    "workflows.executions.running",
    EXECUTION,
    (_started, _E.id),
    where=[IS_UNFINISHED],
    places=("started_at", "id"),
    exact=True,
)
_OF_RUN = Statement(
    select(*EXECUTION.columns)
    .where(
        or_(
            _E.workflow_run_id == param("run_id"),
            _E.workflow_run_id.is_(None)
            & (_E.trigger_id == param("of_trigger"))
            & (_E.skill >= param("from_skill"))
            & (_E.skill < param("to_skill")),
        )
    )
    .order_by(_E.started_at, _E.id)
)


def page(
    work: UnitOfWork, *, skill: str | None, trigger_id: str | None, error_contains: str | None, limit: int, after: str | None
) -> Page[Execution]:
    """One page of executions, newest started first."""
    filters: dict[str, str] = {}
    if skill is not None:
        filters["skill"] = work.label("skill", skill)
    if trigger_id is not None:
        filters["trigger_id"] = work.label("trigger_id", trigger_id)
    if error_contains is not None:
        sought = work.label("error_contains", error_contains)
        if len(sought) > _LONGEST_SEARCH:
            raise InvalidValue("error_contains", f"it is longer than {_LONGEST_SEARCH} characters.")
        filters["error_contains"] = sought.encode().lower().decode()  # ASCII letters alone
    return _NEWEST.page(work, limit, after, filters)


def running(work: UnitOfWork, limit: int | None, after: str | None) -> PagedList[Execution]:
    """Unfinished executions, newest first."""
    if limit is None and after is None:
        return PagedList(
            sorted(map(EXECUTION, work.rows(_RUNNING)), key=lambda execution: (execution.started_at, execution.id), reverse=True)
        )
    return _RUNNING_PAGES.pages(work, limit, after)


def recent(work: UnitOfWork, skill: str, limit: int) -> list[Execution]:
    """The newest executions of a skill."""
    return _NEWEST.first(work, check_limit(limit), {"skill": work.label("skill", skill)})


def for_run(work: UnitOfWork, workflow_run_id: str) -> list[Execution]:
    """Executions of the run, and executions in older files that name no run but share its trigger and workflow."""
    run = get_run(work, workflow_run_id)
    # every skill `workflow:…`, compared as bytes: LIKE has wildcards, and on SQLite ignores case
    first, beyond = f"{run.workflow_name}:", f"{run.workflow_name};"
    rows = work.rows(_OF_RUN, run_id=run.id, of_trigger=run.trigger_id, from_skill=first, to_skill=beyond)
    return [EXECUTION(row) for row in rows]
