"""Pruning: old sessions go, and with them exactly what nothing else shows."""

from datetime import datetime, timedelta

from sqlalchemy import and_, bindparam, delete, exists, func, or_, select, type_coerce

from persist.conversations import removal
from persist.conversations.models import branches, exchange_items, members, messages, sessions
from persist.conversations.schemas import PruneReport, Status
from persist.conversations.session_rows import lock_whole
from persist.db.checks import check_flag, check_span
from persist.db.clock import epoch_us
from persist.db.hot import Hot, param
from persist.db.types import Amount, Whole
from persist.db.work import Work
from persist.errors import InvalidValue

_BATCH = 100

_S, _B, _M, _P = sessions.c, branches.c, messages.c, members.c
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
_SYSTEM = Hot(select(_B.system_msg_id).where(_B.session_id == _id))
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


def prune(work: Work, *, keep_days: int, keep_n: int, dry_run: bool, orphan_grace: timedelta) -> PruneReport:
    """See ConvSessions.prune."""
    grace = check_span("orphan_grace", orphan_grace)
    if not check_flag("dry_run", dry_run):
        return _prune(work, keep_days, keep_n, grace)
    trial = work.savepoint()
    try:
        return _prune(work, keep_days, keep_n, grace)
    finally:
        trial.rollback()


def _prune(work: Work, keep_days: int, keep_n: int, grace: timedelta) -> PruneReport:
    cutoff, guard = _ago(work, "keep_days", keep_days), _ago(work, "orphan_grace", grace)
    several = not work.runtime.dialect.one_writer
    victims = [id for (id,) in work.rows(_VICTIMS, keep=keep_n, cutoff=cutoff)]
    sessions_gone = branches_gone = progressions_gone = messages_gone = 0
    for start in range(0, len(victims), _BATCH):
        batch = victims[start : start + _BATCH]
        for id in batch:
            lock_whole(work, id)
        batch = [id for id in batch if work.row(_STILL, row_id=id, cutoff=cutoff) is not None]
        candidates = {message_id for id in batch for message_id in _messages_of(work, id)}
        inside, pools = removal.remove_sessions(work, batch)
        sessions_gone += len(batch)
        branches_gone += inside
        progressions_gone += pools
        for message_id in sorted(candidates):
            if several:
                work.row(_LOCK, row_id=message_id)
            messages_gone += work.run(_DELETE_UNNAMED, row_id=message_id)
    if several:
        work.row(_LOCK_ORPHANS, guard=epoch_us(guard) / 1_000_000)
    messages_gone += work.run(_SWEEP, guard=epoch_us(guard) / 1_000_000)
    return PruneReport(sessions=sessions_gone, branches=branches_gone, progressions=progressions_gone, messages=messages_gone)


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
