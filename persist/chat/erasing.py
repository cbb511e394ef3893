"""Erasing chats: sessions of an owner with the sessions forked from them, and system prompts that no message names any more."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Table, select

from persist.chat.models import deltas, messages, part_blobs, parts, prompts, sessions, step_usage, turns
from persist.db.expressions.locking import lock_table
from persist.db.operations.bounded_deletion import delete_rows
from persist.db.operations.erasing import (
    LINK,
    NAMED,
    OWNER,
    SESSION,
    Dependent,
    Erasable,
    ErasableRows,
    Erased,
    followed,
    holding,
)
from persist.db.operations.erasing_ways import Key, Lead, equal
from persist.db.operations.hidden_rows import may_be_hidden
from persist.db.schema.base import json_key_set
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable

_S, _M, _P = sessions.c, messages.c, parts.c
_DIGEST = _M.metadata_json["system_prompt_digest"].as_string()
_MENTIONED = {
    prompts.name: re.compile("system_prompt_digest[^0-9a-f]{1,9}([0-9a-f]{64})"),
    "blobs": re.compile("persist-blob:([0-9a-f]{64})"),
}
_NAMES_PROMPT = json_key_set(_M.metadata_json, "system_prompt_digest")


def _of_parts(table: Table) -> Dependent:
    def of(ids: Sequence[str]) -> ColumnElement[bool]:
        return table.c.part_id.in_(select(_P.id).where(_P.session_id.in_(ids)))

    return Dependent(table, of)


def _of_messages(table: Table) -> Dependent:
    return Dependent(table, lambda ids: table.c.message_id.in_(select(_M.id).where(_M.session_id.in_(ids))))


class _Sessions(ErasableRows):
    derived_from = _S.parent_id

    def mentioned(self, change: Mapping[str, Any]) -> dict[str, list[Key]]:
        text = str(change) if change["table"] in (messages.name, parts.name) else ""
        return {name: [(digest,) for digest in found.findall(text)] for name, found in _MENTIONED.items()}

    def also(self, work: UnitOfWork, keys: Sequence[Key]) -> dict[str, list[Key]]:
        ids = [id for (id,) in keys]
        named = select(_DIGEST).where(_M.session_id.in_(ids), _NAMES_PROMPT).distinct()
        filed = select(part_blobs.c.sha256).join(parts, _P.id == part_blobs.c.part_id).where(_P.session_id.in_(ids)).distinct()
        return {
            prompts.name: [tuple(row) for row in work.found(named, unreadable=OnUnreadable.LEAVE_OUT)],
            "blobs": [tuple(row) for row in work.found(filed, unreadable=OnUnreadable.LEAVE_OUT)],
        }


class _Prompts(Erasable):
    """System prompts of erased messages. One that a message of somebody else names stays."""

    table = prompts
    key = ("digest",)
    own_streams = False

    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        work.select(lock_table(prompts))  # waits for transactions that refer to a prompt in a message not committed yet
        erased, digests = Erased(), {digest for (digest,) in keys}
        if may_be_hidden(work, [messages]):
            there = work.found(select(prompts.c.digest).where(prompts.c.digest.in_(digests)), unreadable=OnUnreadable.LEAVE_OUT)
            erased.kept["system_prompts: row security may hide messages that name them"] = len(there)
            return erased
        query = select(_DIGEST).where(_NAMES_PROMPT, _DIGEST.in_(digests)).distinct()
        named = {digest for (digest,) in work.found(query, unreadable=OnUnreadable.LEAVE_OUT)}
        going = sorted(digests - named)
        erased.rows[prompts.name] = delete_rows(work, prompts, prompts.c.digest.in_(going))
        erased.elsewhere[prompts.name] = (self.key, [(digest,) for digest in going])
        if named:
            erased.kept["system_prompts: messages of others name them"] = len(named)
        return erased


ERASABLES: tuple[Erasable, ...] = (
    _Sessions(
        sessions,
        ("id",),
        {OWNER: equal(_S.owner), SESSION: equal(_S.id), NAMED: equal(_S.id)},
        (
            _of_parts(deltas),
            _of_parts(part_blobs),
            holding(parts, "session_id"),
            _of_messages(step_usage),
            holding(messages, "session_id"),
            holding(turns, "session_id"),
        ),
        leading=(Lead((_S.id,), partial(followed, otherwise=LINK)),),
    ),
    _Prompts(),
)
