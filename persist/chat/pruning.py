"""Pruning of chats: sessions not updated for long, and system prompts that no message refers to."""

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Table, func, or_, select, true

from persist.chat.models import deltas, messages, part_blobs, parts, prompts, sessions, step_usage, turns
from persist.chat.storage.turns import TURN, running_sessions
from persist.db.expressions.locking import lock_table
from persist.db.operations.bounded_deletion import Below, Condition, Ids, Units, delete_rows
from persist.db.operations.hidden_rows import may_be_hidden
from persist.db.operations.pruning import LOOK, AgedRows, Cut, Pruning, Removed
from persist.db.schema.base import json_key_set
from persist.db.statements.prepared import Row
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

_S, _M, _P, _T = sessions.c, messages.c, parts.c, turns.c


def _running(work: UnitOfWork, ids: Ids) -> set[str]:
    """The sessions in which a live process is recording."""
    now = work.now()
    query = select(_T.session_id, *TURN).where(_T.session_id.in_(ids))
    return running_sessions(work.found(query, unreadable=OnUnreadable.LEAVE_OUT), now)


def _of_parts(table: Table, ids: Ids) -> Condition:
    return table.c.part_id.in_(select(_P.id).join(messages, _M.id == _P.message_id).where(_M.session_id.in_(ids)))


def _of_messages(ids: Ids) -> Condition:
    return parts.c.message_id.in_(select(_M.id).where(_M.session_id.in_(ids)))


SESSIONS = AgedRows(
    sessions,
    _S.updated_at,
    _S.id,
    spared=_running,
    below=(
        Below(deltas, partial(_of_parts, deltas)),
        Below(part_blobs, partial(_of_parts, part_blobs)),
        Below(parts, _of_messages),
        Below(step_usage, lambda ids: step_usage.c.message_id.in_(select(_M.id).where(_M.session_id.in_(ids)))),
        Below(messages, lambda ids: _M.session_id.in_(ids)),
        Below(turns, lambda ids: _T.session_id.in_(ids)),
    ),
    units=Units(
        messages,
        _M.id,
        lambda ids: _M.session_id.in_(ids),
        order=(_M.created_at, _M.id),
        below=(
            Below(deltas, lambda ids: deltas.c.part_id.in_(select(_P.id).where(_P.message_id.in_(ids)))),
            Below(part_blobs, lambda ids: part_blobs.c.part_id.in_(select(_P.id).where(_P.message_id.in_(ids)))),
            Below(parts, lambda ids: _P.message_id.in_(ids)),
            Below(step_usage, lambda ids: step_usage.c.message_id.in_(ids)),
        ),
    ),
)


class _Prompts(Pruning):
    """Old system prompts that no message refers to. The `keep` limit does not count them."""

    table = prompts
    batch = LOOK

    def look(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        if may_be_hidden(work, [messages]):
            return []
        query = select(prompts.c.digest).where(self._unnamed(cut)).order_by(prompts.c.digest).limit(LOOK)
        if after is not None:
            query = query.where(prompts.c.digest > after[0])
        return work.found(query, unreadable=OnUnreadable.LEAVE_OUT)

    def remove(self, work: UnitOfWork, cut: Cut, found: Sequence[Row]) -> Removed:
        work.select(lock_table(prompts))  # waits for transactions that refer to a prompt in a message not committed yet
        removed = Removed()
        digests = [row[0] for row in found]
        removed.rows[prompts.name] += delete_rows(work, prompts, prompts.c.digest.in_(digests), self._unnamed(cut))
        return removed

    def tally(self, work: UnitOfWork, cut: Cut, earlier: Sequence[Pruning]) -> Removed | None:
        if may_be_hidden(work, [messages]):
            return Removed()
        staying: Condition = true()
        if SESSIONS in earlier:
            running = running_sessions(work.found(select(_T.session_id, *TURN), unreadable=OnUnreadable.LEAVE_OUT), work.now())
            staying = or_(_M.session_id.not_in(SESSIONS.candidates(cut)), _M.session_id.in_(sorted(running)))
        counted = Removed()
        found: Sequence[Row] = work.found(select(func.count()).select_from(prompts).where(self._unnamed(cut, staying)))
        counted.rows[prompts.name] += int(found[0][0])
        return counted

    def _unnamed(self, cut: Cut, among: Condition | None = None) -> Condition:
        """Old prompts that no message names, or none of those `among` the messages."""
        digest = _M.metadata_json["system_prompt_digest"].as_string()
        referred = select(digest).where(json_key_set(_M.metadata_json, "system_prompt_digest"))
        if among is not None:
            referred = referred.where(among)
        return (prompts.c.created_at < cut.before) & prompts.c.digest.not_in(referred)


PRUNINGS: tuple[Pruning, ...] = (SESSIONS, _Prompts())
