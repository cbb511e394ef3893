"""Upkeep of conversations: what is pruned by age and what of them is a person's is in files of its own.

An export holds a conversation's branches, their progressions and every message that these name; exchange items are left out:
their `seq` orders the whole database. The doctor names stale running sessions, wrong fork pointers, and arrays that lag behind
their members.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import func, or_, select, union

from persist.conversations.adopting import RULES
from persist.conversations.erasing import ERASABLES
from persist.conversations.models import (
    KNOWN_TYPES,
    branches,
    exchange_cursors,
    exchange_items,
    members,
    message_types,
    messages,
    progressions,
    sessions,
    transitions,
)
from persist.conversations.pruning import PRUNINGS
from persist.conversations.repository import Conversations
from persist.conversations.staleness import stale_sessions
from persist.conversations.storage import fork_pointers as pointers
from persist.conversations.storage import progression_folding as folding
from persist.db.dialects.findings import Problem, Severity
from persist.db.operations.exporting import Exported, Rows, the_id
from persist.db.operations.upkeep import Upkeep
from persist.db.schema.shapes import floats32, texts
from persist.db.statements.prepared import Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.clock import from_epoch_s
from persist.errors import InvalidValue

_B, _F, _M, _P, _S, _T = branches.c, members.c, messages.c, progressions.c, sessions.c, transitions.c

_branch_ids = select(_B.id).where(_B.session_id == the_id())
_progressions = union(
    select(_S.progression_id).where(_S.id == the_id()), select(_B.progression_id).where(_B.session_id == the_id())
)
_named = union(
    select(_F.message_id).where(_F.progression_id.in_(_progressions)),
    select(_S.first_msg_id).where(_S.id == the_id()),
    select(_S.last_msg_id).where(_S.id == the_id()),
    select(_B.system_msg_id).where(_B.session_id == the_id()),
)


_places = select(func.coalesce(func.max(_F.ord) + 1, 0)).where(_F.progression_id == _P.id).scalar_subquery()
_LAGGING = select(_P.id).where(_P.folded != _places).order_by(_P.id)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """Yield running sessions silent for more than a day, fork pointers that have no effect, and lagging arrays."""
    for session in stale_sessions(Conversations(work), now=work.now()):
        since = "nobody knows since when" if session.started_at is None else f"since {session.started_at:%Y-%m-%d %H:%M} UTC"
        message = f"it says running, {since}; persist conversations doctor ends it."
        yield Problem("session_stale", Severity.WARNING, f"conversation {session.id}", message)
    for branch, why, mends in pointers.astray(work):
        repair = partial(pointers.adopt, id=branch.id) if mends else None
        yield Problem("branch_pointers", Severity.WARNING, f"branch {branch.id}", why, repair)
    lagging = [id for (id,) in work.found(_LAGGING, unreadable=OnUnreadable.LEAVE_OUT) if not folding.folds_at_close(work, id)]
    if lagging:
        message = f"progressions whose published array lags behind the members, which are what counts: {len(lagging):,}."
        yield Problem("progressions_lagging", Severity.INFO, "table progressions", message, partial(_fold, ids=lagging))


def _fold(work: UnitOfWork, *, ids: Sequence[str]) -> None:
    for id in ids:
        folding.fold(work, id)


def _seconds(value: float) -> str | None:
    """Checks a message's instant, which is stored as the number its runtime gave."""
    try:
        from_epoch_s(value)
    except InvalidValue:
        return "no instant"
    return None


_LAST = Statement(select(func.max(exchange_items.c.seq)))


def _empty_array(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """An empty array: members are the source of truth, and doctor folds the array from them."""
    return {"collection": [], "folded": 0}


def _no_message(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The quarantine id as message id: places have no gaps, and a member may name a message that does not exist."""
    return {"message_id": row["quarantine"]}


def _class_of(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A class path for the row's number, by which messages refer to it."""
    return {"lion_class": KNOWN_TYPES.get(row["type_id"], f"__unknown__.{row['type_id']}")}


def _last_given(work: UnitOfWork, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The highest seq in use for the row with owner '', so that none is given twice; 0 (nothing read) for an owner."""
    found = work.row(_LAST) if (row["owner"], row["channel"]) == ("", "") else None
    return {"seq": (found[0] if found else None) or 0}


UPKEEP = Upkeep(
    prunings=PRUNINGS,
    erasables=ERASABLES,
    exports=(
        Exported(
            "conversation",
            _S.id,
            (
                Rows(
                    message_types,
                    message_types.c.type_id.in_(select(_M.lion_class).where(_M.id.in_(_named))),
                    (message_types.c.type_id,),
                    shared=True,
                ),
                Rows(messages, _M.id.in_(_named), (_M.id,), shared=True),
                Rows(progressions, _P.id.in_(_progressions), (_P.id,)),
                Rows(members, _F.progression_id.in_(_progressions), (_F.progression_id, _F.ord)),
                Rows(sessions, _S.id == the_id(), (_S.id,)),
                Rows(branches, _B.session_id == the_id(), (_B.created_at, _B.id)),
                Rows(  # status transitions outlive the session
                    transitions,
                    or_(_T.entity_id == the_id(), _T.entity_id.in_(_branch_ids)),
                    (_T.created_at, _T.id),
                    shared=True,
                ),
            ),
        ),
    ),
    checkup=checkup,
    shapes={
        messages.c.created_at: _seconds,
        messages.c.embedding: floats32,
        progressions.c.collection: texts,
    },
    stand_ins={
        progressions.c.collection: _empty_array,
        progressions.c.folded: _empty_array,
        members.c.message_id: _no_message,
        message_types.c.lion_class: _class_of,
        exchange_cursors.c.seq: _last_given,
    },
    adoption=RULES,
)
