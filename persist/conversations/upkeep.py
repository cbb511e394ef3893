"""Upkeep of conversations, without pruning. Exchange items are not exported: their `seq` orders the whole database."""

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Table,
    Text,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    type_coerce,
    union,
    update,
)

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
from persist.conversations.pruning import IS_NAMED, PRUNINGS
from persist.conversations.repository import Conversations
from persist.conversations.staleness import stale_sessions
from persist.conversations.storage import lineage as pointers
from persist.conversations.storage import progressions as folding
from persist.conversations.storage.deletion import settle
from persist.conversations.storage.lineage import POINTERS
from persist.db.dialects.interface import Problem, Severity
from persist.db.operations import erasing
from persist.db.operations.bounded_deletion import Condition, delete_rows
from persist.db.operations.upkeep import Exported, Rows, Rules, Takeover, Upkeep, the_id
from persist.db.schema.base import floats32, texts
from persist.db.statements.prepared import Statement
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.clock import from_epoch_s
from persist.db.values.json import decode
from persist.errors import InvalidValue

_BATCH = 5_000
_S = sessions.c
_M = messages.c
_P = progressions.c
_MESSAGE_TYPES = message_types.c


def _pointer(name: str, kind: str) -> ColumnElement[Any]:
    """The value of a published metadata key, NULL unless its JSON type is `kind`."""
    text = type_coerce(branches.c.node_metadata, Text())
    there = case((func.json_valid(text) == 1, func.json_type(text, f"$.{name}")))
    return case((there == kind, func.json_extract(text, f"$.{name}")))


def _number_types(takeover: Takeover) -> None:
    """Give known classes their published numbers; another class with a used number gets a new number after the last."""
    found = {path: number for number, path in takeover.rows(select(_MESSAGE_TYPES.type_id, _MESSAGE_TYPES.lion_class))}
    wanted = {path: number for number, path in KNOWN_TYPES.items()}
    last = max([*found.values(), *KNOWN_TYPES])
    changes: dict[int, int] = {}
    for path, number in sorted(found.items(), key=lambda item: item[1]):
        if path in wanted:
            changes[number] = wanted[path]
        elif number in KNOWN_TYPES:
            changes[number] = last = last + 1
    changes = {old: new for old, new in changes.items() if old != new}
    if not changes:
        return
    below = {old: -1 - new for old, new in changes.items()}  # unused numbers, while numbers are swapped
    takeover.run(
        update(message_types).where(_MESSAGE_TYPES.type_id.in_(below)).values(type_id=case(below, value=_MESSAGE_TYPES.type_id))
    )
    takeover.run(update(message_types).where(_MESSAGE_TYPES.type_id < 0).values(type_id=-1 - _MESSAGE_TYPES.type_id))
    count = takeover.run(update(messages).where(_M.lion_class.in_(changes)).values(lion_class=case(changes, value=_M.lion_class)))
    takeover.settle(message_types, "message classes got their published numbers", len(changes))
    takeover.settle(messages, "messages follow the numbers of their classes", count)


def _name_types(takeover: Takeover) -> None:
    """Name class numbers that have no row: reads join `message_types` and would not find their messages."""
    nameless = select(_M.lion_class).where(_M.lion_class.not_in(select(_MESSAGE_TYPES.type_id))).distinct()
    numbers = [number for (number,) in takeover.rows(nameless)]
    if numbers:
        rows = [{"type_id": number, "lion_class": f"__unknown_{number}__"} for number in numbers]
        takeover.connection.execute(insert(message_types), rows)
    takeover.settle(message_types, "numbers without a message class got a name", len(numbers))


def _fill_members(takeover: Takeover) -> None:
    """Write the array of every progression into `progression_members`, one row per place, duplicates included."""
    if takeover.brought(members) or not takeover.brought(progressions):
        return
    query = select(_P.id, type_coerce(_P.collection, Text())).order_by(_P.id)
    found = takeover.connection.execute(query, execution_options={"yield_per": 100})
    batch: list[dict[str, Any]] = []
    unreadable = 0
    for progression_id, text in found:
        ids = _array(text)
        if ids is None:
            unreadable += 1
            continue
        for row in _members(progression_id, ids):
            batch.append(row)
            if len(batch) == _BATCH:
                _insert(takeover, batch)
    _insert(takeover, batch)
    counted = select(func.count()).where(members.c.progression_id == _P.id).scalar_subquery()
    takeover.run(update(progressions).values(folded=counted))
    takeover.notice("progressions.collection", "no array of ids: the progression is empty now, its text stays", unreadable)


def _array(text: object) -> list[Any] | None:
    try:
        ids = decode(text) if isinstance(text, str) else None
    except InvalidValue:
        return None
    return ids if isinstance(ids, list) and all(isinstance(id, str) for id in ids) else None


def _members(progression_id: str, ids: list[Any]) -> Iterator[dict[str, Any]]:
    for place, message_id in enumerate(ids):
        yield {"progression_id": progression_id, "ord": place, "message_id": message_id}


def _insert(takeover: Takeover, batch: list[dict[str, Any]]) -> None:
    if batch:
        takeover.connection.execute(insert(members), batch)
    takeover.moved += len(batch)
    batch.clear()


RULES = Rules(
    values={
        _S.last_message_at: func.coalesce(_S.started_at, _S.created_at),
        _S.updated_at: func.coalesce(_S.last_message_at, _S.ended_at, _S.started_at, _S.created_at),
        branches.c[POINTERS[0]]: _pointer(POINTERS[0], "text"),
        branches.c[POINTERS[1]]: _pointer(POINTERS[1], "integer"),
    },
    always_written=frozenset({transitions.c.reason_code}),
    settle=(_number_types,),
    fill=(_name_types, _fill_members),
)
_B = branches.c
_F = members.c
_TRANSITIONS = transitions.c
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


_I = exchange_items.c
_PART = 500
_NAMING = (_I.sender, _I.recipient, exchange_cursors.c.owner, transitions.c.entity_id)
"""Columns that name a session or a branch, also one that is gone."""
_PERSON, _POOL, _MESSAGE = "conversation or branch", "progression", "message"
"""Find letters by who sent or got them, messages by where they are shown, and messages by their id."""


class _OfNobody(erasing.Equal):
    """Selects rows that name a session, or a branch that is gone, by the id of it."""

    def __call__(self, values: erasing.Values) -> Condition:
        (column,) = self.columns
        return column.in_(values) & ~exists().where(_B.id == column)


class _Sessions(erasing.Erasable):
    """Sessions. A message that another user's conversation also shows stays, and is reported."""

    table = sessions
    key = ("id",)
    by = {  # noqa: RUF012  # read only
        **dict.fromkeys((erasing.OWNER, erasing.USER), erasing.equal(_S.user)),
        **dict.fromkeys((erasing.SESSION, erasing.NAMED), erasing.equal(_S.id)),
    }
    further = (
        erasing.SelectorPath(erasing.SESSION, erasing.equal(_B.session_id), (_B.session_id,)),
        *(erasing.SelectorPath(by, _OfNobody((column,)), (column,)) for by in (erasing.SESSION, _PERSON) for column in _NAMING),
    )
    leading = (
        erasing.Lead((_S.id,), partial(erasing.followed, otherwise=erasing.LINK)),
        erasing.Lead((_S.id,), erasing.found_by(_PERSON)),
        erasing.Lead((_B.session_id,), erasing.found_by(_PERSON), (_B.id,)),
        erasing.Lead((_S.id,), erasing.found_by(_POOL), (_S.progression_id,)),
        erasing.Lead((_B.session_id,), erasing.found_by(_POOL), (_B.progression_id,)),
        erasing.Lead((_S.id,), erasing.found_by(_MESSAGE), (_S.first_msg_id,)),
        erasing.Lead((_S.id,), erasing.found_by(_MESSAGE), (_S.last_msg_id,)),
        erasing.Lead((_B.session_id,), erasing.found_by(_MESSAGE), (_B.system_msg_id,)),
    )
    survivors = frozenset((messages.name, progressions.name, members.name))
    batch = 10

    def derived(self, work: UnitOfWork, keys: Sequence[erasing.Key]) -> list[erasing.Key]:
        theirs = select(_B.id).where(_B.session_id.in_([id for (id,) in keys]))
        return self.keys(work, _S.id.in_(select(_B.session_id).where(_B.parent_branch_id.in_(theirs))))

    def made_in(
        self, table: str, cells: Mapping[str, Any], found: Container[erasing.Key], notes: dict[str, str]
    ) -> list[erasing.Key]:
        if table != branches.name or not isinstance(cells.get("session_id"), str):
            return []
        session, parent = str(cells["session_id"]), notes.get(str(cells.get("parent_branch_id")))
        notes[str(cells.get("id"))] = session
        return [] if parent is None or (parent,) not in found else [(session,)]

    def written_again(self, work: UnitOfWork, keys: Sequence[erasing.Key], elsewhere: erasing.Elsewhere) -> Sequence[erasing.Key]:
        """Sessions, and branches that are gone, as if they were sessions: letters and statuses name both."""
        found = {*super().written_again(work, keys, elsewhere)}
        _, people = elsewhere.get(exchange_cursors.name, ((), ()))
        for part in erasing.in_parts([owner for (owner,) in people], _PART):
            for column in _NAMING:
                found |= {tuple(row) for row in _rows(work, select(column).where(column.in_(part)).distinct())}
        return sorted(found)

    def erase(self, work: UnitOfWork, keys: Sequence[erasing.Key]) -> erasing.Erased:
        return _erase(work, [id for (id,) in keys])


class _WithoutRows(erasing.Erasable):
    """Rows that are gone, and that the log or the quarantine assigns to erased conversations."""

    own_streams = False

    def __init__(self, table: Table, key: str, by: erasing.By, further: Sequence[erasing.SelectorPath] = ()) -> None:
        self.table, self.key, self.by, self.further = table, (key,), by, further

    def find(self, work: UnitOfWork, selector: str, values: erasing.Values) -> list[erasing.Key]:
        return []

    def erase(self, work: UnitOfWork, keys: Sequence[erasing.Key]) -> erasing.Erased:
        erased, (name,) = erasing.Erased(), self.key
        ids = [int(id) if self.table is exchange_items else id for (id,) in keys]
        there = {id for (id,) in _rows(work, select(self.table.c[name]).where(self.table.c[name].in_(ids)).distinct())}
        _elsewhere(erased, self.table, self.key, [id for id in ids if id not in there])
        return erased


class _Messages(_WithoutRows):
    """Messages that no conversation shows any more. Of them there may be rows."""

    def find(self, work: UnitOfWork, selector: str, values: erasing.Values) -> list[erasing.Key]:
        return erasing.Erasable.find(self, work, selector, values) if selector == _MESSAGE else []

    def erase(self, work: UnitOfWork, keys: Sequence[erasing.Key]) -> erasing.Erased:
        erased = erasing.Erased()
        _erase_messages(work, erased, [id for (id,) in keys])
        erased.kept.clear()  # those that somebody shows are counted with the conversations that showed them, too
        return erased


def _erase(work: UnitOfWork, ids: list[str]) -> erasing.Erased:
    erased = erasing.Erased()
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
    for part in erasing.in_parts(sorted(pools), _PART):
        candidates |= {id for (id,) in _rows(work, select(_F.message_id).where(_F.progression_id.in_(part)).distinct())}
    people = [*(id for id in ids if id not in others), *sorted(known)]
    for part in erasing.in_parts(people, _PART):
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
    for part in erasing.in_parts(own_pools, _PART):
        erased.rows[members.name] += delete_rows(work, members, _F.progression_id.in_(part))
        _elsewhere(erased, members, ("progression_id",), part)
        _delete(work, erased, progressions, progressions.c.id, part)
    _erase_messages(work, erased, sorted(candidates - {None}))
    # a former branch of others goes with its last fork, which is an event of the other session
    erased.then = partial(settle, ids=sorted({row[2] for row in theirs if row[2] is not None} - known))
    return erased


def _erase_messages(work: UnitOfWork, erased: erasing.Erased, candidates: Sequence[str]) -> None:
    for part in erasing.in_parts(candidates, _PART):
        _rows(work, select(_M.id).where(_M.id.in_(part)).order_by(_M.id).with_for_update())
        erased.rows[messages.name] += work.change(delete(messages).where(_M.id.in_(part), ~IS_NAMED))
        left = {id for (id,) in _rows(work, select(_M.id).where(_M.id.in_(part)))}
        _elsewhere(erased, messages, ("id",), [id for id in part if id not in left])
        if left:
            erased.kept["messages: what is not erased shows them"] += len(left)


def _delete(work: UnitOfWork, erased: erasing.Erased, table: Table, column: Column[Any], values: Sequence[Any]) -> None:
    for part in erasing.in_parts(values, _PART):
        erased.rows[table.name] += delete_rows(work, table, column.in_(part))
        _elsewhere(erased, table, (str(column.key),), part)


def _elsewhere(erased: erasing.Erased, table: Table, key: tuple[str, ...], values: Sequence[Any]) -> None:
    erased.elsewhere.setdefault(table.name, (key, []))[1].extend((value,) for value in values)


def _rows(work: UnitOfWork, query: Any) -> list[Any]:
    return work.found(query, unreadable=OnUnreadable.LEAVE_OUT)


_ERASABLES: tuple[erasing.Erasable, ...] = (
    _Sessions(),
    _WithoutRows(exchange_items, "seq", {_PERSON: erasing.equal(_I.sender, _I.recipient)}),
    _WithoutRows(exchange_cursors, "owner", {_PERSON: erasing.equal(exchange_cursors.c.owner)}),
    _WithoutRows(transitions, "id", {_PERSON: erasing.equal(transitions.c.entity_id)}),
    _WithoutRows(progressions, "id", {_POOL: erasing.equal(progressions.c.id)}),
    _WithoutRows(members, "progression_id", {_POOL: erasing.equal(_F.progression_id)}),
    _Messages(
        messages,
        "id",
        {_MESSAGE: erasing.equal(_M.id)},
        (
            erasing.SelectorPath(_PERSON, erasing.equal(_I.sender, _I.recipient), (_I.message_id,)),
            erasing.SelectorPath(_POOL, erasing.equal(_F.progression_id), (_F.message_id,)),
        ),
    ),
)
UPKEEP = Upkeep(
    prunings=PRUNINGS,
    erasables=_ERASABLES,
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
                    or_(_TRANSITIONS.entity_id == the_id(), _TRANSITIONS.entity_id.in_(_branch_ids)),
                    (_TRANSITIONS.created_at, _TRANSITIONS.id),
                    shared=True,
                ),
            ),
        ),
    ),
    checkup=checkup,
    shapes={messages.c.created_at: _seconds, messages.c.embedding: floats32, progressions.c.collection: texts},
    stand_ins={
        messages.c.stored_at: lambda work, row: {"stored_at": None},  # older messages have none, and `created_at` counts
        progressions.c.collection: _empty_array,
        progressions.c.folded: _empty_array,
        members.c.message_id: _no_message,
        message_types.c.lion_class: _class_of,
        exchange_cursors.c.seq: _last_given,
    },
    adoption=RULES,
)
