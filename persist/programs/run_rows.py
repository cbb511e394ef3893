"""One run's row: reading and locking it, and who may have agents without one."""

from datetime import datetime

from sqlalchemy import select

from persist.db.hot import Hot, Row, param
from persist.db.values import build
from persist.db.work import Work
from persist.errors import NotFound
from persist.programs.models import runs
from persist.programs.schemas import AgentScope, ProgramRun

_R = runs.c
FIELDS = tuple(ProgramRun.model_fields)
COLUMNS = tuple(_R[name] for name in FIELDS)
_GET = Hot(select(*COLUMNS).where(_R.id == param("row_id")))
_LOCK = Hot(select(*COLUMNS).where(_R.id == param("row_id")).with_for_update())
_EXISTS = Hot(select(_R.id).where(_R.id == param("row_id")))


def run_value(row: Row) -> ProgramRun:
    """A row of the columns above."""
    return build(ProgramRun, dict(zip(FIELDS, row, strict=True)))


def get_run(work: Work, id: str, *, lock: bool = False) -> ProgramRun:
    """The run, locked against other writers on request; NotFound."""
    row = work.row(_LOCK if lock else _GET, row_id=work.label("id", id))
    if row is None:
        raise NotFound("program run", id)
    return run_value(row)


def check_run_exists(work: Work, id: str) -> None:
    """NotFound."""
    if work.row(_EXISTS, row_id=work.label("run_id", id)) is None:
        raise NotFound("program run", id)


def outlives_runs(id: object, own: str | None) -> bool:
    """Whether it names the agents of a project or of a user: in a file of theirs, or in a database of many (`own` None)."""
    return id in (AgentScope.PROJECT, AgentScope.USER) and own in (None, id)


def check_agents_owner(work: Work, id: str) -> None:
    """NotFound unless it is a run, or a project's or a user's agents."""
    if not outlives_runs(work.label("run_id", id), work.runtime.scopes.get("run_id")):
        check_run_exists(work, id)


def this_second(work: Work) -> datetime:
    """The store's clock, cut to what these tables keep."""
    return work.now().replace(microsecond=0)
