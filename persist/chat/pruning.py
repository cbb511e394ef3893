"""Pruning of chats: sessions that nobody used for long, and system prompts that no message names any more."""

from collections.abc import Sequence

from sqlalchemy import select

from persist.chat.models import deltas, messages, parts, prompts, sessions, step_usage, turns
from persist.chat.turns import Turn
from persist.db.base import json_key_set
from persist.db.hot import Row
from persist.db.pruning import LOOK, AgedRows, Below, Condition, Cut, Ids, Pruning, Removed, delete_rows
from persist.db.spoilt import Spoilt
from persist.db.turns import lock_table
from persist.db.work import Work

_S, _M, _P, _T = sessions.c, messages.c, parts.c, turns.c


def _running(work: Work, ids: Ids) -> set[str]:
    """The sessions in which somebody alive is recording."""
    now = work.now()
    query = select(_T.session_id, _T.owner, _T.state, _T.seen_at, _T.message_id).where(_T.session_id.in_(ids))
    rows = work.found(query, spoilt=Spoilt.LEAVE_OUT)
    found = [(session_id, Turn(owner, state, seen_at, message_id)) for session_id, owner, state, seen_at, message_id in rows]
    return {session for session, turn in found if turn.running(now)}


def _of_parts(ids: Ids) -> Condition:
    return deltas.c.part_id.in_(select(_P.id).join(messages, _M.id == _P.message_id).where(_M.session_id.in_(ids)))


def _of_messages(ids: Ids) -> Condition:
    return parts.c.message_id.in_(select(_M.id).where(_M.session_id.in_(ids)))


SESSIONS = AgedRows(
    sessions,
    _S.updated_at,
    _S.id,
    spared=_running,
    below=(
        Below(deltas, _of_parts),
        Below(parts, _of_messages),
        Below(step_usage, lambda ids: step_usage.c.message_id.in_(select(_M.id).where(_M.session_id.in_(ids)))),
        Below(messages, lambda ids: _M.session_id.in_(ids)),
        Below(turns, lambda ids: _T.session_id.in_(ids)),
    ),
)


class _Prompts(Pruning):
    """Prompts of old that no message names. `keep` does not count them: they are nothing by themselves."""

    table = prompts
    batch = LOOK

    def look(self, work: Work, cut: Cut, after: Row | None) -> list[Row]:
        query = select(prompts.c.digest).where(self._unnamed(cut)).order_by(prompts.c.digest).limit(LOOK)
        if after is not None:
            query = query.where(prompts.c.digest > after[0])
        return work.found(query, spoilt=Spoilt.LEAVE_OUT)

    def remove(self, work: Work, cut: Cut, found: Sequence[Row]) -> Removed:
        work.select(lock_table(prompts))  # waits for whoever is about to name one in a message that nobody sees yet
        removed = Removed()
        digests = [row[0] for row in found]
        removed.rows[prompts.name] += delete_rows(work, prompts, prompts.c.digest.in_(digests), self._unnamed(cut))
        return removed

    def _unnamed(self, cut: Cut) -> Condition:
        digest = _M.metadata_json["system_prompt_digest"].as_string()
        named = select(digest).where(json_key_set(_M.metadata_json, "system_prompt_digest"))
        return (prompts.c.created_at < cut.before) & prompts.c.digest.not_in(named)


PRUNINGS: tuple[Pruning, ...] = (SESSIONS, _Prompts())
