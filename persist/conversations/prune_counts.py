"""What a prune of conversations would remove, counted by queries that lock and change nothing.

Each function returns None where only a trial can tell: where a fork is in another session than its branch, since a deletion
copies what such a fork inherits, and where not every row that would go can be read and bound again, since a prune leaves those
that cannot.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, func, not_, or_, select, true, union

from persist.conversations.models import branches, exchange_items, members, messages, progressions, sessions
from persist.db.operations.pruning import Removed
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.conditions import unbindable

Condition = ColumnElement[bool]
Values = Mapping[str, Any]

_S, _B, _P, _I = sessions.c, branches.c, members.c, exchange_items.c
_message, _fork, _parent = messages.alias("counted"), branches.alias("fork"), branches.alias("parent")
_M = _message.c
_in_session = _S.id == _B.session_id


def count_sessions(work: UnitOfWork, go: Condition, values: Values, readable: int) -> Removed | None:
    """The sessions that `go`, with their branches, progressions, and the messages that nothing else names.

    `values`: of the parameters in `go`. `readable`: how many of these sessions can be read.
    """
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
    counted, strange = _counted(
        work,
        values,
        {
            sessions.name: select(_S.id).where(go),
            branches.name: select(_B.id).where(_in_session, go),
            progressions.name: deleted,
            members.name: select(_P.ord).where(_P.progression_id.in_(deleted)),
            messages.name: select(_M.id).where(_M.id.in_(named), ~_is_named(not_(go), true())),
        },
        select(_fork.c.id).where(crossing, exists().where(of_session)).limit(1),
        select(_B.id).where(_in_session, go, or_(*map(unbindable, (_B.id, _B.progression_id, _B.parent_branch_id)))).limit(1),
        select(_S.id).where(go, unbindable(_S.progression_id)).limit(1),
        select(_M.id).where(_M.id.in_(named), unbindable(_M.id)).limit(1),
    )
    return None if strange or counted.rows[sessions.name] != readable else counted


def count_letters(work: UnitOfWork, go: Condition, sessions_stay: Condition, values: Values, readable: int) -> Removed | None:
    """The exchange items that `go`, and the messages that nothing else names once all sessions but those that stay are gone.

    `values`: of the parameters in both conditions. `readable`: how many of these items can be read.
    """
    unnamed = select(_M.id).where(_M.id.in_(select(_I.message_id).where(go)), ~_is_named(sessions_stay, not_(go)))
    counted, strange = _counted(
        work,
        values,
        {exchange_items.name: select(_I.seq).where(go), messages.name: unnamed},
        select(_I.seq).where(go, unbindable(_I.message_id)).limit(1),
    )
    return None if strange or counted.rows[exchange_items.name] != readable else counted


def _is_owned(pool: ColumnElement[Any], among: Condition) -> Condition:
    """One of those `among` the sessions, or a branch of one, has the progression."""
    return or_(exists().where(_S.progression_id == pool, among), exists().where(_B.progression_id == pool, _in_session, among))


def _is_named(sessions_stay: Condition, letters_stay: Condition) -> Condition:
    """A place, a branch, a session or an exchange item that is left names the message. Progressions of nobody are left, too."""
    pool_stays = or_(_is_owned(_P.progression_id, sessions_stay), ~_is_owned(_P.progression_id, true()))
    return or_(
        exists().where(_P.message_id == _M.id, pool_stays),
        exists().where(_B.system_msg_id == _M.id, _in_session, sessions_stay),
        exists().where(_S.first_msg_id == _M.id, sessions_stay),
        exists().where(_S.last_msg_id == _M.id, sessions_stay),
        exists().where(_I.message_id == _M.id, letters_stay),
    )


def _counted(work: UnitOfWork, values: Values, rows: Mapping[str, Select[Any]], *others: Select[Any]) -> tuple[Removed, int]:
    """The numbers of rows of each table, and of all others, by one statement."""
    asked = [select(func.count()).select_from(query.subquery()).scalar_subquery() for query in (*rows.values(), *others)]
    numbers = [int(number) for number in work.found(select(*asked), values)[0]]
    return Removed(Counter(dict(zip(rows, numbers, strict=False)))), sum(numbers[len(rows) :])
