"""Replacement values for unreadable cells of conversations in rows that other rows depend on."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select

from persist.conversations.models import KNOWN_TYPES, exchange_cursors, exchange_items, members, message_types, progressions
from persist.db.statements.prepared import Statement
from persist.db.transactions.stand_ins import StandIns
from persist.db.transactions.unit_of_work import UnitOfWork

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


STAND_INS: StandIns = {
    progressions.c.collection: _empty_array,
    progressions.c.folded: _empty_array,
    members.c.message_id: _no_message,
    message_types.c.lion_class: _class_of,
    exchange_cursors.c.seq: _last_given,
}
