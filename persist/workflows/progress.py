"""What a run keeps of its way: phases, scratch, the status of nodes. Each is read and written under the run's lock."""

from collections.abc import Mapping

from sqlalchemy import update

from persist.db.hot import Hot, param
from persist.db.json import Json
from persist.db.work import Work
from persist.workflows.models import runs
from persist.workflows.payloads import history_item, history_with, small, small_label, small_values
from persist.workflows.run_rows import get_run, held_run
from persist.workflows.schemas import Lease, WorkflowRun

_this = update(runs).where(runs.c.id == param("row_id"))
_SET_PHASE = Hot(_this.values(current_phase=param("phase"), phase_history=param("history"), updated_at=param("at")))
_SET_SCRATCH = Hot(_this.values(scratch=param("value"), updated_at=param("at")))
_SET_NODES = Hot(_this.values(node_statuses=param("value"), updated_at=param("at")))


def append_phase(work: Work, id: str, phase: str, entry: Json, lease: Lease | None) -> WorkflowRun:
    """The phase joins the history and becomes the current one."""
    item = history_item(work, phase, entry, work.now())
    run = held_run(work, id, lease)
    history = history_with(work, run.phase_history, item)
    work.run(_SET_PHASE, row_id=id, phase=item["phase"], history=history, at=work.now())
    return get_run(work, id)


def merge_scratch(work: Work, id: str, patch: Mapping[str, Json], lease: Lease | None) -> WorkflowRun:
    """The patch's keys, beside those that it does not name."""
    given = small_values(work, "scratch", patch)
    run = held_run(work, id, lease)
    work.run(_SET_SCRATCH, row_id=id, value=work.json("scratch", {**(run.scratch or {}), **given}), at=work.now())
    return get_run(work, id)


def set_node_status(work: Work, id: str, node: str, status: Json, lease: Lease | None) -> WorkflowRun:
    """The status of one node, beside those of the others."""
    name = small_label(work, "node", node)
    small(work, f"node_statuses.{name}", status)
    run = held_run(work, id, lease)
    value = work.json("node_statuses", {**(run.node_statuses or {}), name: status})
    work.run(_SET_NODES, row_id=id, value=value, at=work.now())
    return get_run(work, id)
