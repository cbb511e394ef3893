"""What an export of a chat session holds, and parts as a reader sees them: their tails folded in."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import select

from persist.chat.leftovers import ANY_PIECES
from persist.chat.models import deltas, messages, parts, prompts, sessions, step_usage
from persist.chat.stored import grown_text, stored_part, stored_tail
from persist.chat.tails import tell
from persist.db.exporting import Exported, Rows, of_row, the_id
from persist.db.wire import stored_text
from persist.db.work import Work
from persist.errors import UnreadableRow

_D, _M, _P, _U = deltas.c, messages.c, parts.c, step_usage.c
_digest = _M.metadata_json["system_prompt_digest"].as_string()
_PLACES = {column.name: index for index, column in enumerate(parts.columns)}

SESSION = Exported(
    "chat session",
    sessions.c.id,
    (
        Rows(
            prompts,
            prompts.c.digest.in_(select(_digest).where(_M.session_id == the_id())),
            (prompts.c.digest,),
            shared=True,
        ),
        Rows(sessions, sessions.c.id == the_id(), (sessions.c.id,)),
        Rows(
            messages,
            _M.session_id == the_id(),
            (_M.created_at, _M.id),
            then=(
                Rows(parts, _P.message_id == of_row(), (_P.index, _P.id)),
                Rows(step_usage, _U.message_id == of_row(), (_U.step,)),
            ),
        ),
    ),
)
"""Not whose turn runs, and not its children."""

FOLDED = deltas
"""The table whose rows an export shows inside of the parts."""


def has_tails(work: Work) -> bool:
    """Whether there is anything to fold."""
    return work.row(ANY_PIECES) is not None


def with_tails(work: Work, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of parts, every column in the published form, as they are once their tails are folded: what cannot be is told."""
    id, data = _PLACES["id"], _PLACES["data_json"]
    tails: dict[str, list[tuple[Any, Any]]] = {}
    wanted = select(_D.part_id, stored_text(_D.seq), stored_text(_D.delta)).where(_D.part_id.in_([row[id] for row in rows]))
    found: Iterable[Any] = work.select(wanted.order_by(_D.part_id, _D.seq))
    for part_id, seq, piece in found:
        tails.setdefault(part_id, []).append((seq, piece))
    folded = []
    for row in rows:
        part_id = row[id]
        try:
            if part_id in tails:
                tail, _ = stored_tail(part_id, tails[part_id])
                whole = grown_text(part_id, stored_part(part_id, row[data]), tail)
                row = (*row[:data], str(whole), *row[data + 1 :])
        except UnreadableRow as error:
            tell(error)
        folded.append(row)
    return folded
