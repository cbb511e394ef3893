"""`tx.histories.runs`: runs of agents. The first step of a run makes it, be it registered or not."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import bindparam, delete, select, tuple_, update

from persist.db.changes.batch import Batch
from persist.db.expressions.upsert import merge
from persist.db.operations.optional_pages import OptionalPages
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import optional_label
from persist.db.values.clock import as_utc, epoch_ms
from persist.db.values.frozen import construct
from persist.db.values.pages import Page, PagedList, check_limit, values_after
from persist.errors import Conflict, NotFound
from persist.histories.models import BELOW_RUN, entries, runs
from persist.histories.releasing import OF_RUN, AskedReleasing
from persist.histories.schemas import HistoryRun
from persist.histories.validation import optional_text
from persist.quoting import named

List = list
_R = runs.c
_FIELDS = tuple(HistoryRun.model_fields)
_COLUMNS = (
    _R.id,
    _R.conversation_id,
    _R.parent_id,
    _R.agent_name,
    _R.registration_id,
    _R.started_at,
    _R.created_at,
    _R.updated_at,
    _R.metadata_json,
)
_LIST = "histories.runs"
_this = _R.id == param("row_id")
_registered = _R.started_at.is_not(None)
_GET = Statement(select(*_COLUMNS).where(_this, _registered))
_GET_ANY = Statement(select(*_COLUMNS).where(_this))
_STATE = Statement(select(_R.updated_at).where(_this))
_LOCK = Statement(select(_R.id).where(_this).with_for_update())
_MAKE = Statement(merge(runs, "id", updated_at="latest"))
_GIVEN = ("conversation_id", "parent_id", "agent_name", "registration_id", "started_at", "metadata_json")
_REGISTER = Statement(
    update(runs)
    .where(_this, _R.started_at.is_(None))
    .values(**{name: bindparam(f"new_{name}", type_=_R[name].type) for name in _GIVEN})
)
_DELETE_BELOW = [Statement(delete(table).where(table.c.run_id == param("row_id"))) for table in BELOW_RUN]
_DELETE = Statement(delete(runs).where(_this))


@cache
def _started(*given: str) -> OptionalPages[HistoryRun]:
    query = select(*_COLUMNS).where(_registered, *(_R[name] == param(name) for name in given))
    by = (_R.started_at, _R.created_at, _R.id)
    return OptionalPages("histories.started", query, by, lambda one: (one.started_at, one.created_at, one.id))


@cache
def _listing(after: bool) -> Statement:
    query = select(*_COLUMNS).order_by(_R.updated_at.desc(), _R.id.desc()).limit(LIMIT)
    if after:
        key = tuple_(bindparam("after_at", type_=_R.updated_at.type), bindparam("after_id", type_=_R.id.type))
        query = query.where(tuple_(_R.updated_at, _R.id) < key)
    return Statement(query)


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
            "agent_name": optional_text("agent_name", agent_name),
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
    def find(self, id: str) -> HistoryRun | None:
        """The run; None if none is registered under the id."""
        row = self._work.row(_GET, row_id=self._work.label("id", id, empty=True))
        return None if row is None else _value(row)

    @reads
    def get(self, id: str) -> HistoryRun:
        """The run, be it registered or not. Raises NotFound."""
        row = self._work.row(_GET_ANY, row_id=self._work.label("id", id, empty=True))
        if row is None:
            raise NotFound("history run", id)
        return _value(row)

    @reads
    def list(self, *, limit: int = 20, after: str | None = None) -> Page[HistoryRun]:
        """Runs, registered or not, the one that took a step last first. Pass a page's `cursor` as `after` for the next page."""
        work = self._work
        limit = check_limit(limit)
        after_key = values_after(after, _LIST, {})
        rows = work.rows(_listing(bool(after_key)), **after_key, limit=limit + 1)
        return Page.of(rows, limit, _value, name=_LIST, filters={}, key=lambda _, item: [epoch_ms(item.updated_at), item.id])

    @reads
    def started(
        self,
        *,
        parent_id: str | None = None,
        conversation_id: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> PagedList[HistoryRun]:
        """The runs with this parent and of this conversation, as far as these are given, the one started first first.

        With a `limit` a page, whose `cursor` is `after` for the next one.
        """
        given = {"parent_id": parent_id, "conversation_id": conversation_id}
        filters = {name: self._work.label(name, value, empty=True) for name, value in given.items() if value is not None}
        return _started(*filters).read(self._work, _value, limit, after, filters)

    @writes
    def delete(self, id: str) -> bool:
        """Delete a run with its steps, and the entries that nothing else reaches; False for an unknown id."""
        return erase(self._work, self._work.label("id", id, empty=True)) is not None


def touch(work: UnitOfWork, batch: Batch, run_id: str) -> None:
    """Make the run if it is not there, note that it took a step, and lock it until the transaction ends."""
    now = work.now()
    unregistered = dict.fromkeys((*_GIVEN, "newest_sequence", "newest_keys_json"))
    batch.run(_MAKE, **{**unregistered, "id": run_id, "created_at": now, "updated_at": now, "metadata_json": {}})


def erase(work: UnitOfWork, id: str, before: datetime | None = None, *, left: bool = False) -> dict[str, int] | None:
    """Delete a run with its steps and release its entries; how many rows of each table.

    None, and nothing is deleted, if there is none that took no step since the instant `before`. `left`: what is left of one that
    is gone is deleted, too.
    """
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


def _value(row: Row) -> HistoryRun:
    return construct(HistoryRun, dict(zip(_FIELDS, row, strict=True)))
