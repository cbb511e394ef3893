"""Exported parts of chats include text that is not folded yet."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import select

from persist.chat.models import deltas, parts
from persist.chat.storage.folding import log_left_unfolded
from persist.chat.storage.stored_json import grown_text, joined_deltas, stored_part
from persist.chat.storage.unfolded_probe import ANY_DELTA
from persist.db.expressions.json_text import stored_text
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.errors import UnreadableRow

_D = deltas.c
_PLACES = {column.name: index for index, column in enumerate(parts.columns)}


FOLDED = deltas
"""The table whose rows are exported as text of their parts."""


def has_deltas(work: UnitOfWork) -> bool:
    """Whether any part has unfolded text."""
    return work.row(ANY_DELTA) is not None


def with_deltas(work: UnitOfWork, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of parts in the published form, with their unfolded text added. Unreadable ones are logged and unchanged."""
    id, data = _PLACES["id"], _PLACES["data_json"]
    deltas_of: dict[str, list[tuple[Any, Any]]] = {}
    wanted = select(_D.part_id, stored_text(_D.seq), stored_text(_D.delta)).where(_D.part_id.in_([row[id] for row in rows]))
    found: Iterable[Any] = work.select(wanted.order_by(_D.part_id, _D.seq))
    for part_id, seq, piece in found:
        deltas_of.setdefault(part_id, []).append((seq, piece))
    folded = []
    for row in rows:
        part_id = row[id]
        try:
            if part_id in deltas_of:
                tail, _ = joined_deltas(part_id, deltas_of[part_id])
                grown = grown_text(part_id, stored_part(part_id, row[data]), tail)
                row = (*row[:data], str(grown), *row[data + 1 :])
        except UnreadableRow as error:
            log_left_unfolded(error)
        folded.append(row)
    return folded
