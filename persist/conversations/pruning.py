"""Pruning: old sessions go, and with them exactly what nothing else shows."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, delete, exists, func, or_, select, tuple_, type_coerce

from persist.conversations import removal
from persist.conversations.locking import lock_whole
from persist.conversations.models import branches, exchange_cursors, exchange_items, members, messages, progressions, sessions
from persist.conversations.schemas import PruneReport, Status
from persist.db.checks import check_flag, check_span
from persist.db.clock import epoch_us
from persist.db.hot import Hot, Row, param
from persist.db.pruning import LOOK, Cut, Pruning, Removed, delete_rows
from persist.db.readable import bindable
from persist.db.spoilt import Spoilt
from persist.db.trial import undone
from persist.db.types import Amount, Whole
from persist.db.work import Work
from persist.errors import InvalidValue

_BATCH = 100
_MOST_PLACES = 5_000
"""Of the conversations that go in one transaction, unless a single one has more."""
ORPHAN_GRACE = timedelta(days=1)
"""How long a message that nothing names is left alone: it may be about to be named."""

_S, _B, _M, _P, _I = sessions.c, branches.c, messages.c, members.c, exchange_items.c
_latest = select(_S.id).order_by(_S.updated_at.desc(), _S.id.desc()).limit(bindparam("keep", type_=Whole()))
_may_go = and_(or_(_S.status.is_(None), _S.status != Status.RUNNING), _S.updated_at < param("cutoff"))
_VICTIMS = Hot(select(_S.id).where(_may_go, _S.id.not_in(_latest)).order_by(_S.updated_at, _S.id))
_id = param("row_id")
_STILL = Hot(select(_S.id).where(_S.id == _id, _may_go).with_for_update())
_POINTED_AT = Hot(select(_S.first_msg_id, _S.last_msg_id).where(_S.id == _id))
_POOL = Hot(select(_P.message_id).join(sessions, _S.progression_id == _P.progression_id).where(_S.id == _id).distinct())
_BRANCH_ITEMS = Hot(
    select(_P.message_id).join(branches, _B.progression_id == _P.progression_id).where(_B.session_id == _id).distinct()
)
_POOLS = Hot(select(_S.progression_id).where(_S.id == _id).union(select(_B.progression_id).where(_B.session_id == _id)))
_COUNT_PLACES = Hot(select(func.count()).where(_P.progression_id == _id))
_SYSTEM = Hot(select(_B.system_msg_id).where(_B.session_id == _id))
# places are counted by the last one, which an index leads to
_in_pool = select(func.coalesce(func.max(_P.ord) + 1, 0)).where(_P.progression_id == _S.progression_id).scalar_subquery()
_in_branch = select(func.coalesce(func.max(_P.ord) + 1, 0)).where(_P.progression_id == _B.progression_id).scalar_subquery()
_in_branches = select(func.coalesce(func.sum(_in_branch), 0)).where(_B.session_id == _S.id).scalar_subquery()
_named = or_(
    exists().where(_P.message_id == _M.id),
    exists().where(_B.system_msg_id == _M.id),
    exists().where(_S.first_msg_id == _M.id),
    exists().where(_S.last_msg_id == _M.id),
    exists().where(exchange_items.c.message_id == _M.id),
)
_DELETE_UNNAMED = Hot(delete(messages).where(_M.id == _id, ~_named))
_orphan = and_(func.coalesce(type_coerce(_M.stored_at, Amount()), _M.created_at) < param("guard"), ~_named)
_SWEEP = Hot(delete(messages).where(_orphan))
# Where several write at once, a DELETE does not see who came to name a message while it waited for it; the next one does.
_LOCK = Hot(select(_M.id).where(_M.id == _id).with_for_update())
_LOCK_ORPHANS = Hot(select(func.count()).select_from(select(_M.id).where(_orphan).with_for_update().subquery()))

_reader, _mark = exchange_cursors.alias("reader"), exchange_cursors.alias("mark")
_has_read = (
    exists()
    .where(_mark.c.owner == _reader.c.owner, _mark.c.channel == func.coalesce(_I.channel, ""), _mark.c.seq >= _I.seq)
    .correlate(_reader, exchange_items)  # which are two levels up, where nothing is looked for unasked
)
_of_all = and_(_I.recipient.is_(None), _reader.c.owner != "", _reader.c.owner != _I.sender)
_was_read = or_(
    exists().where(_reader.c.owner == _I.recipient, _has_read),
    exists().where(_of_all, _has_read) & ~exists().where(_of_all, ~_has_read),
)
"""Its recipient read it; one to all, every owner that ever read anything, and at least one did."""


def prune(work: Work, *, keep_days: int, keep_n: int, dry_run: bool, orphan_grace: timedelta) -> PruneReport:
    """See ConvSessions.prune."""
    grace = check_span("orphan_grace", orphan_grace)
    if not check_flag("dry_run", dry_run):
        return _prune(work, keep_days, keep_n, grace)
    with undone(work):
        return _prune(work, keep_days, keep_n, grace)


def _prune(work: Work, keep_days: int, keep_n: int, grace: timedelta) -> PruneReport:
    cutoff, guard = _ago(work, "keep_days", keep_days), _ago(work, "orphan_grace", grace)
    several = not work.runtime.dialect.one_writer
    victims = [*bindable(_S.id, (id for (id,) in work.rows(_VICTIMS, keep=keep_n, cutoff=cutoff)))]
    gone, candidates = Removed(), set[str]()
    for start in range(0, len(victims), _BATCH):
        gone.add(_remove(work, victims[start : start + _BATCH], cutoff, candidates))
    gone.add(_remove_unnamed(work, candidates))  # after all that others lock before messages
    if several:
        work.row(_LOCK_ORPHANS, guard=epoch_us(guard) / 1_000_000)
    gone.rows[messages.name] += work.run(_SWEEP, guard=epoch_us(guard) / 1_000_000)
    return PruneReport(**{table.name: gone.rows[table.name] for table in (sessions, branches, progressions, messages)})


def _remove(work: Work, batch: Sequence[str], cutoff: datetime, candidates: set[str]) -> Removed:
    """Those of the sessions that may go still; the messages that may go with them become candidates."""
    lock_whole(work, batch)
    batch = [id for id in batch if work.row(_STILL, row_id=id, cutoff=cutoff) is not None]
    candidates.update(message_id for id in batch for message_id in _messages_of(work, id))
    pools = [pool for id in batch for (pool,) in work.rows(_POOLS, row_id=id)]
    places = _places(work, pools)
    inside, pools_gone = removal.remove_sessions(work, batch)
    gone = Removed()
    gone.rows[sessions.name] = len(batch)
    gone.rows[branches.name] = inside
    gone.rows[progressions.name] = pools_gone
    gone.rows[members.name] = places - _places(work, pools)
    return gone


def _remove_unnamed(work: Work, candidates: Iterable[str]) -> Removed:
    """Those of the messages that nothing names."""
    gone = Removed()
    for message_id in bindable(_M.id, sorted(candidates)):
        if not work.runtime.dialect.one_writer:
            work.row(_LOCK, row_id=message_id)
        gone.rows[messages.name] += work.run(_DELETE_UNNAMED, row_id=message_id)
    return gone


def _places(work: Work, pools: Sequence[str]) -> int:
    """How many places these progressions have in all."""
    counted = [work.row(_COUNT_PLACES, row_id=pool) for pool in set(pools)]
    return sum(row[0] for row in counted if row is not None)


def _ago(work: Work, path: str, span: timedelta | int) -> datetime:
    try:
        return work.now() - (span if isinstance(span, timedelta) else timedelta(days=span))
    except OverflowError:
        raise InvalidValue(path, "it reaches back before the year 1.") from None


def _messages_of(work: Work, session_id: str) -> set[str]:
    """What a session and its branches name, by themselves; what they inherit is named where it comes from."""
    named = set()
    for statement in (_POINTED_AT, _POOL, _BRANCH_ITEMS, _SYSTEM):
        for row in work.rows(statement, row_id=session_id):
            named |= {message_id for message_id in row if message_id is not None}
    return named


class _Sessions(Pruning):
    """Sessions as `sessions.prune` takes them: those that were not updated for long, and do not run."""

    table = sessions
    batch = _BATCH

    def look(self, work: Work, cut: Cut, after: Row | None) -> list[Row]:
        query = select(_S.updated_at, _S.id, _in_pool + _in_branches).where(_may_go).order_by(_S.updated_at, _S.id).limit(LOOK)
        if cut.keep:
            query = query.where(_S.id.not_in(_latest))
        if after is not None:
            query = query.where(tuple_(_S.updated_at, _S.id) > tuple_(*after[:2]))
        values = {"cutoff": cut.before} | ({"keep": cut.keep} if cut.keep else {})
        return work.found(query, values, spoilt=Spoilt.LEAVE_OUT)

    def batches(self, found: Sequence[Row]) -> Iterator[Sequence[Row]]:
        batch: list[Row] = []
        places = 0
        for row in found:
            if batch and (len(batch) == self.batch or places + int(row[2]) > _MOST_PLACES):
                yield batch
                batch, places = [], 0
            batch.append(row)
            places += int(row[2])
        if batch:
            yield batch

    def remove(self, work: Work, cut: Cut, found: Sequence[Row]) -> Removed:
        candidates = set[str]()
        gone = _remove(work, [row[1] for row in found], cut.before, candidates)
        gone.followers += sorted(candidates)
        return gone

    def follow(self, work: Work, followers: Sequence[Any]) -> Removed:
        return _remove_unnamed(work, followers)


class _Messages(Pruning):
    """Messages that nothing names. `keep` does not count them; one that just came may be about to be named.

    Those of the age that is asked for; with `any_age` all but those that just came.
    """

    table = messages

    def __init__(self, *, any_age: bool = False) -> None:
        self._any_age = any_age

    def look(self, work: Work, cut: Cut, after: Row | None) -> list[Row]:
        query = select(_M.id).where(_orphan).order_by(_M.id).limit(LOOK)
        if after is not None:
            query = query.where(_M.id > after[0])
        latest = work.now() - ORPHAN_GRACE
        guard = latest if self._any_age else min(cut.before, latest)
        return work.found(query, {"guard": epoch_us(guard) / 1_000_000}, spoilt=Spoilt.LEAVE_OUT)

    def remove(self, work: Work, cut: Cut, found: Sequence[Row]) -> Removed:
        return _remove_unnamed(work, [row[0] for row in found])


class _Exchange(Pruning):
    """What was sent and read; and, where a setting says after how many days, what was not."""

    table = exchange_items

    def look(self, work: Work, cut: Cut, after: Row | None) -> list[Row]:
        query = select(_I.seq, _I.message_id).where(_was_sent_long_ago(work, cut)).order_by(_I.seq).limit(LOOK)
        if cut.keep:
            query = query.where(_I.seq.not_in(select(_I.seq).order_by(_I.seq.desc()).limit(cut.keep)))
        if after is not None:
            query = query.where(_I.seq > after[0])
        return work.found(query, spoilt=Spoilt.LEAVE_OUT)

    def remove(self, work: Work, cut: Cut, found: Sequence[Row]) -> Removed:
        gone = Removed()
        seqs = [row[0] for row in found]
        held = select(_I.seq, _I.message_id).where(_I.seq.in_(seqs)).order_by(_I.seq).with_for_update(skip_locked=True)
        rows = work.found(held, spoilt=Spoilt.LEAVE_OUT)  # what is read stays read, so there is no second look
        gone.rows[exchange_items.name] = delete_rows(work, exchange_items, _I.seq.in_([row[0] for row in rows]))
        gone.add(_remove_unnamed(work, [row[1] for row in rows]))
        return gone


def _was_sent_long_ago(work: Work, cut: Cut) -> ColumnElement[bool]:
    """Sent before the cut and read by whom it is for; or unread for longer than the setting says."""
    sent_at = func.coalesce(
        type_coerce(_I.sent_at, Amount()),
        select(func.coalesce(type_coerce(_M.stored_at, Amount()), _M.created_at)).where(_M.id == _I.message_id).scalar_subquery(),
    )
    gone = and_(sent_at < epoch_us(cut.before) / 1_000_000, _was_read)
    days = work.runtime.settings.conversations_unread_keep_days
    if days is None:
        return gone
    unread = min(cut.before, work.now() - timedelta(days=days))
    return or_(gone, sent_at < epoch_us(unread) / 1_000_000)


PRUNINGS: tuple[Pruning, ...] = (_Sessions(), _Exchange(), _Messages())
AS_A_VERB: tuple[Pruning, ...] = (_Sessions(), _Messages(any_age=True))
"""What `sessions.prune` takes."""
