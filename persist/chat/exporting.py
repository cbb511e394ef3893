"""What an export of a chat session holds, and parts as a reader sees them: their tails folded in."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from persist.chat.models import deltas, messages, parts, prompts, sessions, step_usage
from persist.chat.parts import grow
from persist.db.exporting import Exported, Rows, of_row, the_id
from persist.db.hot import Hot
from persist.db.json import decode, encode
from persist.db.work import Work

_D, _M, _P, _U = deltas.c, messages.c, parts.c, step_usage.c
_digest = _M.metadata_json["system_prompt_digest"].as_string()
_ANY = Hot(select(_D.part_id).limit(1))
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
    return work.row(_ANY) is not None


def with_tails(work: Work, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of parts, every column in the published form, as they are once their tails are folded."""
    id, data = _PLACES["id"], _PLACES["data_json"]
    tails: dict[str, list[str]] = {}
    wanted = select(_D.part_id, _D.delta).where(_D.part_id.in_([row[id] for row in rows])).order_by(_D.part_id, _D.seq)
    for part_id, delta in work.found(wanted):
        tails.setdefault(part_id, []).append(delta)
    folded = []
    for row in rows:
        if row[id] in tails:
            whole = encode(grow(decode(row[data]), "".join(tails[row[id]])))
            folded.append((*row[:data], str(whole), *row[data + 1 :]))
        else:
            folded.append(row)
    return folded
