"""What takes the place of cells of conversations that nobody can read, and that others count on."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select

from persist.conversations.models import KNOWN_TYPES, exchange_cursors, exchange_items, members, message_types, progressions
from persist.db.hot import Hot
from persist.db.stand_ins import StandIns
from persist.db.work import Work

_LAST = Hot(select(func.max(exchange_items.c.seq)))


def _empty_array(work: Work, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The members count; doctor folds the array from them."""
    return {"collection": [], "folded": 0}


def _no_message(work: Work, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Places are without gaps, and a member may name a message that is not there."""
    return {"message_id": row["quarantine"]}


def _class_of(work: Work, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Messages refer to it by its number."""
    return {"lion_class": KNOWN_TYPES.get(row["type_id"], f"__unknown__.{row['type_id']}")}


def _last_given(work: Work, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of everybody's row the last number given, so that none is given twice; an owner has read nothing."""
    found = work.row(_LAST) if (row["owner"], row["channel"]) == ("", "") else None
    return {"seq": (found[0] if found else None) or 0}


STAND_INS: StandIns = {
    progressions.c.collection: _empty_array,
    progressions.c.folded: _empty_array,
    members.c.message_id: _no_message,
    message_types.c.lion_class: _class_of,
    exchange_cursors.c.seq: _last_given,
}
