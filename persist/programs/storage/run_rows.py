"""Reading and locking the row of a run, and the owners of agents that are no run."""

from datetime import datetime

from sqlalchemy import exists, select

from persist.db.changes.batch import Batch, Pending
from persist.db.statements.prepared import Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import NotFound
from persist.programs.models import runs
from persist.programs.schemas import AgentScope, ProgramRun

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
