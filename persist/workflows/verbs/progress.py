"""The progress of a run: phase history, scratch, statuses of nodes. Each is read and written under the run's lock."""

from collections.abc import Mapping

from sqlalchemy import update

from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.json import Json
from persist.workflows.models import runs
from persist.workflows.schemas import Lease, WorkflowRun
from persist.workflows.storage.payloads import history_item, history_with, small, small_label, small_values
from persist.workflows.storage.run_rows import get_run, held_run

_this = update(runs).where(runs.c.id == param("row_id"))
_SET_PHASE = Statement(_this.values(current_phase=param("phase"), phase_history=param("history"), updated_at=param("at")))
_SET_SCRATCH = Statement(_this.values(scratch=param("value"), updated_at=param("at")))
_SET_NODES = Statement(_this.values(node_statuses=param("value"), updated_at=param("at")))


def append_phase(work: UnitOfWork, id: str, phase: str, entry: Json, lease: Lease | None) -> WorkflowRun:
    """Append the phase to the history and make it the current one."""
    item = history_item(work, phase, entry, work.now())
    run = held_run(work, id, lease)
    history = history_with(work, run.phase_history, item)
    work.run(_SET_PHASE, row_id=id, phase=item["phase"], history=history, at=work.now())
    return get_run(work, id)


def merge_scratch(work: UnitOfWork, id: str, patch: Mapping[str, Json], lease: Lease | None) -> WorkflowRun:
    """Set the patch's keys in scratch; other keys stay."""
    given = small_values(work, "scratch", patch)
    run = held_run(work, id, lease)
    work.run(_SET_SCRATCH, row_id=id, value=work.json("scratch", {**(run.scratch or {}), **given}), at=work.now())
    return get_run(work, id)


def set_node_status(work: UnitOfWork, id: str, node: str, status: Json, lease: Lease | None) -> WorkflowRun:
    """Set the status of one node; other nodes keep theirs."""
    name = small_label(work, "node", node)
    small(work, f"node_statuses.{name}", status)
    run = held_run(work, id, lease)
    value = work.json("node_statuses", {**(run.node_statuses or {}), name: status})
    work.run(_SET_NODES, row_id=id, value=value, at=work.now())
    return get_run(work, id)
