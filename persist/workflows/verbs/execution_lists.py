"""Lists of executions; no list reads `output_text`."""

from functools import cache

from sqlalchemy import bindparam, func, or_, select, tuple_
from sqlalchemy.sql.elements import ColumnElement

from persist.db.operations.optional_pages import OptionalPages
from persist.db.schema.column_types import FreeText, IsoMs, Label
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.clock import epoch_ms
from persist.db.values.pages import Page, PagedList, check_limit, values_after
from persist.errors import InvalidValue
from persist.workflows.models import IS_UNFINISHED, executions
from persist.workflows.schemas import Execution
from persist.workflows.storage.execution_rows import COLUMNS, execution_value, values_of
from persist.workflows.storage.run_rows import get_run

_LIST = "workflows.executions"
_E = executions.c
_LONGEST_SEARCH = 1000
_newest = (_E.started_at.desc(), _E.id.desc())
_FILTERS: dict[str, ColumnElement[bool]] = {
    "skill": _E.skill == param("skill"),
    "trigger_id": _E.trigger_id == param("trigger_id"),
    # Not LIKE: on SQLite it stops at the first NUL of a text. lower() of both databases maps only ASCII letters here.
    "error_contains": func.replace(func.lower(_E.error), bindparam("error_contains", type_=FreeText()), "")
    != func.lower(_E.error),
}
_RUNNING = Statement(select(*COLUMNS).where(IS_UNFINISHED))  # with ORDER BY, older SQLites would scan every execution
_started = func.coalesce(_E.started_at, _E.started_at)
"""No index has its order, so that unfinished executions, which are few, are found by the index that holds no others."""
_RUNNING_PAGES = OptionalPages[Execution](
    "workflows.executions.running",
    select(*COLUMNS).where(IS_UNFINISHED),
    (_started, _E.id),
    lambda one: (one.started_at, one.id),
    descending=True,
)
_OF_RUN = Statement(
    select(*COLUMNS)
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


@cache
def _page(names: tuple[str, ...], *, after: bool) -> Statement:
    query = select(*COLUMNS).where(*[_FILTERS[name] for name in names]).order_by(*_newest).limit(LIMIT)
    if after:
        last = tuple_(bindparam("after_at", type_=IsoMs()), bindparam("after_id", type_=Label()))
        query = query.where(tuple_(_E.started_at, _E.id) < last)
    return Statement(query)


def page(
    work: UnitOfWork, *, skill: str | None, trigger_id: str | None, error_contains: str | None, limit: int, after: str | None
) -> Page[Execution]:
    """One page of executions, newest started first."""
    limit = check_limit(limit)
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
    values: dict[str, object] = dict(filters)
    values |= values_after(after, _LIST, filters)
    rows = work.rows(_page(tuple(filters), after=after is not None), limit=limit + 1, **values)
    return Page.of(
        rows, limit, execution_value, name=_LIST, filters=filters, key=lambda _, item: [epoch_ms(item.started_at), item.id]
    )


def running(work: UnitOfWork, limit: int | None, after: str | None) -> PagedList[Execution]:
    """Unfinished executions, newest first."""
    if limit is None and after is None:
        found = values_of(work.rows(_RUNNING))
        return PagedList(sorted(found, key=lambda execution: (execution.started_at, execution.id), reverse=True))
    return _RUNNING_PAGES.read(work, execution_value, limit, after)


def recent(work: UnitOfWork, skill: str, limit: int) -> list[Execution]:
    """The newest executions of a skill."""
    values = {"skill": work.label("skill", skill), "limit": check_limit(limit)}
    return [execution_value(row) for row in work.rows(_page(("skill",), after=False), **values)]


def for_run(work: UnitOfWork, workflow_run_id: str) -> list[Execution]:
    """Executions of the run, and executions in older files that name no run but share its trigger and workflow."""
    run = get_run(work, workflow_run_id)
    # every skill `workflow:…`, compared as bytes: LIKE has wildcards, and on SQLite ignores case
    first, beyond = f"{run.workflow_name}:", f"{run.workflow_name};"
    return values_of(work.rows(_OF_RUN, run_id=run.id, of_trigger=run.trigger_id, from_skill=first, to_skill=beyond))
