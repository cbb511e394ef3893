"""One run's row: reading and locking it."""

from datetime import datetime

from sqlalchemy import select

from persist.db.hot import Hot, Row, param
from persist.db.values import build
from persist.db.work import Work
from persist.errors import NotFound
from persist.programs.models import runs
from persist.programs.schemas import ProgramRun

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


def this_second(work: Work) -> datetime:
    """The store's clock, cut to what these tables keep."""
    return work.now().replace(microsecond=0)
