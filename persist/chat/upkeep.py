"""Upkeep of chats: sessions not updated for long, and system prompts that no message refers to.

A person's are the sessions of an owner with the sessions forked from them. An export of a session is without the row of its
running turn and without sessions forked from it; its parts include text that is not folded yet. The doctor names turns of dead
processes, unfolded text, and tool calls that will get no result.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Table, Text, bindparam, cast, column, func, literal, or_, select, true, type_coerce, update
from sqlalchemy.sql.selectable import ScalarSelect

from persist.blobs.models import blobs, pieces
from persist.chat.models import IS_UNFINISHED, VISIBLE, deltas, messages, part_blobs, parts, prompts, sessions, step_usage, turns
from persist.chat.recording.resume import old_before
from persist.chat.reducer.parts import misfit_of_part
from persist.chat.schemas import ToolState, TurnState
from persist.chat.storage import folding
from persist.chat.storage.files import FILE_TYPES, STORED, referred
from persist.chat.storage.turns import TURN, Turn, end_turn, read_turn, running_sessions
from persist.chat.storage.unfolded_probe import ANY_DELTA
from persist.db.dialects.interface import Problem, Severity
from persist.db.expressions.json_text import json_text, stored_text
from persist.db.expressions.locking import lock_table
from persist.db.operations import erasing
from persist.db.operations.bounded_deletion import Condition, DependentRows, Ids, Units, delete_rows, may_be_hidden
from persist.db.operations.pruning import MOST_CANDIDATES, AgedRows, Cut, Pruning, Removed
from persist.db.operations.upkeep import Exported, Rows, Rules, Takeover, Upkeep, parent_key, the_id
from persist.db.schema.base import json_key_set
from persist.db.statements.prepared import Row
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import UnreadableRow

# Adopting chat databases of other implementations of sessions, messages and parts: repairs of their rows.

_of_message = messages.c.id == parts.c.message_id


def _from_message(name: str) -> ScalarSelect[object]:
    return select(messages.c[name]).where(_of_message).scalar_subquery()


def _number_parts(takeover: Takeover) -> None:
    """Give parts of a message that share an index, or have none, the next free ones, in the order of (index, id)."""
    place = parts.c.index
    shared = select(parts.c.message_id).group_by(parts.c.message_id, place).having(or_(func.count() > 1, place.is_(None)))
    changes = []
    message, following = None, 0
    query = select(parts.c.id, parts.c.message_id, place).where(parts.c.message_id.in_(shared))
    for id, message_id, index in takeover.rows(query.order_by(parts.c.message_id, place.is_(None), place, parts.c.id)):
        if message_id != message:
            message, following = message_id, index or 0
        if index is None or index < following:
            changes.append({"part": id, "place": following})
        following = max(following if index is None else index, following) + 1
    if changes:
        renumber = update(parts).where(parts.c.id == bindparam("part")).values({place: bindparam("place")})
        takeover.connection.execute(renumber, changes)
    takeover.settle(parts, "parts that shared a place in their message got the next free ones", len(changes))


def _into_metadata(takeover: Takeover) -> None:
    """Copy titles and hiding times, which some implementations keep in columns, into the metadata."""
    for table, name in ((sessions, "title"), (messages, "hidden_at")):
        if takeover.brought(table, name):
            _copy_into_metadata(takeover, name, table)


def _copy_into_metadata(takeover: Takeover, name: str, table: Table) -> None:
    metadata = table.c.metadata_json
    path, text = literal(f"$.{name}"), type_coerce(metadata, Text())
    source: ColumnElement[object] = column(name)
    absent = func.json_extract(text, path).is_(None)
    statement = update(table).where(source.isnot(None), func.json_valid(text) == 1, absent)
    count = takeover.run(statement.values({metadata: type_coerce(func.json_set(text, path, source), Text())}))
    takeover.settle(table, f"the column {name} was copied into the metadata", count)


RULES = Rules(
    values={
        sessions.c.updated_at: sessions.c.created_at,
        messages.c.updated_at: messages.c.created_at,
        parts.c.created_at: _from_message("created_at"),
        parts.c.updated_at: _from_message("updated_at"),
    },
    settle=(_number_parts, _into_metadata),
)


# Exported parts of chats include text that is not folded yet.

_D = deltas.c
_PLACES = {column.name: index for index, column in enumerate(parts.columns)}
FOLDED = deltas
"""The table whose rows are exported as text of their parts."""


def holds_deltas(work: UnitOfWork) -> bool:
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
                tail, _ = folding.joined_deltas(part_id, deltas_of[part_id])
                grown = folding.grown_text(part_id, folding.stored_part(part_id, row[data]), tail)
                row = (*row[:data], str(grown), *row[data + 1 :])
        except UnreadableRow as error:
            folding.log_left_unfolded(error)
        folded.append(row)
    return folded


_S = sessions.c
_M = messages.c
_P = parts.c
_T = turns.c
_F, _U = part_blobs.c, step_usage.c
_DIGEST = _M.metadata_json["system_prompt_digest"].as_string()
_NAMES_PROMPT = json_key_set(_M.metadata_json, "system_prompt_digest")


def _running(work: UnitOfWork, ids: Ids) -> set[str]:
    """The sessions in which a live process is recording."""
    now = work.now()
    query = select(_T.session_id, *TURN).where(_T.session_id.in_(ids))
    return running_sessions(work.found(query, unreadable=OnUnreadable.LEAVE_OUT), now)


def _of_parts(table: Table, ids: Ids) -> Condition:
    return table.c.part_id.in_(select(_P.id).join(messages, _M.id == _P.message_id).where(_M.session_id.in_(ids)))


SESSIONS = AgedRows(
    sessions,
    _S.updated_at,
    _S.id,
    spared=_running,
    below=(
        DependentRows(deltas, partial(_of_parts, deltas)),
        DependentRows(part_blobs, partial(_of_parts, part_blobs)),
        DependentRows(parts, lambda ids: parts.c.message_id.in_(select(_M.id).where(_M.session_id.in_(ids)))),
        DependentRows(step_usage, lambda ids: step_usage.c.message_id.in_(select(_M.id).where(_M.session_id.in_(ids)))),
        DependentRows(messages, lambda ids: _M.session_id.in_(ids)),
        DependentRows(turns, lambda ids: _T.session_id.in_(ids)),
    ),
    units=Units(
        messages,
        _M.id,
        lambda ids: _M.session_id.in_(ids),
        order=(_M.created_at, _M.id),
        below=(
            DependentRows(deltas, lambda ids: deltas.c.part_id.in_(select(_P.id).where(_P.message_id.in_(ids)))),
            DependentRows(part_blobs, lambda ids: part_blobs.c.part_id.in_(select(_P.id).where(_P.message_id.in_(ids)))),
            DependentRows(parts, lambda ids: _P.message_id.in_(ids)),
            DependentRows(step_usage, lambda ids: step_usage.c.message_id.in_(ids)),
        ),
    ),
)


class _AgedPrompts(Pruning):
    """Old system prompts that no message refers to. The `keep` limit does not count them."""

    table = prompts
    batch = MOST_CANDIDATES

    def next_candidates(self, work: UnitOfWork, cut: Cut, after: Row | None) -> list[Row]:
        if may_be_hidden(work, [messages]):
            return []
        query = select(prompts.c.digest).where(self._unnamed(cut)).order_by(prompts.c.digest).limit(MOST_CANDIDATES)
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
        referred = select(_DIGEST).where(_NAMES_PROMPT)
        if among is not None:
            referred = referred.where(among)
        return (prompts.c.created_at < cut.before) & prompts.c.digest.not_in(referred)


_MENTIONED = {
    prompts.name: re.compile("system_prompt_digest[^0-9a-f]{1,9}([0-9a-f]{64})"),
    "blobs": re.compile("persist-blob:([0-9a-f]{64})"),
}


def _parts_go_with(table: Table) -> erasing.Dependent:
    def of(ids: Sequence[str]) -> ColumnElement[bool]:
        return table.c.part_id.in_(select(_P.id).where(_P.session_id.in_(ids)))

    return erasing.Dependent(table, of)


class _Sessions(erasing.ErasableRows):
    derived_from = _S.parent_id

    def mentioned(self, change: Mapping[str, Any]) -> dict[str, list[erasing.Key]]:
        text = str(change) if change["table"] in (messages.name, parts.name) else ""
        return {name: [(digest,) for digest in found.findall(text)] for name, found in _MENTIONED.items()}

    def named_alone(self, work: UnitOfWork, keys: Sequence[erasing.Key]) -> dict[str, list[erasing.Key]]:
        ids = [id for (id,) in keys]
        named = select(_DIGEST).where(_M.session_id.in_(ids), _NAMES_PROMPT).distinct()
        filed = select(part_blobs.c.sha256).join(parts, _P.id == part_blobs.c.part_id).where(_P.session_id.in_(ids)).distinct()
        return {
            prompts.name: [tuple(row) for row in work.found(named, unreadable=OnUnreadable.LEAVE_OUT)],
            "blobs": [tuple(row) for row in work.found(filed, unreadable=OnUnreadable.LEAVE_OUT)],
        }


class _ErasablePrompts(erasing.Erasable):
    """System prompts that only erased messages name."""

    table = prompts
    key = ("digest",)
    own_streams = False

    def erase(self, work: UnitOfWork, keys: Sequence[erasing.Key]) -> erasing.Erased:
        work.select(lock_table(prompts))  # waits for transactions that refer to a prompt in a message not committed yet
        erased, digests = erasing.Erased(), {digest for (digest,) in keys}
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


_IDLE = timedelta(minutes=5)
_WAITS_FOR_PERSON = ToolState.APPROVAL_REQUESTED
_RUNNING = select(_T.session_id, *TURN).where(_T.state == TurnState.RUNNING)
_UNFOLDED = (
    select(folding.PART_ID, stored_text(_P.session_id))
    .outerjoin(parts, _P.id == _D.part_id)
    .group_by(_P.session_id, _D.part_id)
    .order_by(_D.part_id)
)
_CALLS = (
    select(_P.session_id, _P.id, _P.type, _P.tool_state)
    .join(messages, messages.c.id == _P.message_id)
    .where(IS_UNFINISHED, VISIBLE, _P.tool_state != _WAITS_FOR_PERSON)
    .order_by(_P.session_id, _P.id)
)
_FILED = (
    select(_P.id, _P.session_id, json_text(_P.data_json))
    .outerjoin(part_blobs, part_blobs.c.part_id == _P.id)
    .where(_P.type.in_(FILE_TYPES), part_blobs.c.part_id.is_(None), cast(_P.data_json, Text).contains(STORED))
    .order_by(_P.id)
)


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """The findings; sessions with a running turn are skipped."""
    now = work.now()
    alive: set[str] = set()
    dead: list[tuple[str, str]] = []
    running: Iterable[Any] = work.found(_RUNNING.order_by(_T.session_id), unreadable=OnUnreadable.LEAVE_OUT)
    for session, *columns in running:
        turn = Turn(*columns)
        if turn.running(now):
            alive.add(session)
        else:
            dead.append((session, turn.owner))
    for session, owner in dead:
        message = f"its turn says running, and {owner} is gone; the next recorder takes over, and so does --fix."
        yield Problem("turn_dead", Severity.WARNING, f"session {session}", message, partial(_drop, session=session))
    yield from _unfolded(work, alive, old_before(now))
    for part, session, text in work.found(_FILED, unreadable=OnUnreadable.LEAVE_OUT):
        if any(data is not None and referred(data) is not None for data in folding.stored_objects([text])):
            message = f"{part} looks as if its file were a blob, and names none: it is shown as it is stored."
            yield Problem("file_unnamed", Severity.WARNING, f"session {session}", message)
    calls: Iterable[Any] = work.found(_CALLS.where(_P.updated_at < now - _IDLE), unreadable=OnUnreadable.LEAVE_OUT)
    for session, part, kind, state in calls:
        if session not in alive:
            message = (
                f"{part} ({kind}) is still {state} and no turn runs: messages.repair_interrupted ends it, or resume the turn."
            )
            yield Problem("tool_call_orphaned", Severity.WARNING, f"session {session}", message)


def _unfolded(work: UnitOfWork, alive: set[str], before: datetime) -> Iterator[Problem]:
    skipped = {session.encode() for session in alive} | alive
    rows: Iterable[Any] = work.select(_UNFOLDED.having(func.max(_D.created_at) < before)).all()
    unreadable: list[UnreadableRow] = []
    unfolded = []
    for part in folding.part_ids([(part,) for part, session in rows if session not in skipped], unreadable.append):
        try:
            unfolded += [part] if folding.has_deltas(work, part) else []
        except UnreadableRow as error:
            unreadable.append(error)
    for failure in unreadable:
        yield Problem("tail_unreadable", Severity.ERROR, "table chat_part_deltas", f"text waits that cannot be folded: {failure}")
    if unfolded:
        message = f"parts whose latest text is not folded; it is shown, but takes longer to read: {len(unfolded):,}."
        yield Problem("tails_unfolded", Severity.INFO, "table chat_part_deltas", message, partial(_fold, parts=unfolded))


def _fold(work: UnitOfWork, *, parts: list[str]) -> None:
    folding.fold_each(work, parts, folding.log_left_unfolded)


def _drop(work: UnitOfWork, *, session: str) -> None:
    turn = read_turn(work, session)
    if turn is not None and turn.state == TurnState.RUNNING and not turn.running(work.now()):
        end_turn(work, session, turn.owner)


_digests = select(_F.sha256).join(parts, _P.id == _F.part_id).where(_P.session_id == the_id())
UPKEEP = Upkeep(
    prunings=(SESSIONS, _AgedPrompts()),
    erasables=(
        _Sessions(
            sessions,
            ("id",),
            {erasing.OWNER: erasing.equal(_S.owner), erasing.SESSION: erasing.equal(_S.id), erasing.NAMED: erasing.equal(_S.id)},
            (
                _parts_go_with(deltas),
                _parts_go_with(part_blobs),
                erasing.holding(parts, "session_id"),
                erasing.Dependent(
                    step_usage, lambda ids: step_usage.c.message_id.in_(select(_M.id).where(_M.session_id.in_(ids)))
                ),
                erasing.holding(messages, "session_id"),
                erasing.holding(turns, "session_id"),
            ),
            leading=(erasing.Lead((_S.id,), partial(erasing.followed, otherwise=erasing.LINK)),),
        ),
        _ErasablePrompts(),
    ),
    exports=(
        Exported(
            "chat session",
            sessions.c.id,
            (
                Rows(
                    prompts,
                    prompts.c.digest.in_(select(_DIGEST).where(_M.session_id == the_id())),
                    (prompts.c.digest,),
                    shared=True,
                ),
                Rows(blobs, blobs.c.sha256.in_(_digests), (blobs.c.sha256,), shared=True),
                Rows(pieces, pieces.c.sha256.in_(_digests), (pieces.c.sha256, pieces.c.position), shared=True),
                Rows(sessions, sessions.c.id == the_id(), (sessions.c.id,)),
                Rows(
                    messages,
                    _M.session_id == the_id(),
                    (_M.created_at, _M.id),
                    then=(
                        Rows(parts, _P.message_id == parent_key(), (_P.index, _P.id)),
                        Rows(part_blobs, _F.part_id.in_(select(_P.id).where(_P.message_id == parent_key())), (_F.part_id,)),
                        Rows(step_usage, _U.message_id == parent_key(), (_U.step,)),
                    ),
                ),
            ),
        ),
    ),
    checkup=checkup,
    shapes={parts.c.data_json: misfit_of_part},
    adoption=RULES,
)
