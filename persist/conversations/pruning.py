"""Pruning: deletes old sessions, and with them exactly the rows that nothing else refers to."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    type_coerce,
    union,
)

from persist.conversations.models import branches, exchange_cursors, exchange_items, members, messages, progressions, sessions
from persist.conversations.schemas import PruneReport, Status
from persist.conversations.storage import deletion as removal
from persist.conversations.storage.progressions import SHOW
from persist.conversations.storage.records import OF_SESSIONS
from persist.db.changes.batch import Batch, Pending
from persist.db.expressions.keyset import behind
from persist.db.operations.bounded_deletion import delete_rows
from persist.db.operations.pruning import MOST_CANDIDATES, Cut, Pruning, Removed
from persist.db.schema.column_types import Float64, Int64, among_labels
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.snapshots import always_rolled_back, left_alone
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.unreadable.conditions import bindable, bindable_rows, unbindable
from persist.db.values.arguments import check_flag, check_timedelta
from persist.db.values.clock import epoch_us
from persist.errors import InvalidValue

# Counts what a prune would remove, without locks. None: only a trial can tell, as deletions copy what forks elsewhere inherit,
# and leave rows that cannot be read and bound again.

Condition = ColumnElement[bool]
Values = Mapping[str, Any]
_S = sessions.c
_B = branches.c
_P = members.c
_I = exchange_items.c
_message, _fork, _parent = messages.alias("counted"), branches.alias("fork"), branches.alias("parent")
_MESSAGE = _message.c
_in_session = _S.id == _B.session_id


def count_sessions(work: UnitOfWork, go: Condition, values: Values, readable: int) -> Removed | None:
    """The sessions that `go`, of which `readable` can be read, with all that nothing else names. `values`: for `go`."""
    of_session = and_(_S.id.in_([_fork.c.session_id, _parent.c.session_id]), go)
    crossing = and_(_fork.c.parent_branch_id == _parent.c.id, _fork.c.session_id != _parent.c.session_id)
    pools, owned = union(select(_S.progression_id).where(go), select(_B.progression_id).where(_in_session, go)), progressions.c.id
    deleted = select(owned).where(owned.in_(pools), ~_is_owned(owned, not_(go)))
    named = union(
        select(_P.message_id).where(_P.progression_id.in_(pools)),
        select(_B.system_msg_id).where(_in_session, go),
        select(_S.first_msg_id).where(go),
        select(_S.last_msg_id).where(go),
    )
    counted, strange = _rows_counted(
        work,
        values,
        {
            sessions.name: select(_S.id).where(go),
            branches.name: select(_B.id).where(_in_session, go),
            progressions.name: deleted,
            members.name: select(_P.ord).where(_P.progression_id.in_(deleted)),
            messages.name: select(_MESSAGE.id).where(_MESSAGE.id.in_(named), ~_is_named(not_(go), true())),
        },
        select(_fork.c.id).where(crossing, exists().where(of_session)).limit(1),
        select(_B.id).where(_in_session, go, or_(*map(unbindable, (_B.id, _B.progression_id, _B.parent_branch_id)))).limit(1),
        select(_S.id).where(go, unbindable(_S.progression_id)).limit(1),
        select(_MESSAGE.id).where(_MESSAGE.id.in_(named), unbindable(_MESSAGE.id)).limit(1),
    )
    return None if strange or counted.rows[sessions.name] != readable else counted


def count_letters(work: UnitOfWork, go: Condition, sessions_stay: Condition, values: Values, readable: int) -> Removed | None:
    """The exchange items that `go`, `readable` ones, and messages that nothing names once only these sessions stay."""
    unnamed = select(_MESSAGE.id).where(_MESSAGE.id.in_(select(_I.message_id).where(go)), ~_is_named(sessions_stay, not_(go)))
    counted, strange = _rows_counted(
        work,
        values,
        {exchange_items.name: select(_I.seq).where(go), messages.name: unnamed},
        select(_I.seq).where(go, unbindable(_I.message_id)).limit(1),
    )
    return None if strange or counted.rows[exchange_items.name] != readable else counted


def _is_owned(pool: ColumnElement[Any], among: Condition) -> Condition:
    return or_(exists().where(_S.progression_id == pool, among), exists().where(_B.progression_id == pool, _in_session, among))


def _is_named(sessions_stay: Condition, letters_stay: Condition) -> Condition:
    """A place, a branch, a session or an exchange item that is left names the message. Progressions of nobody are left, too."""
    pool_stays = or_(_is_owned(_P.progression_id, sessions_stay), ~_is_owned(_P.progression_id, true()))
    return or_(
        exists().where(_P.message_id == _MESSAGE.id, pool_stays),
        exists().where(_B.system_msg_id == _MESSAGE.id, _in_session, sessions_stay),
        exists().where(_S.first_msg_id == _MESSAGE.id, sessions_stay),
        exists().where(_S.last_msg_id == _MESSAGE.id, sessions_stay),
        exists().where(_I.message_id == _MESSAGE.id, letters_stay),
    )


def _rows_counted(work: UnitOfWork, values: Values, rows: Mapping[str, Select[Any]], *others: Select[Any]) -> tuple[Removed, int]:
    asked = [select(func.count()).select_from(query.subquery()).scalar_subquery() for query in (*rows.values(), *others)]
    numbers = [int(number) for number in work.found(select(*asked), values)[0]]
    return Removed(Counter(dict(zip(rows, numbers, strict=False)))), sum(numbers[len(rows) :])


_BATCH = 100
_TOGETHER = 500
"""Messages that are deleted by one statement."""
ORPHAN_GRACE = timedelta(days=1)
"""How long a message that nothing names is kept: a writer may be about to name it."""
_MESSAGES = messages.c
_latest = select(_S.id).order_by(_S.updated_at.desc(), _S.id.desc()).limit(bindparam("keep", type_=Int64()))
_may_go = and_(or_(_S.status.is_(None), _S.status != Status.RUNNING), _S.updated_at < param("cutoff"))
_VICTIMS = Statement(select(_S.id).where(_may_go, _S.id.not_in(_latest)).order_by(_S.updated_at, _S.id))
_id = param("row_id")
_STILL = Statement(select(_S.id).where(among_labels(_S.id, "ids"), _may_go).order_by(_S.id).with_for_update())
_POINTED_AT = Statement(select(_S.first_msg_id, _S.last_msg_id).where(_S.id == _id))
_POOL = Statement(select(_P.message_id).join(sessions, _S.progression_id == _P.progression_id).where(_S.id == _id).distinct())
_BRANCH_ITEMS = Statement(
    select(_P.message_id).join(branches, _B.progression_id == _P.progression_id).where(_B.session_id == _id).distinct()
)
_POOLS = Statement(select(_S.progression_id).where(_S.id == _id).union(select(_B.progression_id).where(_B.session_id == _id)))
_COUNT_PLACES = Statement(select(func.count()).select_from(members).where(among_labels(_P.progression_id, "ids")))
_SYSTEM = Statement(select(_B.system_msg_id).where(_B.session_id == _id))
# the number of places is the highest `ord` plus 1, which an index finds at once
_in_pool = select(func.coalesce(func.max(_P.ord) + 1, 0)).where(_P.progression_id == _S.progression_id).scalar_subquery()
_in_branch = select(func.coalesce(func.max(_P.ord) + 1, 0)).where(_P.progression_id == _B.progression_id).scalar_subquery()
_in_branches = select(func.coalesce(func.sum(_in_branch), 0)).where(_B.session_id == _S.id).scalar_subquery()
IS_NAMED = or_(
    exists().where(_P.message_id == _MESSAGES.id),
    exists().where(_B.system_msg_id == _MESSAGES.id),
    exists().where(_S.first_msg_id == _MESSAGES.id),
    exists().where(_S.last_msg_id == _MESSAGES.id),
    exists().where(exchange_items.c.message_id == _MESSAGES.id),
)
_DELETE_UNNAMED = Statement(delete(messages).where(among_labels(_MESSAGES.id, "ids"), ~IS_NAMED))
_orphan = and_(func.coalesce(type_coerce(_MESSAGES.stored_at, Float64()), _MESSAGES.created_at) < param("guard"), ~IS_NAMED)
_SWEEP = Statement(delete(messages).where(_orphan))
# With several writers, a DELETE that waited for a message's lock does not see rows that have come to name it, but the next
# statement does. Hence the messages are locked by a statement of its own first, in the order of their ids.
_LOCK = Statement(select(_MESSAGES.id).where(among_labels(_MESSAGES.id, "ids")).order_by(_MESSAGES.id).with_for_update())
_LOCK_ORPHANS = Statement(select(func.count()).select_from(select(_MESSAGES.id).where(_orphan).with_for_update().subquery()))
_reader, _mark = exchange_cursors.alias("reader"), exchange_cursors.alias("mark")
_has_read = (
    exists()
    .where(_mark.c.owner == _reader.c.owner, _mark.c.channel == func.coalesce(_I.channel, ""), _mark.c.seq >= _I.seq)
    .correlate(_reader, exchange_items)  # named here: auto-correlation does not reach two levels up
)
_of_all = and_(_I.recipient.is_(None), _reader.c.owner != "", _reader.c.owner != _I.sender)
_was_read = or_(
    exists().where(_reader.c.owner == _I.recipient, _has_read),
    exists().where(_of_all, _has_read) & ~exists().where(_of_all, ~_has_read),
)
"""The recipient has read the message. One to all: every owner with a cursor except its sender has, and there is at least one."""


def prune(work: UnitOfWork, *, keep_days: int, keep_n: int, dry_run: bool, orphan_grace: timedelta) -> PruneReport:
    """See ConvSessions.prune."""
    grace = check_timedelta("orphan_grace", orphan_grace)
    cutoff, guard = _ago(work, "keep_days", keep_days), _ago(work, "orphan_grace", grace)
    if not check_flag("dry_run", dry_run):
        return _prune(work, keep_n, cutoff, guard)
    counted = None if work.runtime.dialect.one_writer else _counted(work, Cut(cutoff, keep_n), guard)
    if counted is not None:
        return _report(counted)
    with always_rolled_back(work):
        return _prune(work, keep_n, cutoff, guard)


def _counted(work: UnitOfWork, cut: Cut, guard: datetime) -> Removed | None:
    """What a prune would remove, counted without a lock; None if only a trial can tell."""
    counted = SESSIONS.tally(work, cut, ())
    if counted is not None:
        query = select(func.count()).select_from(messages).where(_orphan)
        found: Sequence[Row] = work.found(query, {"guard": epoch_us(guard) / 1_000_000})
        counted.rows[messages.name] += int(found[0][0])
    return counted


def _report(removed: Removed) -> PruneReport:
    return PruneReport(**{table.name: removed.rows[table.name] for table in (sessions, branches, progressions, messages)})


def _prune(work: UnitOfWork, keep_n: int, cutoff: datetime, guard: datetime) -> PruneReport:
    victims = [*bindable(_S.id, (id for (id,) in work.rows(_VICTIMS, keep=keep_n, cutoff=cutoff)))]
    gone, candidates = Removed(), set[str]()
    for start in range(0, len(victims), _BATCH):
        gone.add(_remove_readable(work, victims[start : start + _BATCH], cutoff, candidates))
    gone.add(_remove_unnamed(work, candidates))  # last: other writers lock messages after everything else
    with work.batch() as together:
        together.lock(_LOCK_ORPHANS, guard=epoch_us(guard) / 1_000_000)
        swept = together.run(_SWEEP, guard=epoch_us(guard) / 1_000_000)
    gone.rows[messages.name] += swept.result
    return _report(gone)


class _Doomed:
    def __init__(self, batch: Batch, ids: Sequence[str], cutoff: datetime) -> None:
        self.sessions = removal.DoomedSessions(batch, ids)
        self.still = batch.rows(_STILL, ids=self.sessions.ids, cutoff=cutoff)
        self._named = [batch.rows(one, row_id=id) for id in ids for one in (_POINTED_AT, _POOL, _BRANCH_ITEMS, _SYSTEM)]
        self._pools = [batch.rows(_POOLS, row_id=id) for id in ids]

    def messages(self) -> set[str]:
        """The ids of messages that the sessions and their branches name; inherited ones belong to the branch they come from."""
        return {id for rows in self._named for row in rows.result for id in row if id is not None}

    def pools(self) -> list[str]:
        return [*dict.fromkeys(pool for rows in self._pools for (pool,) in rows.result)]


def _remove(work: UnitOfWork, batch: Sequence[str], cutoff: datetime, candidates: set[str]) -> Removed:
    """Delete the sessions of the batch that may still be pruned; add the messages they named to `candidates`."""
    ids = list(batch)
    doomed = _doomed(work, ids, cutoff)
    while ids and len(doomed.still.result) < len(ids):
        ids = [id for (id,) in doomed.still.result]
        doomed = _doomed(work, ids, cutoff)
    candidates |= doomed.messages()
    pools = doomed.pools()
    places = _places(work, pools)
    inside, pools_gone = removal.remove_sessions(work, doomed.sessions)
    gone = Removed()
    gone.rows[sessions.name] = len(ids)
    gone.rows[branches.name] = inside
    gone.rows[progressions.name] = pools_gone
    gone.rows[members.name] = places - _places(work, pools)
    return gone


def _remove_readable(work: UnitOfWork, batch: Sequence[str], cutoff: datetime, candidates: set[str]) -> Removed:
    """`_remove`; if a row of the batch cannot be read or bound again, session by session, so that the other sessions go."""
    with left_alone(work, f"a batch of {len(batch)} from {sessions.name}"):
        return _remove(work, batch, cutoff, candidates)
    gone = Removed()
    for id in batch if len(batch) > 1 else ():
        gone.add(_remove_readable(work, [id], cutoff, candidates))
    return gone


def _doomed(work: UnitOfWork, ids: list[str], cutoff: datetime) -> _Doomed:
    return OF_SESSIONS.locked(work, lambda batch: _Doomed(batch, ids, cutoff), ids=ids)


def _remove_unnamed(work: UnitOfWork, candidates: Iterable[str]) -> Removed:
    gone = Removed()
    ids = [*bindable(_MESSAGES.id, sorted(candidates))]
    for start in range(0, len(ids), _TOGETHER):
        some = ids[start : start + _TOGETHER]
        with work.batch() as batch:
            batch.lock(_LOCK, ids=some)
            deleted = batch.run(_DELETE_UNNAMED, ids=some)
        gone.rows[messages.name] += deleted.result
    return gone


def _places(work: UnitOfWork, pools: Sequence[str]) -> int:
    row = work.row(_COUNT_PLACES, ids=[*bindable(_P.progression_id, pools)])
    return 0 if row is None else int(row[0])


def _ago(work: UnitOfWork, path: str, span: timedelta | int) -> datetime:
    try:
        return work.now() - (span if isinstance(span, timedelta) else timedelta(days=span))
    except OverflowError:
        raise InvalidValue(path, "it reaches back before the year 1.") from None


class _Sessions(Pruning):
    """Sessions that `sessions.prune` deletes: not running, and not updated since the cutoff."""

    table = sessions
    batch = _BATCH
    rows = 2_000  # places of progressions
    follows = messages

    def next_candidates(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        chosen = select(_S.updated_at, _S.id, _in_pool + _in_branches).where(self.goes(cut))
        query = chosen.order_by(_S.updated_at, _S.id).limit(MOST_CANDIDATES)
        if after is not None:
            place = (_S.updated_at, _S.id)
            last = [literal(value, column.type) for value, column in zip(after, place, strict=False)]
            query = query.where(behind(place, last))
        return bindable_rows(work.found(query, self.values(cut), unreadable=OnUnreadable.LEAVE_OUT), {1: _S.id})

    def goes(self, cut: Cut) -> ColumnElement[bool]:
        return and_(_may_go, _S.id.not_in(_latest)) if cut.keep else _may_go

    def values(self, cut: Cut) -> dict[str, Any]:
        return {"cutoff": cut.before} | ({"keep": cut.keep} if cut.keep else {})

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        return count_sessions(work, self.goes(cut), self.values(cut), _readable(self, work, cut))

    def batches(self, found: Sequence[Row]) -> Iterator[Sequence[Row]]:
        batch: list[Row] = []
        places = 0
        for row in found:
            if batch and (len(batch) == self.batch or places + int(row[2]) > self.rows):
                yield batch
                batch, places = [], 0
            batch.append(row)
            places += int(row[2])
        if batch:
            yield batch

    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        if len(found) == 1 and found[0][2] > self.rows:
            shortened = _shorten(work, found[0][1], cut.before, self.rows)
            if shortened is not None:
                shortened.rest, shortened.begun = found, True
                return shortened
        candidates = set[str]()
        gone = _remove(work, [row[1] for row in found], cut.before, candidates)
        gone.followers += sorted(candidates)
        return gone

    def follow(self, work: UnitOfWork, followers: Sequence[Any]) -> Removed:
        return _remove_unnamed(work, followers)


class _Messages(Pruning):
    """Messages that nothing names, older than the cut, or with `any_age` than ORPHAN_GRACE. The `keep` limit is ignored."""

    table = messages

    def __init__(self, *, any_age: bool = False) -> None:
        self._any_age = any_age

    def next_candidates(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        query = select(_MESSAGES.id).where(_orphan).order_by(_MESSAGES.id).limit(MOST_CANDIDATES)
        if after is not None:
            query = query.where(_MESSAGES.id > after[0])
        latest = work.now() - ORPHAN_GRACE
        guard = latest if self._any_age else min(cut.before, latest)
        return bindable_rows(
            work.found(query, {"guard": epoch_us(guard) / 1_000_000}, unreadable=OnUnreadable.LEAVE_OUT), {0: _MESSAGES.id}
        )

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        return Removed(Counter({messages.name: _readable(self, work, cut)}))  # those of `earlier` are named by what goes there

    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        return _remove_unnamed(work, [row[0] for row in found])


class _Exchange(Pruning):
    """Exchange items that were read; unread ones too, once older than `conversations_unread_keep_days`, if that is set."""

    table = exchange_items

    def next_candidates(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        query = select(_I.seq, _I.message_id).where(self._goes(work, cut)).order_by(_I.seq).limit(MOST_CANDIDATES)
        if after is not None:
            query = query.where(_I.seq > after[0])
        return work.found(query, unreadable=OnUnreadable.LEAVE_OUT)

    def _goes(self, work: UnitOfWork, cut: Cut) -> ColumnElement[bool]:
        sent_long_ago = _was_sent_long_ago(work, cut)
        newest = select(_I.seq).order_by(_I.seq.desc()).limit(cut.keep)
        return and_(sent_long_ago, _I.seq.not_in(newest)) if cut.keep else sent_long_ago

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        stay, values = (not_(SESSIONS.goes(cut)), SESSIONS.values(cut)) if SESSIONS in earlier else (true(), {})
        return count_letters(work, self._goes(work, cut), stay, values, _readable(self, work, cut))

    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        gone = Removed()
        seqs = [row[0] for row in found]
        held = select(_I.seq, _I.message_id).where(_I.seq.in_(seqs)).order_by(_I.seq).with_for_update(skip_locked=True)
        rows = work.found(held, unreadable=OnUnreadable.LEAVE_OUT)  # a read item stays read: no recheck
        gone.rows[exchange_items.name] = delete_rows(work, exchange_items, _I.seq.in_([row[0] for row in rows]))
        gone.add(_remove_unnamed(work, [row[1] for row in rows]))
        return gone


def _was_sent_long_ago(work: UnitOfWork, cut: Cut) -> ColumnElement[bool]:
    """Sent before the cut and read by its recipients; or sent longer ago than `conversations_unread_keep_days`."""
    sent_at = func.coalesce(
        type_coerce(_I.sent_at, Float64()),
        select(func.coalesce(type_coerce(_MESSAGES.stored_at, Float64()), _MESSAGES.created_at))
        .where(_MESSAGES.id == _I.message_id)
        .scalar_subquery(),
    )
    gone = and_(sent_at < epoch_us(cut.before) / 1_000_000, _was_read)
    days = work.runtime.settings.conversations_unread_keep_days
    if days is None:
        return gone
    unread = min(cut.before, work.now() - timedelta(days=days))
    return or_(gone, sent_at < epoch_us(unread) / 1_000_000)


def _readable(pruning: Pruning, work: UnitOfWork, cut: Cut) -> int:
    count, last = 0, None
    while found := pruning.next_candidates(work, cut, last):
        count, last = count + len(found), found[-1]
    return count


SESSIONS = _Sessions()
PRUNINGS: tuple[Pruning, ...] = (SESSIONS, _Exchange(), _Messages())
SESSION_PRUNINGS: tuple[Pruning, ...] = (SESSIONS, _Messages(any_age=True))
"""What `sessions.prune` deletes."""


_session, _pool = param("of_session"), progressions.c
_by_session, _by_branch = exists().where(_S.progression_id == _pool.id), exists().where(_B.progression_id == _pool.id)
_all_places = select(func.coalesce(func.max(_P.ord) + 1, 0)).where(_P.progression_id == _pool.id).scalar_subquery()
_of_session = or_(_by_session.where(_S.id == _session), _by_branch.where(_B.session_id == _session))
_of_others = or_(_by_session.where(_S.id != _session), _by_branch.where(_B.session_id != _session))
_own = select(_pool.id, _all_places.label("places"), _pool.folded).where(and_(_of_session, ~_of_others))
_LONGEST = Statement(_own.order_by(_all_places.desc(), _pool.id).limit(1))
_own_places = _own.subquery("own")
_TOTAL = Statement(select(func.coalesce(func.sum(_own_places.c.places), 0)))
_LAST = Statement(select(_P.message_id).where(_P.progression_id == _id, _P.ord >= param("first")))
_DELETE = Statement(delete(members).where(_P.progression_id == _id, _P.ord >= param("first")))


class _LockedSession:
    """A session with its branches, locked as for its deletion, and whether it may still go."""

    def __init__(self, batch: Batch, id: str, cutoff: datetime) -> None:
        self.doomed = removal.DoomedSessions(batch, [id])
        self.still: Pending[list[Row]] = batch.rows(_STILL, ids=[id], cutoff=cutoff)


def _shorten(work: UnitOfWork, id: str, cutoff: datetime, most: int) -> Removed | None:
    """Delete at most `most` last places of the session's longest progression; None if it may not be pruned or is shorter."""
    asked = OF_SESSIONS.locked(work, lambda batch: _LockedSession(batch, id, cutoff), ids=[id])
    _, forks, _ = asked.doomed.branches.found()
    if not asked.still.result or forks:  # forks keep what they inherit, and that is not deleted anyway
        return None
    total, longest = work.row(_TOTAL, of_session=id), work.row(_LONGEST, of_session=id)
    if total is None or longest is None or total[0] <= most:
        return None
    pool, places, folded = longest
    first = max(places - most, 0)
    removed = Removed()
    removed.followers += sorted({message for (message,) in work.rows(_LAST, row_id=pool, first=first)})
    if folded > first:  # written once: the array lags from now on, and shows nothing that is gone
        work.run(SHOW, row_id=pool, upto=0)
    removed.rows[members.name] += work.run(_DELETE, row_id=pool, first=first)
    return removed
