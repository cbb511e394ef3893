"""Erasing conversations: a user's sessions, sessions with forks of their branches, letters, and all messages."""

from collections.abc import Container, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Column, Table, delete, exists, or_, select

from persist.conversations.models import (
    branches,
    exchange_cursors,
    exchange_items,
    members,
    messages,
    progressions,
    sessions,
    transitions,
)
from persist.conversations.storage.deletion import settle
from persist.db.operations.bounded_deletion import Condition, delete_rows
from persist.db.operations.erasing import (
    LINK,
    NAMED,
    OWNER,
    SESSION,
    USER,
    By,
    Elsewhere,
    Equal,
    Erasable,
    Erased,
    Key,
    Lead,
    SelectorPath,
    Values,
    equal,
    followed,
    found_by,
    in_parts,
)
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

_S, _B, _M, _P, _I = sessions.c, branches.c, messages.c, members.c, exchange_items.c
_PART = 500
_NAMED = or_(
    exists().where(_P.message_id == _M.id),
    exists().where(_B.system_msg_id == _M.id),
    exists().where(_S.first_msg_id == _M.id),
    exists().where(_S.last_msg_id == _M.id),
    exists().where(_I.message_id == _M.id),
)
_NAMING = (_I.sender, _I.recipient, exchange_cursors.c.owner, transitions.c.entity_id)
"""Columns that name a session or a branch, also one that is gone."""


_PERSON, _POOL, _MESSAGE = "conversation or branch", "progression", "message"
"""Find letters by who sent or got them, messages by where they are shown, and messages by their id."""


class _OfNobody(Equal):
    """Selects rows that name a session, or a branch that is gone, by the id of it."""

    def __call__(self, values: Values) -> Condition:
        (column,) = self.columns
        return column.in_(values) & ~exists().where(_B.id == column)


class _Sessions(Erasable):
    """Sessions. A message that another user's conversation also shows stays, and is reported."""

    table = sessions
    key = ("id",)
    by = {OWNER: equal(_S.user), USER: equal(_S.user), SESSION: equal(_S.id), NAMED: equal(_S.id)}  # noqa: RUF012  # read only
    further = (
        SelectorPath(SESSION, equal(_B.session_id), (_B.session_id,)),
        *(SelectorPath(by, _OfNobody((column,)), (column,)) for by in (SESSION, _PERSON) for column in _NAMING),
    )
    leading = (
        Lead((_S.id,), partial(followed, otherwise=LINK)),
        Lead((_S.id,), found_by(_PERSON)),
        Lead((_B.session_id,), found_by(_PERSON), (_B.id,)),
        Lead((_S.id,), found_by(_POOL), (_S.progression_id,)),
        Lead((_B.session_id,), found_by(_POOL), (_B.progression_id,)),
        Lead((_S.id,), found_by(_MESSAGE), (_S.first_msg_id,)),
        Lead((_S.id,), found_by(_MESSAGE), (_S.last_msg_id,)),
        Lead((_B.session_id,), found_by(_MESSAGE), (_B.system_msg_id,)),
    )
    survivors = frozenset((messages.name, progressions.name, members.name))
    batch = 10

    def derived(self, work: UnitOfWork, keys: Sequence[Key]) -> list[Key]:
        theirs = select(_B.id).where(_B.session_id.in_([id for (id,) in keys]))
        return self.keys(work, _S.id.in_(select(_B.session_id).where(_B.parent_branch_id.in_(theirs))))

    def made_in(self, table: str, cells: Mapping[str, Any], found: Container[Key], notes: dict[str, str]) -> list[Key]:
        if table != branches.name or not isinstance(cells.get("session_id"), str):
            return []
        session, parent = str(cells["session_id"]), notes.get(str(cells.get("parent_branch_id")))
        notes[str(cells.get("id"))] = session
        return [] if parent is None or (parent,) not in found else [(session,)]

    def written_again(self, work: UnitOfWork, keys: Sequence[Key], elsewhere: Elsewhere) -> Sequence[Key]:
        """Sessions, and branches that are gone, as if they were sessions: letters and statuses name both."""
        found = {*super().written_again(work, keys, elsewhere)}
        _, people = elsewhere.get(exchange_cursors.name, ((), ()))
        for part in in_parts([owner for (owner,) in people], _PART):
            for column in _NAMING:
                found |= {tuple(row) for row in _rows(work, select(column).where(column.in_(part)).distinct())}
        return sorted(found)

    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        return _erase(work, [id for (id,) in keys])


class _WithoutRows(Erasable):
    """Rows that are gone, and that the log or the quarantine assigns to erased conversations."""

    own_streams = False

    def __init__(self, table: Table, key: str, by: By, further: Sequence[SelectorPath] = ()) -> None:
        self.table, self.key, self.by, self.further = table, (key,), by, further

    def find(self, work: UnitOfWork, selector: str, values: Values) -> list[Key]:
        return []

    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        erased, (name,) = Erased(), self.key
        ids = [int(id) if self.table is exchange_items else id for (id,) in keys]
        there = {id for (id,) in _rows(work, select(self.table.c[name]).where(self.table.c[name].in_(ids)).distinct())}
        _elsewhere(erased, self.table, self.key, [id for id in ids if id not in there])
        return erased


class _Messages(_WithoutRows):
    """Messages that no conversation shows any more. Of them there may be rows."""

    def find(self, work: UnitOfWork, selector: str, values: Values) -> list[Key]:
        return Erasable.find(self, work, selector, values) if selector == _MESSAGE else []

    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        erased = Erased()
        _erase_messages(work, erased, [id for (id,) in keys])
        erased.kept.clear()  # those that somebody shows are counted with the conversations that showed them, too
        return erased


def _erase(work: UnitOfWork, ids: list[str]) -> Erased:
    erased = Erased()
    whose = select(_B.id, _B.progression_id, _B.parent_branch_id, _B.system_msg_id).where(_B.session_id.in_(ids))
    _rows(work, whose.order_by(_B.id).with_for_update())
    heads = _rows(
        work,
        select(_S.id, _S.progression_id, _S.first_msg_id, _S.last_msg_id).where(_S.id.in_(ids)).order_by(_S.id).with_for_update(),
    )
    theirs = _rows(work, whose.order_by(_B.id).with_for_update())  # with those that others added until the sessions were locked
    gone = {*ids} - {row[0] for row in heads}
    others = {id for (id,) in _rows(work, select(_B.id).where(_B.id.in_(gone), _B.session_id.not_in(ids)))}
    known, pools = {row[0] for row in theirs}, {row[1] for row in (*theirs, *heads)}
    shared = {
        pool
        for column, owner in ((_B.progression_id, _B.session_id), (_S.progression_id, _S.id))
        for (pool,) in _rows(work, select(column).where(column.in_(pools), owner.not_in(ids)))
    }
    own_pools = sorted(pools - shared)
    candidates = {id for row in heads for id in row[2:]} | {row[3] for row in theirs}
    for part in in_parts(sorted(pools), _PART):
        candidates |= {id for (id,) in _rows(work, select(_P.message_id).where(_P.progression_id.in_(part)).distinct())}
    people = [*(id for id in ids if id not in others), *sorted(known)]
    for part in in_parts(people, _PART):
        letters = _rows(work, select(_I.seq, _I.message_id).where(or_(_I.sender.in_(part), _I.recipient.in_(part))))
        candidates |= {message for _, message in letters}
        _delete(work, erased, exchange_items, _I.seq, [seq for seq, _ in letters])
        erased.rows[exchange_cursors.name] += delete_rows(work, exchange_cursors, exchange_cursors.c.owner.in_(part))
        _elsewhere(erased, exchange_cursors, ("owner",), part)
        changed = _rows(work, select(transitions.c.id).where(transitions.c.entity_id.in_(part)))
        _delete(work, erased, transitions, transitions.c.id, [id for (id,) in changed])
    forks = select(_B.session_id).where(_B.parent_branch_id.in_(known), _B.session_id.not_in(ids)).distinct()
    erased.more = [tuple(row) for row in _rows(work, forks)]
    erased.rows[branches.name] += delete_rows(work, branches, _B.session_id.in_(ids))
    erased.rows[sessions.name] += delete_rows(work, sessions, _S.id.in_(ids))
    for part in in_parts(own_pools, _PART):
        erased.rows[members.name] += delete_rows(work, members, _P.progression_id.in_(part))
        _elsewhere(erased, members, ("progression_id",), part)
        _delete(work, erased, progressions, progressions.c.id, part)
    _erase_messages(work, erased, sorted(candidates - {None}))
    # a former branch of others goes with its last fork, which is an event of the other session
    erased.then = partial(settle, ids=sorted({row[2] for row in theirs if row[2] is not None} - known))
    return erased


def _erase_messages(work: UnitOfWork, erased: Erased, candidates: Sequence[str]) -> None:
    for part in in_parts(candidates, _PART):
        _rows(work, select(_M.id).where(_M.id.in_(part)).order_by(_M.id).with_for_update())
        erased.rows[messages.name] += work.change(delete(messages).where(_M.id.in_(part), ~_NAMED))
        left = {id for (id,) in _rows(work, select(_M.id).where(_M.id.in_(part)))}
        _elsewhere(erased, messages, ("id",), [id for id in part if id not in left])
        if left:
            erased.kept["messages: what is not erased shows them"] += len(left)


def _delete(work: UnitOfWork, erased: Erased, table: Table, column: Column[Any], values: Sequence[Any]) -> None:
    for part in in_parts(values, _PART):
        erased.rows[table.name] += delete_rows(work, table, column.in_(part))
        _elsewhere(erased, table, (str(column.key),), part)


def _elsewhere(erased: Erased, table: Table, key: tuple[str, ...], values: Sequence[Any]) -> None:
    erased.elsewhere.setdefault(table.name, (key, []))[1].extend((value,) for value in values)


def _rows(work: UnitOfWork, query: Any) -> list[Any]:
    return work.found(query, unreadable=OnUnreadable.LEAVE_OUT)


ERASABLES: tuple[Erasable, ...] = (
    _Sessions(),
    _WithoutRows(exchange_items, "seq", {_PERSON: equal(_I.sender, _I.recipient)}),
    _WithoutRows(exchange_cursors, "owner", {_PERSON: equal(exchange_cursors.c.owner)}),
    _WithoutRows(transitions, "id", {_PERSON: equal(transitions.c.entity_id)}),
    _WithoutRows(progressions, "id", {_POOL: equal(progressions.c.id)}),
    _WithoutRows(members, "progression_id", {_POOL: equal(_P.progression_id)}),
    _Messages(
        messages,
        "id",
        {_MESSAGE: equal(_M.id)},
        (
            SelectorPath(_PERSON, equal(_I.sender, _I.recipient), (_I.message_id,)),
            SelectorPath(_POOL, equal(_P.progression_id), (_P.message_id,)),
        ),
    ),
)
