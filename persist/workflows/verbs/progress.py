"""The progress of a run: phase history, scratch, statuses of nodes. Each is read and written under the run's lock."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, bindparam, update

from persist.db.expressions.array_append import appended_items, has_room
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.escaping import utf8_size
from persist.db.values.json import Json, encode
from persist.errors import InvalidValue, PayloadTooLarge
from persist.workflows.models import runs
from persist.workflows.schemas import Lease, WorkflowRun
from persist.workflows.storage.hold_guard import HAS_INSTANTS, WRITABLE, guard_values
from persist.workflows.storage.payloads import history_item, history_with, small, small_label, small_values
from persist.workflows.storage.run_rows import GET_RUN, RUN, held_run, written_run

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
        .returning(*RUN.columns)
    )
    for leased, writable in WRITABLE.items()
}
_SET_SCRATCH = Statement(_this.values(scratch=param("value"), updated_at=param("at")))
_SET_NODES = Statement(_this.values(node_statuses=param("value"), updated_at=param("at")))


def append_phase(work: UnitOfWork, id: str, phase: str, entry: Json, lease: Lease | None) -> WorkflowRun:
    """Append the phase to the history and make it the current one."""
    item = history_item(work, phase, entry, work.now())
    row = _append_at_once(work, id, item, lease)
    if row is not None:
        return RUN(row)
    run = held_run(work, id, lease)
    history = history_with(work, run.phase_history, item)
    return _set(work, _SET_PHASE, id, phase=item["phase"], history=history)


def _append_at_once(work: UnitOfWork, id: str, item: dict[str, Any], lease: Lease | None) -> Row | None:
    """Check and append in one statement. None, and nothing is written, if that may not be done, or not in this way."""
    held = guard_values(work, id, lease)
    limits = work.runtime.limits
    try:
        added = encode([item], "entry", limits)
    except (InvalidValue, PayloadTooLarge):
        return None
    if held is None or work.runtime.dialect.one_writer:  # where no statement waits for a network, nothing would be saved
        return None
    room = min(work.runtime.settings.max_history_bytes, limits.max_bytes) - utf8_size(added)
    values = {"row_id": work.label("id", id), "phase": item["phase"], "added": added, "room": room, "at": work.now()}
    return work.returned(_APPEND[lease is not None], **values, **held)


def _set(work: UnitOfWork, statement: Statement, id: str, **values: Any) -> WorkflowRun:
    with work.batch(last=True) as batch:
        batch.run(statement, row_id=id, at=work.now(), **values)
        row = batch.row(GET_RUN, row_id=id)
    return written_run(row)


def merge_scratch(work: UnitOfWork, id: str, patch: Mapping[str, Json], lease: Lease | None) -> WorkflowRun:
    """Set the patch's keys in scratch; other keys stay."""
    given = small_values(work, "scratch", patch)
    run = held_run(work, id, lease)
    return _set(work, _SET_SCRATCH, id, value=work.json("scratch", {**(run.scratch or {}), **given}))


def set_node_status(work: UnitOfWork, id: str, node: str, status: Json, lease: Lease | None) -> WorkflowRun:
    """Set the status of one node; other nodes keep theirs."""
    name = small_label(work, "node", node)
    small(work, f"node_statuses.{name}", status)
    run = held_run(work, id, lease)
    value = work.json("node_statuses", {**(run.node_statuses or {}), name: status})
    return _set(work, _SET_NODES, id, value=value)
