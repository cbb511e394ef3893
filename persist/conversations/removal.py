"""Deleting branches and sessions so that nothing a survivor shows is lost.

A fork that outlives its parent gets what it inherited as its own, and no longer has a parent. Progressions go when no
session or branch owns them any more; messages stay.

What is inherited is read before the parents go; the forks change after that, when nobody who goes shares their progressions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, exists, null, or_, select, update

from persist.conversations import lineage
from persist.conversations.branch_rows import COLUMNS, branch_value
from persist.conversations.membership import add_progression, member_ids, replace
from persist.conversations.models import branches, messages, progressions, sessions
from persist.conversations.schemas import Branch
from persist.db.hot import Hot, param
from persist.db.work import Work
from persist.errors import Conflict

_S, _B, _P = sessions.c, branches.c, progressions.c
_id = param("row_id")
_MESSAGE = Hot(select(messages.c.id).where(messages.c.id == _id))
_FORKS = Hot(select(*COLUMNS).where(_B.parent_branch_id == _id).with_for_update())
_OF_SESSION = Hot(select(_B.id).where(_B.session_id == _id).with_for_update())
_BRANCH_POOL = Hot(select(_B.progression_id).where(_B.id == _id))
_SESSION_POOL = Hot(select(_S.progression_id).where(_S.id == _id))
_LOCK_POOL = Hot(select(_P.id).where(_P.id == _id).with_for_update())
_of_others = or_(
    exists().where(_B.progression_id == _P.id, _B.id != param("branch")),
    exists().where(_S.progression_id == _P.id),
)
_SHARED = Hot(select(_P.id).where(_P.id == _id, _of_others))
_STAND_ALONE = Hot(
    update(branches)
    .where(_B.id == _id)
    .values(progression_id=param("pool"), node_metadata=param("value"), parent_branch_id=null(), forked_at_ord=null())
)
_DELETE_BRANCH = Hot(delete(branches).where(_B.id == _id))
_DELETE_SESSION = Hot(delete(sessions).where(_S.id == _id))
_owned = or_(exists().where(_B.progression_id == _P.id), exists().where(_S.progression_id == _P.id))
_DELETE_POOL = Hot(delete(progressions).where(_P.id == _id, ~_owned))


def remove_sessions(work: Work, ids: Sequence[str]) -> tuple[int, int]:
    """Delete these with their branches; how many branches and progressions went."""
    inside = [branch_id for id in ids for (branch_id,) in work.rows(_OF_SESSION, row_id=id)]
    gone = remove_branches(work, inside)
    pools = [pool for id in ids for (pool,) in work.rows(_SESSION_POOL, row_id=id)]
    for id in ids:
        work.run(_DELETE_SESSION, row_id=id)
    return len(inside), gone + remove_unowned(work, pools)


def remove_branches(work: Work, ids: Sequence[str]) -> int:
    """Delete these branches; how many progressions went with them."""
    victims = set(ids)
    forks = [branch_value(row) for id in ids for row in work.rows(_FORKS, row_id=id)]
    pools = [pool for id in ids for (pool,) in work.rows(_BRANCH_POOL, row_id=id)]
    heirs = [(fork, lineage.item_ids(work, fork.id, end=fork.forked_at_ord or 0)) for fork in forks if fork.id not in victims]
    for id in ids:
        work.run(_DELETE_BRANCH, row_id=id)
    for fork, inherited in heirs:
        _stand_alone(work, fork, inherited)
    return remove_unowned(work, pools)


def remove_unowned(work: Work, pools: Sequence[str]) -> int:
    """Delete those of these progressions that no session or branch owns; how many."""
    return sum(work.run(_DELETE_POOL, row_id=pool) for pool in dict.fromkeys(pools))


def check_pointers(work: Work, columns: Mapping[str, Any]) -> None:
    """Conflict where a session would point at a message that does not exist."""
    for name in ("first_msg_id", "last_msg_id"):
        message_id = columns.get(name)
        if message_id is not None and work.row(_MESSAGE, row_id=message_id) is None:
            raise Conflict(f"There is no message {message_id!r} for {name} to point at.", constraint=f"fk_sessions_{name}")


def _stand_alone(work: Work, fork: Branch, inherited: Sequence[str]) -> None:
    """What it inherited becomes its own, in a progression of its own where others show the one it has."""
    pool = fork.progression_id
    work.row(_LOCK_POOL, row_id=pool)  # so that what is being recorded now is among its members
    items = [*inherited, *member_ids(work, pool)]
    if work.row(_SHARED, row_id=pool, branch=fork.id) is None:
        replace(work, pool, items)
    else:
        pool = work.runtime.ids.mint("prg")
        add_progression(work, pool, items)
    metadata = {key: value for key, value in (fork.node_metadata or {}).items() if key not in lineage.POINTERS}
    work.run(_STAND_ALONE, row_id=fork.id, pool=pool, value=work.json("node_metadata", metadata))
