"""Cancelling a run with everything below it, in one transaction."""

import logging

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.errors import InvalidValue
from persist.quoting import shown
from persist.workflows.schemas import UNFINISHED, FailureKind, RunStatus, WorkflowRun
from persist.workflows.storage.families import tell_parents
from persist.workflows.storage.family_tree import deepest_first, first_look
from persist.workflows.storage.payloads import with_error
from persist.workflows.storage.run_rows import LOCK_RUN, RUN
from persist.workflows.verbs.finishing import announce, finish_values, write_finish

log = logging.getLogger("persist")


def cancel_family(work: UnitOfWork, id: str, reason: str | None) -> bool:
    """Cancel the run and its descendants, those that have not ended; whether there was one."""
    with_error(work, None, reason, path="reason")
    root = work.label("id", id)
    found = _locked(work, root)
    inside = {None, root, *(run.id for run in found)}
    ending = [
        finish_values(
            work, run, RunStatus.CANCELLED, FailureKind.CANCELLED, context=with_error(work, run.context, reason, path="reason")
        )
        for run in found
        if not is_unreadable(run.status) and run.status in UNFINISHED
    ]
    with work.batch(last=all(run.parent_run_id in inside for run in found)) as batch:
        ended = [write_finish(work, batch, values) for values in ending]
    # parents inside of the family have ended with it
    tell_parents(work, [run for run in announce(work, *ended) if run.parent_run_id not in inside])
    return bool(ended)


def _locked(work: UnitOfWork, root: str) -> list[WorkflowRun]:
    """The run and its descendants, locked in the order in which their own ends lock them: children before parents.

    Who creates a child looks at the parent under a lock, and refuses once the parent has ended. So whatever was created until
    the last parent was locked is found by the next look, and nothing is created after a look that finds nothing new.
    """
    locked: dict[str, WorkflowRun] = {}
    tried: set[str] = set()
    looks, found = first_look(work, root)
    while new := [id for id in deepest_first(found, root) if id not in tried]:
        tried.update(new)
        with work.batch() as batch:
            rows = [batch.row(LOCK_RUN, row_id=id) for id in new if _is_label(work, id)]
            again = batch.rows(looks, root=root)
        found = [(id, parent) for id, parent in again.result]
        for row in rows:
            if row.result is not None:
                run = RUN(row.result)
                locked[run.id] = run
    return list(locked.values())


def _is_label(work: UnitOfWork, id: str) -> bool:
    try:
        work.label("id", id)
    except InvalidValue as error:
        log.warning("%s is left as it is: %s", f"the workflow run {shown(id)}", error)
        return False
    return True
