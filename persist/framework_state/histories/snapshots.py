"""`tx.histories.snapshots`: messages from which a run can be continued. Those that snapshots of a run share are stored once."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, delete, insert, select, update

from persist.db.changes.batch import Pending
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.arguments import check_choice, check_flag, check_list, optional_label
from persist.db.values.clock import as_utc
from persist.errors import NotFound, StoreCorrupt
from persist.framework_state.histories import appending, schemas
from persist.framework_state.histories.appending import place
from persist.framework_state.histories.models import entries, runs, snapshots
from persist.framework_state.histories.records import OF_ENTRIES, AskedReleasing
from persist.framework_state.histories.runs import touch

List = list
_S, _E, _R = snapshots.c, entries.c, runs.c
_SNAPSHOT = Values(schemas.Snapshot, snapshots)
_of_run = _S.run_id == param("run_id")
_heads = select(_S.head_id).where(_of_run)
_roots = select(_E.root_id).where(_E.id.in_(_heads))
_LOCK_TREES = Statement(select(_E.id).where(_E.id.in_(_roots)).order_by(_E.id).with_for_update())
_NEWEST_SEQUENCE = Statement(select(_R.newest_sequence, _R.newest_keys_json).where(_R.id == param("run_id")))
_HAS_KEY = Statement(select(_S.position).where(_of_run, _S.idempotency_key == param("idempotency_key")))
_place = (_E.id, _E.root_id, _E.line_id, _E.depth, appending.HAS_NEXT, _E.digest)
_with_head = snapshots.outerjoin(entries, _E.id == _S.head_id)
_NEWEST = Statement(select(_S.position, *_place).select_from(_with_head).where(_of_run).order_by(_S.position.desc()).limit(1))
_IN_TREES = Statement(select(*_place).where(_E.root_id.in_(_roots)))
_KEPT = Statement(
    select(_S.position, _S.state, _E.id, _E.line_id, _E.depth).select_from(_with_head).where(_of_run).order_by(_S.position)
)
_ADD_ENTRY = Statement(insert(entries))
_ADD = Statement(insert(snapshots))
_DROP = Statement(delete(snapshots).where(_of_run, _S.position == param("row_position")))
_SET_SEQUENCE = Statement(
    update(runs)
    .where(_R.id == param("run_id"))
    .values(
        newest_sequence=bindparam("sequence", type_=_R.newest_sequence.type),
        newest_keys_json=bindparam("keys", type_=_R.newest_keys_json.type),
    )
)
_ALL_OF_RUN = Statement(select(*_SNAPSHOT.columns).where(_of_run).order_by(_S.position))


def _latest(interrupted: bool, *columns: Any) -> Select[Any]:
    query = select(*columns).where(_of_run).order_by(_S.position.desc()).limit(1)
    return query if interrupted else query.where(among(_S.state, [schemas.SnapshotState.COMPLETE]))


@cache
def _latest_row(interrupted: bool) -> Statement:
    return Statement(_latest(interrupted, *_SNAPSHOT.columns))


@cache
def _latest_entries(interrupted: bool) -> Statement:
    head = _latest(interrupted, _S.head_id).scalar_subquery()
    return Statement(appending.history_to(_E.id == head), unreadable=OnUnreadable.RAISE)


class RunSnapshots(Repository[F]):
    """`tx.histories.snapshots`."""

    @writes
    def save(
        self,
        run_id: str,
        messages: Sequence[schemas.Message],
        *,
        state: schemas.SnapshotState | str,
        step_index: int,
        taken_at: datetime,
        conversation_id: str | None = None,
        parent_run_id: str | None = None,
        agent_name: str | None = None,
        idempotency_key: str | None = None,
        sequence: int | None = None,
        keep: int | None = None,
    ) -> bool:
        """Add a snapshot to a run, which need not be registered. Messages of an earlier snapshot are not stored again.

        False, and nothing is added, if the run has one with that `idempotency_key`, or has had one of a greater `sequence`.
        `keep`: the newest so many stay, and the newest one and the newest complete one at any rate; None: all stay.
        """
        work = self._work
        columns = [
            appending.message_columns(work, f"messages[{at}]", one) for at, one in enumerate(check_list("messages", messages))
        ]
        key = optional_label("idempotency_key", idempotency_key, empty=True)
        number = None if sequence is None else schemas.whole_number("sequence", sequence)
        maximum = None if keep is None else schemas.whole_number("keep", keep, minimum=1)
        row = {
            "run_id": work.label("run_id", run_id, empty=True),
            "state": check_choice("state", state, schemas.SnapshotState),
            "step_index": schemas.whole_number("step_index", step_index),
            "taken_at": as_utc("taken_at", taken_at),
            "conversation_id": schemas.optional_text("conversation_id", conversation_id),
            "parent_run_id": schemas.optional_text("parent_run_id", parent_run_id),
            "agent_name": schemas.optional_text("agent_name", agent_name),
            "idempotency_key": key,
        }
        digests = _digests(columns)
        earlier = _Earlier(work, run_id, key, keep=maximum is not None)
        newest_keys = earlier.keys_after(number, key)
        if newest_keys is None:
            return False
        shared = earlier.shared(digests)
        added, head = _added(work, columns, digests, shared)
        position = earlier.position + 1
        dropped, lost = earlier.outdated(maximum, state, head)
        with work.batch(last=not lost) as batch:
            batch.run_many(_ADD_ENTRY, added)
            batch.run(_ADD, **row, position=position, head_id=None if head is None else head[0])
            batch.run_many(_DROP, [{"run_id": run_id, "row_position": at} for at in dropped])
            if number is not None and newest_keys:
                batch.run(_SET_SEQUENCE, run_id=run_id, sequence=number, keys=newest_keys)
        if lost:
            with work.batch() as batch:
                asked = AskedReleasing(batch, OF_ENTRIES, ids=lost)
            with work.batch(last=True) as batch:
                asked.delete(batch)
        return True

    @reads
    def latest(self, run_id: str, *, include_interrupted: bool = False) -> schemas.LoadedSnapshot | None:
        """The newest complete snapshot of a run, or with `include_interrupted` the newest one; None if there is none."""
        work = self._work
        interrupted, run_id = check_flag("include_interrupted", include_interrupted), work.label("run_id", run_id, empty=True)
        with work.batch() as batch:
            found = batch.row(_latest_row(interrupted), run_id=run_id)
            rows = batch.rows(_latest_entries(interrupted), run_id=run_id)
        if found.result is None:
            return None
        snapshot = _SNAPSHOT(found.result)
        return schemas.LoadedSnapshot(
            snapshot, [] if snapshot.head_id is None else appending.chain(snapshot.head_id, rows.result)
        )

    @reads
    def list(self, run_id: str, *, include_interrupted: bool = False) -> List[schemas.LoadedSnapshot]:
        """The complete snapshots of a run, or with `include_interrupted` all, oldest first; none that cannot be read."""
        work = self._work
        interrupted, run_id = check_flag("include_interrupted", include_interrupted), work.label("run_id", run_id, empty=True)
        found = [_SNAPSHOT(row) for row in work.rows(_ALL_OF_RUN, run_id=run_id)]
        kept = [one for one in found if interrupted or one.state == schemas.SnapshotState.COMPLETE]
        with work.batch() as batch:
            asked = [appending.AskedHistory(batch, one.head_id) for one in kept]
        return [*_loaded(zip(kept, asked, strict=True))]


@dataclass(frozen=True, slots=True)
class _Stored:
    id: str
    place: appending.Place
    digest: bytes | None


class _Earlier:
    """The state of a run before a snapshot is added. Reading it makes and locks the run, and locks its trees."""

    def __init__(self, work: UnitOfWork, run_id: str, key: str | None, *, keep: bool) -> None:
        self._work, self._run_id = work, run_id
        kept: Pending[List[Row]] | None = None
        has_key: Pending[Row | None] | None = None
        with work.batch() as batch:
            touch(work, batch, run_id)
            batch.lock(_LOCK_TREES, run_id=run_id)
            sequence = batch.row(_NEWEST_SEQUENCE, run_id=run_id)
            newest = batch.row(_NEWEST, run_id=run_id)
            if key is not None:
                has_key = batch.row(_HAS_KEY, run_id=run_id, idempotency_key=key)
            if keep:
                kept = batch.rows(_KEPT, run_id=run_id)
        self._has_key = has_key is not None and has_key.result is not None
        self._sequence: int | None = None if sequence.result is None else sequence.result[0]
        keys = None if sequence.result is None else sequence.result[1]
        self._keys: List[str] = keys if isinstance(keys, list) else []
        self.position: int = -1 if newest.result is None else newest.result[0]
        self._newest = None if newest.result is None or newest.result[1] is None else _stored(newest.result[1:])
        self._kept: List[Row] = [] if kept is None else kept.result

    def keys_after(self, sequence: int | None, key: str | None) -> List[str] | None:
        """The keys of the greatest sequence once this one is saved, [] for one without; None if it is not to be saved."""
        if self._has_key:
            return None
        if sequence is None or key is None:
            return []
        if self._sequence is None or sequence > self._sequence:
            return [key]
        if sequence < self._sequence or key in self._keys:
            return None
        return [*self._keys, key]

    def shared(self, digests: Sequence[bytes]) -> _Stored | None:
        """The stored entry of the run up to which the messages are stored; None if not even the first one is."""
        newest = self._newest
        if newest is None and self.position < 0:
            return None
        if newest is not None and _begins(newest, digests):
            return newest
        with self._work.batch() as batch:
            found = batch.rows(_IN_TREES, run_id=self._run_id)
        fitting = [one for one in map(_stored, found.result) if _begins(one, digests)]
        return max(fitting, key=lambda one: one.place.depth, default=None)

    def outdated(self, keep: int | None, state: str, head: tuple[str, appending.Place] | None) -> tuple[List[int], List[str]]:
        """The positions of snapshots to drop after one more, and the ids of entries that may be reached by none then."""
        if keep is None or len(self._kept) < keep:
            return [], []
        stays = {row[0] for row in self._kept[len(self._kept) - keep + 1 :]}
        complete = [row[0] for row in self._kept if row[1] == schemas.SnapshotState.COMPLETE]
        if state != schemas.SnapshotState.COMPLETE and complete:
            stays.add(complete[-1])
        deepest: dict[str, int] = {} if head is None else {head[1].line_id: head[1].depth}
        for position, _, _, line_id, depth in self._kept:
            if position in stays and line_id is not None:
                deepest[line_id] = max(depth, deepest.get(line_id, -1))
        gone = [row for row in self._kept if row[0] not in stays]
        lost = [id for _, _, id, line_id, depth in gone if id is not None and depth > deepest.get(line_id, -1)]
        return [row[0] for row in gone], sorted(set(lost))


def _loaded(found: Iterable[tuple[schemas.Snapshot, appending.AskedHistory]]) -> Iterator[schemas.LoadedSnapshot]:
    for one, history in found:
        entries = None
        with suppress(NotFound, StoreCorrupt):
            entries = history.entries()
        if entries is not None:
            yield schemas.LoadedSnapshot(one, entries)


def _digests(columns: Iterable[Mapping[str, Any]]) -> List[bytes]:
    """For each message, a digest of all messages up to it."""
    digests, before = [], b""
    for one in columns:
        text = "\x00".join((one["kind"], one["extra_json"] or "", one["message_json"]))
        before = hashlib.blake2b(before + text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        digests.append(before)
    return digests


def _stored(row: Sequence[Any]) -> _Stored:
    id, root_id, line_id, depth, has_next, digest = row
    return _Stored(id, appending.Place(root_id, line_id, depth, bool(has_next)), digest)


def _begins(stored: _Stored, digests: Sequence[bytes]) -> bool:
    depth: int | None = stored.place.depth
    if depth is None or stored.digest is None:  # of what another program wrote: the messages are stored once more
        return False
    return 0 <= depth < len(digests) and bytes(stored.digest) == digests[depth]


def _added(
    work: UnitOfWork, columns: Sequence[Mapping[str, Any]], digests: Sequence[bytes], shared: _Stored | None
) -> tuple[List[dict[str, Any]], tuple[str, appending.Place] | None]:
    """The rows of the messages behind the shared ones, and the last entry of all, None if there is no message."""
    begin = 0 if shared is None else shared.place.depth + 1
    places = {} if shared is None else {shared.id: shared.place}
    last = None if shared is None else shared.id
    ids, now, rows = work.runtime.ids.mint_many("ent", len(columns) - begin), work.now(), []
    for id, one, digest in zip(ids, columns[begin:], digests[begin:], strict=True):
        rows.append({**one, **place(id, last, places), "created_at": now, "digest": digest})
        last = id
    return rows, None if last is None else (last, places[last])
