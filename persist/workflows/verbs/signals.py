"""Signals: what other processes tell a run, kept until the run takes it, and waited for without a process."""

import logging
from datetime import timedelta
from typing import Any

from sqlalchemy import func, literal_column, select, update

from persist.db.expressions.upsert import insert_missing, upsert
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, NothingToDo, Repository, reads, writes, writes_if_needed
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable, is_unreadable
from persist.db.values.arguments import check_timedelta, optional_label
from persist.db.values.clock import instant_after
from persist.db.values.json import Json
from persist.errors import Conflict, shown
from persist.workflows.models import HAS_KEY, IS_EXPIRING, IS_UNTAKEN, signals, waits
from persist.workflows.schemas import TERMINAL, Lease, RunStatus, Signal, WorkflowRun, check_transition
from persist.workflows.storage import run_rows
from persist.workflows.verbs import limits

log = logging.getLogger("persist")
List = list
_S, _W = signals.c, waits.c
_SIGNAL = Values(Signal, signals)
_of_run = _S.run_id == param("run_id")
_INSERT = Statement(insert_missing(signals, "run_id", "seq").returning(*_SIGNAL.columns))
_LAST = Statement(select(func.coalesce(func.max(_S.seq), literal_column("0"))).where(_of_run))
_BY_KEY = Statement(select(*_SIGNAL.columns).where(_of_run, HAS_KEY, _S.idempotency_key == param("key")))
_OLDEST = Statement(
    select(*_SIGNAL.columns).where(_of_run, _S.name == param("name"), IS_UNTAKEN).order_by(_S.seq).limit(literal_column("1"))
)
_OF_RUN = Statement(select(*_SIGNAL.columns).where(_of_run).order_by(_S.seq))
_TAKE = Statement(
    update(signals)
    .where(_S.run_id == param("of_run"), _S.seq == param("of_seq"))
    .values(taken_at=param("at"))
    .returning(*_SIGNAL.columns)
)
_WAITS_FOR = Statement(select(_W.name, _W.expires_at).where(_W.run_id == param("run_id")))
_WAIT = Statement(upsert(waits, "run_id"))
_DUE = Statement(
    select(_W.run_id)
    .where(IS_EXPIRING, _W.expires_at <= param("at"))
    .order_by(_W.expires_at, _W.run_id)
    .limit(literal_column("100")),
    unreadable=OnUnreadable.LEAVE_OUT,  # the others go on
)


class Signals(Repository[F]):
    """`tx.workflows.signals`. Nothing is lost if it comes before the run waits for it, and nothing is taken twice."""

    @writes
    def send(self, run_id: str, name: str, payload: Json = None, *, idempotency_key: str | None = None) -> Signal:
        """Tell a run something. A run that waits for a signal of this name goes on, unless a gate of it is pending.

        Of calls with one `idempotency_key` the first sends, the others return it. Raises NotFound, or Conflict for an ended run.
        """
        work = self._work
        told = {"name": work.label("name", name), "payload": None if payload is None else work.json("payload", payload)}
        key = optional_label("idempotency_key", idempotency_key)
        id = work.label("run_id", run_id)
        with work.batch() as batch:
            locked = batch.row(run_rows.LOCK_RUN, row_id=id)
            known = None if key is None else batch.row(_BY_KEY, run_id=id, key=key)
            last, waiting = batch.row(_LAST, run_id=id), batch.row(_WAITS_FOR, run_id=id)
        run = run_rows.found_run(locked.result, id)
        if known is not None and known.result is not None:
            return _SIGNAL(known.result)
        if run.status in TERMINAL:
            raise Conflict(f"The workflow run {run.id!r} has ended ({run.status}): nobody would take the signal.")
        awaited = waiting.result is not None and waiting.result[0] == told["name"]
        assert last.result is not None
        return _deliver(work, run, {**told, "seq": last.result[0] + 1, "idempotency_key": key}, wake=awaited)

    @writes
    def take(self, run_id: str, name: str, *, lease: Lease | None = None) -> Signal | None:
        """Take the oldest untaken signal of this name; None if there is none.

        Take it in the transaction that stores its consequences: otherwise a process that dies in between loses the signal.
        `lease`: refuse with LeaseLost if the run is another worker's by now. Raises NotFound.
        """
        work = self._work
        id, label = work.label("run_id", run_id), work.label("name", name)
        with work.batch() as batch:
            locked = batch.row(run_rows.LOCK_RUN, row_id=id)
            oldest = batch.row(_OLDEST, run_id=id, name=label)
        run = run_rows.found_run(locked.result, id)
        if lease is not None:
            run_rows.check_hold(run, lease, work.now())
        if oldest.result is None:
            return None
        taken = work.returned_last(_TAKE, of_run=id, of_seq=_SIGNAL(oldest.result).seq, at=work.now())
        assert taken is not None
        return _SIGNAL(taken)

    @writes
    def wait(self, lease: Lease, name: str, timeout: timedelta | None = None) -> Signal | None:
        """The oldest untaken signal of this name; None if there is none yet, and the run is paused until one comes.

        For a handler, which returns when it gets None and is called again after the signal: the lease has ended then, so that a
        signal that comes before the handler has returned is no signal to it. The signal stays until it is taken. After `timeout`,
        counted from the first call, the run goes on with a signal that is `timed_out`. Raises LeaseLost, and TransitionError
        unless the run runs.
        """
        work = self._work
        span = None if timeout is None else check_timedelta("timeout", timeout)
        run_id, label, now = run_rows.given_lease(lease).run_id, work.label("name", name), work.now()
        until = None if span is None else instant_after("timeout", now, span)
        with work.batch() as batch:
            locked = batch.row(run_rows.LOCK_RUN, row_id=run_id)
            oldest = batch.row(_OLDEST, run_id=run_id, name=label)
            waiting = batch.row(_WAITS_FOR, run_id=run_id)
        run = run_rows.found_run(locked.result, run_id)
        run_rows.check_hold(run, lease, now)
        if oldest.result is not None:
            return _SIGNAL(oldest.result)
        check_transition(run.id, run.status, RunStatus.PAUSED)
        if waiting.result is not None and waiting.result[0] == label:
            until = waiting.result[1]  # it was resumed by hand
        with work.batch(last=True) as batch:
            batch.run(_WAIT, run_id=run.id, name=label, since=now, expires_at=until)
            batch.run(run_rows.LET_GO, row_id=run.id, to=RunStatus.PAUSED, at=now)
        limits.announce_freed(work, run)
        return None

    @reads
    def list(self, run_id: str) -> List[Signal]:
        """The signals of a run, taken or not, in the order in which they were sent. Raises NotFound without the run."""
        work = self._work
        rows = work.rows(_OF_RUN, run_id=work.label("run_id", run_id))
        if not rows:
            run_rows.get_run(work, run_id)
        return [_SIGNAL(row) for row in rows]

    def _nothing_late(self) -> NothingToDo | None:
        return NothingToDo([]) if self._work.row(_DUE, at=self._work.now()) is None else None

    @writes_if_needed(_nothing_late)
    def expire_due(self) -> List[Signal]:
        """Let up to 100 runs go on whose signals are late; the signals that they get instead. A worker calls it."""
        work = self._work
        late = work.rows(_DUE, at=work.now())
        return [signal for (run_id,) in late if (signal := _time_out(work, run_id)) is not None]


def _time_out(work: UnitOfWork, run_id: str) -> Signal | None:
    with work.batch() as batch:
        locked = batch.row(run_rows.LOCK_RUN, row_id=run_id)
        last, waiting = batch.row(_LAST, run_id=run_id), batch.row(_WAITS_FOR, run_id=run_id)
    if locked.result is None or waiting.result is None:
        return None
    name, expires_at = waiting.result
    run = run_rows.RUN(locked.result)
    if any(map(is_unreadable, (name, expires_at, run.status, run.lease_owner, run.lease_expires_at, run.lease_token))):
        log.warning("the run %s waits on: its row, or that of its wait, cannot be read", shown(run_id))
        return None
    if expires_at is None or expires_at > work.now():
        return None
    if run.status != RunStatus.PAUSED:
        work.run(run_rows.END_WAIT, run_id=run.id)
        return None
    assert last.result is not None
    told = {"name": name, "payload": None, "seq": last.result[0] + 1, "timed_out": True}
    return _deliver(work, run, told, wake=True, last=False)


def _deliver(work: UnitOfWork, run: WorkflowRun, told: dict[str, Any], *, wake: bool, last: bool = True) -> Signal:
    """Store a signal of a locked run; `wake`: it goes on if it is paused; `last`: the verb writes nothing after it."""
    now = work.now()
    values = {**dict.fromkeys(_SIGNAL.fields), "timed_out": False, **told, "run_id": run.id, "sent_at": now}
    goes_on = wake and run.status == RunStatus.PAUSED
    resumed = run_rows.resumption(run, now) if goes_on else {}
    with work.batch(last=last) as batch:
        sent = batch.returned(_INSERT, **values)
        if wake:
            batch.run(run_rows.END_WAIT, run_id=run.id)
        if goes_on:
            run_rows.resume_ungated(batch, resumed)
    if goes_on:
        run_rows.announce_claimable(work, run)
    assert sent.result is not None
    return _SIGNAL(sent.result)
