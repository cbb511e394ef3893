"""Checkpoints: the state of a thread after each step, and what tasks wrote since."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import bindparam, select, tuple_

from persist.checkpoints import intake
from persist.checkpoints.models import pending, states, threads
from persist.checkpoints.schemas import Blob, ChannelHistory, Checkpoint, Loaded, PendingWrite, Stored, Write
from persist.checkpoints.values import Place, Reading, put_values, stored_blob, stored_versions
from persist.db.checks import optional_label
from persist.db.cursor import check_limit
from persist.db.hot import LIMIT, Hot, Row, param
from persist.db.insert import insert_missing, merge, upsert
from persist.db.repository import Repository, reads, writes
from persist.db.spoilt import Spoilt
from persist.db.values import build
from persist.db.work import Work
from persist.errors import InvalidValue, StoreCorrupt
from persist.quoting import named

List = list
_S, _W = states.c, pending.c
_COLUMNS = (
    _S.thread_id,
    _S.namespace,
    _S.id,
    _S.parent_id,
    _S.run_id,
    _S.created_at,
    _S.metadata_json,
    _S.versions_json,
    _S.partial_json,
    _S.head_kind,
    _S.head,
)
_FIELDS = tuple(name for name in Checkpoint.model_fields if name != "head")

_in_namespace = (_S.thread_id == param("thread_id"), _S.namespace == param("namespace"))
_GET = Hot(select(*_COLUMNS).where(*_in_namespace, _S.id == param("row_id")))
_LATEST = Hot(select(*_COLUMNS).where(*_in_namespace).order_by(_S.id.desc()).limit(1))
_STEP = Hot(select(_S.parent_id, _S.versions_json).where(*_in_namespace, _S.id == param("row_id")))
_TOUCH = Hot(merge(threads, "id", updated_at="latest"))
_PUT = Hot(upsert(states, "thread_id", "namespace", "id", keep=("created_at",)))
_KEY_OF_WRITE = ("thread_id", "namespace", "checkpoint_id", "task_id", "idx")
_WRITE_ONCE = Hot(insert_missing(pending, *_KEY_OF_WRITE))
_WRITE = Hot(upsert(pending, *_KEY_OF_WRITE))
_WRITES = Hot(
    select(_W.task_id, _W.channel, _W.kind, _W.data)
    .where(_W.thread_id == param("thread_id"), _W.namespace == param("namespace"), _W.checkpoint_id == param("row_id"))
    .order_by(_W.task_path, _W.task_id, _W.idx),
    spoilt=Spoilt.RAISE,
)


@cache
def _listing(*given: str) -> Hot:
    """The statement of a page with these of the filters `thread_id`, `namespace`, `id`, `before` and `after`."""
    query = select(*_COLUMNS).order_by(_S.id.desc(), _S.thread_id.desc(), _S.namespace.desc()).limit(LIMIT)
    for name in ("thread_id", "namespace", "id"):
        if name in given:
            query = query.where(_S[name] == param(name))
    if "before" in given:
        query = query.where(_S.id < param("before"))
    if "after" in given:
        place = [bindparam(f"after_{column.name}", type_=column.type) for column in (_S.id, _S.thread_id, _S.namespace)]
        query = query.where(tuple_(_S.id, _S.thread_id, _S.namespace) < tuple_(*place))
    return Hot(query)


class CheckpointStates(Repository):
    """`tx.checkpoints.states`."""

    @writes
    def put(
        self,
        thread_id: str,
        id: str,
        *,
        head: Blob,
        namespace: str = "",
        parent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
        values: Mapping[str, tuple[str, Stored | None]] | None = None,
        partial: Iterable[str] = (),
    ) -> None:
        """Store a checkpoint, or the same one anew; makes its thread.

        `versions`: the version of every channel. `values`: those of the channels that this step changed, each with its version;
        None where there is none. What other channels hold was stored with earlier checkpoints, under the versions that these
        still have. `partial`: channels whose value is that of an ancestor and what was written to them since.
        """
        work = self._work
        place = _place(work, thread_id, namespace)
        intake.check_blobs(work, "head", (head,), empty=False)
        row = {
            **place,
            "id": work.label("id", id),
            "parent_id": optional_label("parent_id", parent_id),
            "run_id": optional_label("run_id", run_id, empty=True),
            "created_at": work.now(),
            "metadata_json": work.json("metadata", work.json_object("metadata", metadata)),
            "versions_json": work.json("versions", intake.versions_of(work, versions)),
            "partial_json": sorted(intake.labels(work, "partial", partial)) or None,
            "head_kind": head.kind,
            "head": head.data,
        }
        new = intake.values_of(work, values)
        _touch(work, place)
        put_values(work, place, new)
        work.run_many(_PUT, [row])

    @writes
    def put_writes(
        self,
        thread_id: str,
        checkpoint_id: str,
        writes: Sequence[Write],
        *,
        task_id: str,
        task_path: str = "",
        namespace: str = "",
    ) -> None:
        """Store what a task wrote after a checkpoint, which need not be there yet; makes the thread.

        A write with an `idx` from 0 that is there stays what it is; one below 0 replaces it.
        """
        work = self._work
        place = _place(work, thread_id, namespace)
        task = {
            **place,
            "checkpoint_id": work.label("checkpoint_id", checkpoint_id),
            "task_id": work.label("task_id", task_id, empty=True),
            "task_path": work.label("task_path", task_path, empty=True),
        }
        given = intake.items("writes", writes, Write)
        intake.check_blobs(work, "writes", [write.value for write in given])
        rows: List[dict[str, Any]] = [
            {
                **task,
                "idx": _index(write.idx),
                "channel": work.label("channel", write.channel, empty=True),
                "kind": write.value.kind,
                "data": write.value.data,
            }
            for write in given
        ]
        if rows:
            _touch(work, place)
            work.run_many(_WRITE_ONCE, [row for row in rows if row["idx"] >= 0])
            work.run_many(_WRITE, [row for row in rows if row["idx"] < 0])

    @reads
    def find(self, thread_id: str, *, namespace: str = "", id: str | None = None) -> Loaded | None:
        """A checkpoint, or the one with the greatest id; None where there is none."""
        work = self._work
        place = _place(work, thread_id, namespace)
        wanted = optional_label("id", id)
        row = work.row(_LATEST, **place) if wanted is None else work.row(_GET, **place, row_id=wanted)
        return None if row is None else _load(work, Reading(work), _value(row))

    @reads
    def page(
        self,
        *,
        thread_id: str | None = None,
        namespace: str | None = None,
        id: str | None = None,
        before: str | None = None,
        after: Checkpoint | None = None,
        limit: int = 100,
    ) -> List[Checkpoint]:
        """The greatest ids first; `before`: only smaller ids; `after`: those that follow that one."""
        work = self._work
        given = {"thread_id": thread_id, "namespace": namespace, "id": id, "before": before}
        filters = {name: work.label(name, value, empty=True) for name, value in given.items() if value is not None}
        place = {}
        if after is not None:
            intake.items("after", [after], Checkpoint)
            place = {"after_id": after.id, "after_thread_id": after.thread_id, "after_namespace": after.namespace}
        hot = _listing(*filters, *(["after"] if place else []))
        return [_value(row) for row in work.rows(hot, **filters, **place, limit=check_limit(limit))]

    @reads
    def load(self, checkpoints: Sequence[Checkpoint]) -> List[Loaded]:
        """The values and pending writes of these."""
        reading = Reading(self._work)
        return [_load(self._work, reading, checkpoint) for checkpoint in intake.items("checkpoints", checkpoints, Checkpoint)]

    @reads
    def values(self, thread_id: str, versions: Mapping[str, str], *, namespace: str = "") -> dict[str, Stored]:
        """The values that channels have at these versions; a channel that has none there is left out."""
        work = self._work
        return Reading(work).values(_place(work, thread_id, namespace), intake.versions_of(work, versions))

    @reads
    def history(self, thread_id: str, id: str, channels: Sequence[str], *, namespace: str = "") -> dict[str, ChannelHistory]:
        """What made these channels before a checkpoint: the value at the nearest ancestor that has one, and the writes since.

        Writes of the checkpoint itself are not among them, those of the ancestor with the value are. StoreCorrupt where its
        parents lead in a circle, as somebody who writes rows could leave them.
        """
        work = self._work
        place = _place(work, thread_id, namespace)
        reading = Reading(work)
        wanted = intake.labels(work, "channels", channels)
        newest_first: dict[str, List[PendingWrite]] = {channel: [] for channel in wanted}
        seeds: dict[str, Stored] = {}
        open_ = set(wanted)
        met = {work.label("id", id)}
        step = work.row(_STEP, **place, row_id=id)
        while step is not None and step[0] is not None and open_:
            if step[0] in met:
                reason = f"the parents of the checkpoint {named(id)} lead in a circle; persist doctor names it."
                raise StoreCorrupt(f"thread {named(thread_id)}", reason)
            met.add(step[0])
            ancestor = {**place, "row_id": step[0]}
            step = work.row(_STEP, **ancestor)
            if step is None:
                break
            for write in reversed(_writes(work, ancestor)):
                if write.channel in open_:
                    newest_first[write.channel].append(write)
            versions = stored_versions(thread_id, step[1])
            stored = reading.values(place, {name: version for name, version in versions.items() if name in open_})
            seeds |= stored
            open_ -= stored.keys()
        return {name: ChannelHistory(seeds.get(name), newest_first[name][::-1]) for name in wanted}


def _place(work: Work, thread_id: str, namespace: str) -> Place:
    return {"thread_id": work.label("thread_id", thread_id), "namespace": work.label("namespace", namespace, empty=True)}


def _index(value: object) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise InvalidValue("idx", "expected a whole number that fits 64 bits.")
    return value


def _touch(work: Work, place: Place) -> None:
    """The thread is there and was used now; whoever else writes to it waits until the transaction ends."""
    now = work.now()
    work.run_many(_TOUCH, [{"id": place["thread_id"], "created_at": now, "updated_at": now}])


def _value(row: Row) -> Checkpoint:
    *fields, kind, data = row
    return build(Checkpoint, {**dict(zip(_FIELDS, fields, strict=True)), "head": stored_blob(kind, data)})


def _load(work: Work, reading: Reading, checkpoint: Checkpoint) -> Loaded:
    place = {"thread_id": checkpoint.thread_id, "namespace": checkpoint.namespace}
    values = reading.values(place, checkpoint.versions)
    return Loaded(checkpoint, values, _writes(work, {**place, "row_id": checkpoint.id}))


def _writes(work: Work, of: Mapping[str, str]) -> List[PendingWrite]:
    return [PendingWrite(task_id, channel, stored_blob(kind, data)) for task_id, channel, kind, data in work.rows(_WRITES, **of)]
