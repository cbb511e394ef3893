"""Runs of agents, their events, and effects of tools. The first step of a run makes it, be it registered or not."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, delete, func, select, true, update

from persist.db.changes.batch import Batch
from persist.db.expressions.upsert import FirstUse, insert_where, merging, overwriting
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import Statement, among, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice, optional_label
from persist.db.values.clock import as_utc
from persist.db.values.pages import Page, PagedList
from persist.errors import Conflict, named
from persist.framework_state.histories import schemas
from persist.framework_state.histories.models import BELOW_RUN, effects, entries, run_events, runs
from persist.framework_state.histories.records import OF_RUN, AskedReleasing

List = list
_R = runs.c
_RUN = Values(schemas.HistoryRun, runs)
_this = _R.id == param("row_id")
_registered = _R.started_at.is_not(None)
_NEWEST = Keyset("histories.runs", _RUN, (_R.updated_at, _R.id))
_STARTED = Keyset(
    "histories.started",
    _RUN,
    (_R.started_at, _R.created_at, _R.id),
    {name: _R[name] == param(name) for name in ("parent_id", "conversation_id")},
    where=[_registered],
    descending=False,
    exact=True,
)
_GET = Statement(select(*_RUN.columns).where(_this, _registered))
_GET_ANY = Statement(select(*_RUN.columns).where(_this))
_STATE = Statement(select(_R.updated_at).where(_this))
_LOCK = Statement(select(_R.id).where(_this).with_for_update())
_MAKE = FirstUse(runs, "history run", updated_at="latest")
_GIVEN = ("conversation_id", "parent_id", "agent_name", "registration_id", "started_at", "metadata_json")
_REGISTER = Statement(
    update(runs)
    .where(_this, _R.started_at.is_(None))
    .values(**{name: bindparam(f"new_{name}", type_=_R[name].type) for name in _GIVEN})
)
_DELETE_BELOW = [Statement(delete(table).where(table.c.run_id == param("row_id"))) for table in BELOW_RUN]
_DELETE = Statement(delete(runs).where(_this))


class HistoryRuns(Repository[F]):
    """`tx.histories.runs`."""

    @writes
    def register(
        self,
        id: str,
        *,
        started_at: datetime,
        conversation_id: str | None = None,
        parent_id: str | None = None,
        agent_name: str | None = None,
        registration_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Register a run. To register the same again does nothing. Raises Conflict if another one is registered under the id."""
        work = self._work
        row_id = work.label("id", id, empty=True)
        plain = work.json_object("metadata", metadata)
        given = {
            "conversation_id": optional_label("conversation_id", conversation_id, empty=True),
            "parent_id": optional_label("parent_id", parent_id, empty=True),
            "agent_name": schemas.optional_text("agent_name", agent_name),
            "registration_id": optional_label("registration_id", registration_id, empty=True),
            "started_at": as_utc("started_at", started_at),
            "metadata_json": work.json("metadata", plain),
        }
        with work.batch(last=True) as batch:
            touch(work, batch, row_id)
            registered = batch.run(_REGISTER, row_id=row_id, **{f"new_{name}": value for name, value in given.items()})
            found = batch.row(_GET, row_id=row_id)
        if registered.result:
            return
        row = found.result
        same = row is not None and (*row[1:6], row[8]) == (*list(given.values())[:5], plain)
        if not same:
            raise Conflict(f"Another run {named(id)} is registered.", constraint="pk_history_runs")

    @reads
    def find(self, id: str) -> schemas.HistoryRun | None:
        """The run; None if none is registered under the id."""
        return _RUN.optional(self._work.row(_GET, row_id=self._work.label("id", id, empty=True)))

    @reads
    def get(self, id: str) -> schemas.HistoryRun:
        """The run, be it registered or not. Raises NotFound."""
        return _RUN.found(self._work.row(_GET_ANY, row_id=self._work.label("id", id, empty=True)), "history run", id)

    @reads
    def list(self, *, limit: int = 20, after: str | None = None) -> Page[schemas.HistoryRun]:
        """Runs, registered or not, the one that took a step last first. Pass a page's `cursor` as `after` for the next page."""
        return _NEWEST.page(self._work, limit, after)

    @reads
    def started(
        self,
        *,
        parent_id: str | None = None,
        conversation_id: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> PagedList[schemas.HistoryRun]:
        """The runs with this parent and of this conversation, as far as these are given, the one started first first.

        With a `limit` a page, whose `cursor` is `after` for the next one.
        """
        given = {"parent_id": parent_id, "conversation_id": conversation_id}
        filters = {name: self._work.label(name, value, empty=True) for name, value in given.items() if value is not None}
        return _STARTED.pages(self._work, limit, after, filters)

    @writes
    def delete(self, id: str) -> bool:
        """Delete a run with its steps, and the entries that nothing else reaches; False for an unknown id."""
        return erase(self._work, self._work.label("id", id, empty=True)) is not None


def touch(work: UnitOfWork, batch: Batch, run_id: str) -> None:
    """Make the run if it is not there, note that it took a step, and lock it until the transaction ends."""
    now = work.now()
    unregistered = dict.fromkeys((*_GIVEN, "newest_sequence", "newest_keys_json"))
    _MAKE.run(batch, **{**unregistered, "id": run_id, "created_at": now, "updated_at": now, "metadata_json": {}})


def erase(work: UnitOfWork, id: str, before: datetime | None = None, *, left: bool = False) -> dict[str, int] | None:
    """Delete a run and release its entries; rows by table. None if it took a step since `before`. `left`: remains, too."""
    with work.batch() as batch:
        batch.lock(_LOCK, row_id=id)
        found = batch.row(_STATE, row_id=id)
        asked = AskedReleasing(batch, OF_RUN, run_id=id)
    row = found.result
    if not left if row is None else before is not None and row[0] >= before:
        return None
    with work.batch(last=True) as batch:
        below = [batch.run(prepared, row_id=id) for prepared in _DELETE_BELOW]
        released = asked.delete(batch)
        gone = batch.run(_DELETE, row_id=id)
    counts = {table.name: one.result for table, one in zip(BELOW_RUN, below, strict=True)}
    return {runs.name: gone.result, **counts, entries.name: sum(one.result for one in released)}


_V = run_events.c
_EVENT = Values(schemas.RunEvent, run_events)
_last_event = select(func.coalesce(func.max(_V.position), -1)).where(_V.run_id == param("run_id")).scalar_subquery()
_APPEND = Statement(merging(insert_where(run_events, true(), {"position": _last_event + 1})))
_EVENTS = Statement(select(*_V).where(_V.run_id == param("run_id")).order_by(_V.position))


class RunEvents(Repository[F]):
    """`tx.histories.run_events`."""

    @writes
    def append(
        self,
        run_id: str,
        kind: str,
        *,
        step_index: int,
        at: datetime,
        conversation_id: str | None = None,
        parent_run_id: str | None = None,
        agent_name: str | None = None,
        tool_call_id: str | None = None,
        tool_name: str | None = None,
        error: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> bool:
        """Append an event to a run, which need not be registered. False if it has one with that `idempotency_key` already."""
        work = self._work
        row = {
            "run_id": work.label("run_id", run_id, empty=True),
            "kind": work.label("kind", kind),
            "step_index": schemas.whole_number("step_index", step_index),
            "at": as_utc("at", at),
            "conversation_id": schemas.optional_text("conversation_id", conversation_id),
            "parent_run_id": schemas.optional_text("parent_run_id", parent_run_id),
            "agent_name": schemas.optional_text("agent_name", agent_name),
            "tool_call_id": schemas.optional_text("tool_call_id", tool_call_id),
            "tool_name": schemas.optional_text("tool_name", tool_name),
            "error": schemas.optional_text("error", error),
            "metadata_json": work.json("metadata", work.json_object("metadata", metadata)),
            "idempotency_key": optional_label("idempotency_key", idempotency_key, empty=True),
        }
        with work.batch(last=True) as batch:
            touch(work, batch, run_id)
            appended = batch.run(_APPEND, **row)
        return appended.result == 1

    @reads
    def list(self, run_id: str) -> List[schemas.RunEvent]:
        """The events of a run, oldest first."""
        return [_EVENT(row) for row in self._work.rows(_EVENTS, run_id=self._work.label("run_id", run_id, empty=True))]


_F = effects.c
_KEY = ("run_id", "tool_call_id")
_EFFECT = Values(schemas.ToolEffect, effects)
_last_effect = select(func.coalesce(func.max(_F.position), -1)).where(_F.run_id == param("run_id")).scalar_subquery()
_PUT = Statement(overwriting(insert_where(effects, true(), {"position": _last_effect + 1}), *_KEY, keep=("position",)))
_of_run = _F.run_id == param("run_id")
_GET_EFFECT = Statement(select(*_EFFECT.columns).where(_of_run, _F.tool_call_id == param("tool_call_id")))
_OPEN = Statement(select(*_EFFECT.columns).where(_of_run, among(_F.status, [schemas.EffectStatus.STARTED])).order_by(_F.position))


class ToolEffects(Repository[F]):
    """`tx.histories.tool_effects`."""

    @writes
    def put(
        self,
        run_id: str,
        tool_call_id: str,
        *,
        tool_name: str,
        status: schemas.EffectStatus | str,
        started_at: datetime,
        ended_at: datetime | None = None,
        idempotency_key: str | None = None,
        effect_summary: str | None = None,
    ) -> None:
        """Note what is known of a tool call, in place of what was known. The run need not be registered."""
        work = self._work
        row = {
            "run_id": work.label("run_id", run_id, empty=True),
            "tool_call_id": work.label("tool_call_id", tool_call_id, empty=True),
            "tool_name": schemas.text("tool_name", tool_name),
            "status": check_choice("status", status, schemas.EffectStatus),
            "started_at": as_utc("started_at", started_at),
            "ended_at": None if ended_at is None else as_utc("ended_at", ended_at),
            "idempotency_key": schemas.optional_text("idempotency_key", idempotency_key),
            "effect_summary": schemas.optional_text("effect_summary", effect_summary),
        }
        with work.batch(last=True) as batch:
            touch(work, batch, run_id)
            batch.run(_PUT, **row)

    @reads
    def find(self, run_id: str, tool_call_id: str) -> schemas.ToolEffect | None:
        """What is known of a tool call; None if nothing is."""
        work = self._work
        key = {name: work.label(name, value, empty=True) for name, value in zip(_KEY, (run_id, tool_call_id), strict=True)}
        return _EFFECT.optional(work.row(_GET_EFFECT, **key))

    @reads
    def unresolved(self, run_id: str) -> List[schemas.ToolEffect]:
        """The calls of a run that are noted as started and as nothing since, in the order in which they were first noted."""
        return [_EFFECT(row) for row in self._work.rows(_OPEN, run_id=self._work.label("run_id", run_id, empty=True))]
