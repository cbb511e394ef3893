"""Storing a checkpoint with its new values. A list that grew costs only what was added."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Exists, Insert, and_, bindparam, delete, exists, func, insert, select

from persist.db.changes.batch import Batch, Requirement, RequirementMissed
from persist.db.expressions.upsert import FirstUse, insert_missing, insert_where, merging, overwriting, upsert
from persist.db.schema.column_types import label_rows
from persist.db.statements.prepared import Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import required_label
from persist.errors import InvalidValue
from persist.framework_state.checkpoints import schemas
from persist.framework_state.checkpoints.models import pending, pieces, states, threads, values
from persist.framework_state.checkpoints.schemas import Blob, Stored, Write
from persist.framework_state.checkpoints.values import Addition, GrownList, KnownList, ThreadKey, stored_spans, thread_key

WriteRow = Mapping[str, Any]
_MAKE_THREAD = Statement(insert_missing(threads, "id"))
WRITE = Statement(upsert(pending, "thread_id", "namespace", "checkpoint_id", "task_id", "idx", where="excluded.idx < 0"))
"""Stores a write unless it is there already; one with an `idx` below 0 is replaced. Its thread has to exist."""


def checked_writes(
    thread_id: str, checkpoint_id: str, writes: Sequence[Write], *, task_id: str, task_path: str = "", namespace: str = ""
) -> list[WriteRow]:
    """The rows of a task's writes."""
    task = {
        **thread_key(thread_id, namespace),
        "checkpoint_id": required_label("checkpoint_id", checkpoint_id),
        "task_id": required_label("task_id", task_id, empty=True),
        "task_path": required_label("task_path", task_path, empty=True),
    }
    given = schemas.items("writes", writes, Write)
    schemas.check_blobs("writes", [write.value for write in given])
    return [
        {
            **task,
            "idx": _index(write.idx),
            "channel": required_label("channel", write.channel, empty=True),
            "kind": write.value.kind,
            "data": write.value.data,
        }
        for write in given
    ]


def store_writes(work: UnitOfWork, rows: Sequence[WriteRow]) -> None:
    """Store the writes of one task, and create their thread if needed."""
    if not rows:
        return
    now = work.now()
    work.refuse_former(threads, "thread", rows[0]["thread_id"])
    with work.batch(last=True) as batch:
        batch.run(_MAKE_THREAD, id=rows[0]["thread_id"], created_at=now, updated_at=now)
        batch.run_many(WRITE, rows)


def _index(value: object) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise InvalidValue("idx", "expected a whole number that fits 64 bits.")
    return value


_V, _P = values.c, pieces.c
_MOST_LISTS = 4
"""Only a put of at most so many lists is stored without reading first: each adds a condition to every statement."""
_KEY_OF_STATE = ("thread_id", "namespace", "id")
_OF_VALUE = ("channel", "version")
_KEY_OF_VALUE = ("thread_id", "namespace", *_OF_VALUE)
_KEY_OF_PIECE = ("thread_id", "namespace", "channel", "position")
_of_list = (_P.thread_id == param("thread_id"), _P.namespace == param("namespace"), _P.channel == param("channel"))
_of_channel = (_V.thread_id == param("thread_id"), _V.namespace == param("namespace"), _V.channel == param("channel"))
# Versions grow, so this is nearly always the list that the new one extends. If it is not, storing only takes longer.
_LATEST = Statement(
    select(_V.spans_json, _V.digest, select(func.max(_P.position)).where(*_of_list).scalar_subquery())
    .where(*_of_channel, _V.digest.is_not(None))
    .order_by(_V.version.desc())
    .limit(1)
)
_DIGESTS = Statement(select(_P.digest, _P.position).where(*_of_list))
_TOUCH = FirstUse(threads, "thread", updated_at="latest")
_LOCK = Statement(select(threads.c.id).where(threads.c.id == param("in_thread")).with_for_update())
_ADD_PIECE = Statement(insert(pieces))
_PUT = Statement(upsert(values, *_KEY_OF_VALUE))
_DROP = Statement(delete(values).where(*_of_channel, _V.version == param("version")))
_PUT_STATE = Statement(upsert(states, *_KEY_OF_STATE, keep=("created_at",)))


@dataclass(frozen=True, slots=True)
class NewState:
    """A checkpoint to store: its row, (version, value) by channel, None deleting that version's, and versions it `relies_on`."""

    key: ThreadKey
    row: Mapping[str, Any]
    values: Mapping[str, tuple[str, Stored | Addition | None]]
    relies_on: Mapping[str, str] = field(default_factory=dict)

    def touched(self, work: UnitOfWork) -> dict[str, Any]:
        """The row of the thread. Writing it locks it: other writers of the thread wait until the transaction ends."""
        now = work.now()
        return {"id": self.key["thread_id"], "created_at": now, "updated_at": now}

    def grown(self, base_of: Callable[[str], KnownList | None]) -> list[GrownList]:
        """The lists among the values, each on top of its stored list, which `base_of(channel)` returns."""
        return [
            GrownList({**self.key, "channel": channel}, version, value, base_of(channel))
            for channel, (version, value) in self.values.items()
            if value is not None and not isinstance(value, Blob)
        ]

    def blobs(self) -> list[dict[str, Any]]:
        return [
            {
                **self.key,
                "channel": channel,
                "version": at,
                "kind": value.kind,
                "spans_json": None,
                "digest": None,
                "data": value.data,
            }
            for channel, (at, value) in self.values.items()
            if isinstance(value, Blob)
        ]

    def dropped(self) -> list[dict[str, Any]]:
        return [
            {**self.key, "channel": channel, "version": version}
            for channel, (version, value) in self.values.items()
            if value is None
        ]


def store(work: UnitOfWork, new: NewState) -> dict[str, KnownList]:
    """Store a checkpoint under its thread's lock; how its lists are stored now. Raises RequirementMissed for what is gone."""
    lists = _planned(work, new)
    with work.batch(last=True) as batch:
        if not lists:
            _TOUCH.run(batch, **new.touched(work))
        _rely(batch, new)
        batch.run_many(_ADD_PIECE, [row for one in lists for row in one.added])
        batch.run_many(_DROP, new.dropped())
        batch.run_many(_PUT, [*new.blobs(), *(one.row for one in lists)])
        batch.run(_PUT_STATE, **new.row)
    return _stored(lists)


def _planned(work: UnitOfWork, new: NewState) -> list[GrownList]:
    """The lists to store, with positions for their new pieces, read under the thread's lock."""
    channels = [one.key["channel"] for one in new.grown(lambda channel: None)]
    if not channels:
        return []
    with work.batch() as batch:
        _TOUCH.run(batch, **new.touched(work))
        found = {channel: batch.row(_LATEST, **new.key, channel=channel) for channel in channels}
    latest = {channel: _known(new.key["thread_id"], pending.result) for channel, pending in found.items()}
    lists = new.grown(latest.__getitem__)
    if not all(one.fits for one in lists):
        raise RequirementMissed
    unknown = [one for one in lists if one.base is None and _free(latest[one.key["channel"]]) != 0]
    stored = {}
    if unknown:
        with work.batch() as batch:
            stored = {one.key["channel"]: batch.rows(_DIGESTS, **one.key) for one in unknown}
    for one in lists:
        channel = one.key["channel"]
        known = {bytes(digest): position for digest, position in stored[channel].result} if channel in stored else {}
        free = _free(latest[channel])
        one.place(max(known.values(), default=-1) + 1 if free is None else free, known)
    return lists


def _known(thread_id: str, row: Any) -> KnownList | None:
    if row is None:
        return None
    spans, digest, last = row
    return KnownList("", stored_spans(thread_id, spans), digest, 0 if last is None else last + 1)


def _free(latest: KnownList | None) -> int | None:
    return None if latest is None else latest.free


def _stored(lists: list[GrownList]) -> dict[str, KnownList]:
    return {one.key["channel"]: one.stored for one in lists}


def _rely(batch: Batch, new: NewState) -> None:
    if new.relies_on:
        batch.require(_NONE_GONE, **_place(new), channels=[*new.relies_on], versions=[*new.relies_on.values()])


def growing(new: NewState, known: Mapping[str, KnownList]) -> list[GrownList] | None:
    """The lists to store, if each list grew from the known list of its channel, so that `extend` may store all; else None."""
    lists = new.grown(known.get)
    if not 0 < len(lists) <= _MOST_LISTS:
        return None
    for one in lists:
        if one.base is None:
            return None
        one.place(one.base.free, {})
        if one.base.version == one.stored.version:
            return None
    return lists


def extend(work: UnitOfWork, new: NewState, lists: list[GrownList]) -> dict[str, KnownList]:
    """Store a checkpoint with the lists of `growing`, without reading first; how these are stored now, by channel.

    Raises RequirementMissed, and writes nothing, if the database does not have what is known. The thread is locked first.
    """
    before = _place(new)
    after = dict(before)
    for number, one in enumerate(lists):
        assert one.base is not None
        before |= {f"channel_{number}": one.key["channel"], **_expected(number, one.base), f"free_{number}": one.base.free}
        after |= {f"channel_{number}": one.key["channel"], **_expected(number, one.stored)}
    count = len(lists)
    with work.batch(last=True) as batch:
        batch.lock(_LOCK, in_thread=new.key["thread_id"])
        _rely(batch, new)
        for one in lists:
            batch.run(_add_list(count), **before, **one.row)
        for one in lists:
            own = {**after, "channel_0": one.key["channel"], **_expected(0, one.stored)}
            batch.run_many(_ADD_PIECE_OF, [{**own, **row} for row in one.added])
        batch.run_many(_drop_with(count), [{**after, **row} for row in new.dropped()])
        batch.run_many(_put_with(count), [{**after, **row} for row in new.blobs()])
        batch.run(_touch_with(count), **after, **new.touched(work))
        written = batch.run(_put_state_with(count), **after, **new.row)
    if not written.result:
        raise RequirementMissed
    return _stored(lists)


def _place(new: NewState) -> dict[str, Any]:
    return {"in_thread": new.key["thread_id"], "in_namespace": new.key["namespace"]}


def _expected(number: int, known: KnownList) -> dict[str, Any]:
    return {f"version_{number}": known.version, f"digest_{number}": known.digest, f"spans_{number}": known.spans}


_in_thread = bindparam("in_thread", type_=_V.thread_id.type)
_in_namespace = bindparam("in_namespace", type_=_V.namespace.type)
_there = values.alias("there")


def _is_value(channel: ColumnElement[Any], version: ColumnElement[Any]) -> Exists:
    return exists().where(
        _there.c.thread_id == _in_thread,
        _there.c.namespace == _in_namespace,
        _there.c.channel == channel,
        _there.c.version == version,
    )


def _is_stored(number: int) -> Exists:
    channel, version = (bindparam(f"{name}_{number}", type_=_V[name].type) for name in _OF_VALUE)
    return _is_value(channel, version).where(
        _there.c.digest == bindparam(f"digest_{number}", type_=_V.digest.type),
        _there.c.spans_json == bindparam(f"spans_{number}", type_=_V.spans_json.type),
    )


def _none_gone() -> Requirement:
    """The requirement that all values are stored whose `channels` and `versions` are given."""
    channel, version = label_rows("channels"), label_rows("versions")
    given = select(channel.c.value).join_from(channel, version, channel.c.key == version.c.key)
    return Requirement(given.where(~_is_value(channel.c.value, version.c.value)), absent=True)


_NONE_GONE = _none_gone()


def _is_free(number: int) -> ColumnElement[bool]:
    return ~exists().where(
        _P.thread_id == _in_thread,
        _P.namespace == _in_namespace,
        _P.channel == bindparam(f"channel_{number}", type_=_V.channel.type),
        _P.position >= bindparam(f"free_{number}", type_=_P.position.type),
    )


def _are_stored(count: int) -> ColumnElement[bool]:
    return and_(*map(_is_stored, range(count)))


@cache
def _add_list(count: int) -> Statement:
    """The INSERT of a list, if `count` lists are as they are known to be: the other statements then look for this list."""
    as_known = and_(_are_stored(count), *map(_is_free, range(count)))
    return Statement(merging(insert_where(values, as_known), *_KEY_OF_VALUE))


# Nothing is to be done if the piece is there: then this very list was stored before.
_ADD_PIECE_OF = Statement(merging(insert_where(pieces, _is_stored(0)), *_KEY_OF_PIECE))


@cache
def _drop_with(count: int) -> Statement:
    return Statement(delete(values).where(*_of_channel, _V.version == param("version"), _are_stored(count)))


@cache
def _put_with(count: int) -> Statement:
    return Statement(overwriting(insert_where(values, _are_stored(count)), *_KEY_OF_VALUE))


@cache
def _touch_with(count: int) -> Statement:
    return Statement(_touching(insert_where(threads, _are_stored(count))))


def _touching(statement: Insert) -> Insert:
    return merging(statement, "id", updated_at="latest")


@cache
def _put_state_with(count: int) -> Statement:
    return Statement(overwriting(insert_where(states, _are_stored(count)), *_KEY_OF_STATE, keep=("created_at",)))
