"""What a follower reads, and the UI message chunks that a stored message has and the follower lacks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from sqlalchemy import func, select, type_coerce

from persist.chat.models import STOP_REQUESTED, deltas, messages, parts, turns
from persist.chat.reducer.parts import TEXT_TYPES, Part, is_tool
from persist.chat.reducer.replaying import chunks_of_part
from persist.chat.schemas import ToolState
from persist.chat.storage.files import STORED, StoredFile, put_back
from persist.chat.storage.folding import grown_part, joined_deltas, read_object, stored_objects
from persist.chat.storage.turns import READ_TURN, Turn, running_among, session_agent, turn_of
from persist.db.expressions.json_text import json_text, stored_text
from persist.db.schema.column_types import Int64, Label, among_labels
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.json import encode
from persist.errors import NotFound, UnreadableRow
from persist.settings import AiSdk

# The UI message chunks that a stored message has and a follower lacks, since an earlier look or from the beginning.
#
# `SentChunks`: what a follower was given so far. It is small, to fit into a cursor: of text the number of characters, of
# other parts how far they are and a digest. Source: the UI message streams of AI SDK 6 and 7.

Chunk = dict[str, Any]
Entry = Any
"""How much of a part was sent: of text its characters, -1 once it is ended, [0, characters] with its metadata; of a tool call
[stage, characters or digest]; else a digest."""
OPEN, INPUT, REQUESTED, RESPONDED, RESULT = range(5)
"""How far a tool call was told: its input streams, its input is whole, approval asked, approval answered, result."""
_STAGES = {
    "tool-input-start": OPEN,
    "tool-input-available": INPUT,
    "tool-approval-request": REQUESTED,
    "tool-approval-response": RESPONDED,
}
_ENDED = _NO_INPUT = _NOTHING = -1
_DIGEST = 12
"""The length of a digest."""


class IndexedPart(NamedTuple):
    """A stored part, its place in the message, and a mark that no other part of this place has."""

    place: int
    mark: str
    part: Part


@dataclass(slots=True)
class SentChunks:
    """What a follower of one message was given."""

    message_id: str
    started: bool = False
    ended: bool = False
    """Whether its latest chunk was an end. A message that goes on afterwards is sent on."""
    settled: int = 0
    """The index before which all parts were sent whole and can change no more: a discarded attempt takes back its own step."""
    step: int = -1
    """The index of the latest step's start; -1 before any."""
    metadata: str = ""
    """The digest of the message's metadata."""
    step_ended: bool = False
    """Whether its latest chunk was `finish-step`, before `finish`."""
    entries: list[tuple[str, Entry] | None] = field(default_factory=list)
    """The mark of each part from index `settled` on, and how much of it was sent. None where no part could be read."""
    place: int = field(default=-1, compare=False)
    """The index of the part that the latest chunk of a part is of. A cursor leaves it out."""

    @property
    def reached(self) -> tuple[int, int]:
        """`place`, and how many characters of the text that grows there were sent."""
        entry = self.entries[self.place - self.settled]
        told = None if entry is None else entry[1]
        count = told[1] if isinstance(told, list | tuple) else told
        return self.place, count if type(count) is int else 0


def missing_chunks(
    sent: SentChunks, metadata: Mapping[str, Any], parts: Sequence[IndexedPart], *, final: bool = False, ai_sdk: AiSdk = AiSdk.V7
) -> Iterator[Chunk]:
    """The chunks that turn what was sent into this message; `sent` keeps pace with each one.

    `parts`: in their order, those from index `sent.settled` on. `final`: nothing follows, so a text may end in half a character.
    A step whose parts were taken back is told by `reset-step`, which AI SDK 6 lacks.
    """
    if not sent.started:
        sent.started, sent.metadata = True, _digest(metadata)
        yield {"type": "start", "messageId": sent.message_id} | ({"messageMetadata": metadata} if metadata else {})
    elif _digest(metadata) != sent.metadata:
        sent.metadata = _digest(metadata)
        yield {"type": "message-metadata", "messageMetadata": metadata}
    if _was_reset(sent, parts):
        for part in parts:
            # a reset closes the texts of earlier steps, too; a result would reach a call of the step that it discards
            if sent.settled <= part.place <= sent.step and part.part["type"] in TEXT_TYPES:
                yield from _part_chunks(sent, part, ai_sdk, final=True)
        del sent.entries[max(0, sent.step + 1 - sent.settled) :]
        if ai_sdk >= AiSdk.V7:
            yield {"type": "reset-step"}
    for part in parts:
        if part.place >= sent.settled:
            yield from _part_chunks(sent, part, ai_sdk, final=final, last=final and part is parts[-1])
    _settle(sent, {place: part for place, _, part in parts})


def ending_chunks(sent: SentChunks, last: str) -> Iterator[Chunk]:
    """The end of the stream: `finish-step` if there were steps and then `finish`, or `abort`, or `error`."""
    if sent.ended:
        return
    if sent.step >= 0 and last == "finish" and not sent.step_ended:
        sent.step_ended = True
        yield {"type": "finish-step"}
    sent.ended, sent.step_ended = True, False
    yield {"type": "error", "errorText": "The turn ended with an error."} if last == "error" else {"type": last}


def _was_reset(sent: SentChunks, parts: Sequence[IndexedPart]) -> bool:
    """Whether a part of the current step that was sent is there no more."""
    marks = {index: mark for index, mark, _ in parts}
    told = enumerate(sent.entries, sent.settled)
    return any(entry is not None and index > sent.step and marks.get(index) != entry[0] for index, entry in told)


def _part_chunks(sent: SentChunks, indexed: IndexedPart, ai_sdk: AiSdk, *, final: bool, last: bool = False) -> Iterator[Chunk]:
    """The chunks that a part has and the follower lacks. The entry is noted before each chunk."""
    index, mark, part = indexed
    place = index - sent.settled
    sent.entries += [None] * (place + 1 - len(sent.entries))
    known = sent.entries[place]
    told = None if known is None else known[1]
    if part["type"] == "step-start":
        steps = [] if told is not None else [("", {"type": "start-step"})]  # no finish-step before it: it would end open parts
        sent.step = max(sent.step, index)
        chunks: Iterator[tuple[Entry, Chunk]] = iter(steps)
    elif part["type"] in TEXT_TYPES:
        chunks = _text_chunks(told, index, part, ai_sdk, final=final, last=last)
    elif is_tool(part):
        chunks = _tool_chunks(told, part, ai_sdk, final=final)
    else:
        digest = _digest(part)
        chunks = ((digest, chunk) for chunk in chunks_of_part(part, str(index), ai_sdk) if told != digest)
    for entry, chunk in chunks:
        sent.entries[place] = (mark, entry)
        sent.place = index
        yield chunk


def _text_chunks(told: Entry, index: int, part: Part, ai_sdk: AiSdk, *, final: bool, last: bool) -> Iterator[tuple[Entry, Chunk]]:
    """The start, the text after what was sent, and the end once the part is done. `last`: no part and no text follows."""
    start, *others = chunks_of_part(part, str(index), ai_sdk)
    ended = part.get("state") != "streaming"
    metadata = {"providerMetadata": part["providerMetadata"]} if "providerMetadata" in part else {}
    begins, whole = told is None, isinstance(told, list | tuple)
    if whole:
        told = told[1]

    def sent(characters: int) -> Entry:
        return [OPEN, characters] if last and metadata else characters

    if begins:
        told = 0
        yield sent(told), start
    if told == _ENDED or type(told) is not int:
        return
    text = part.get("text") or ""
    text = text if ended or final else _without_half(text)
    if len(text) > told:
        yield sent(len(text)), {**start, "type": f"{part['type']}-delta", "delta": text[told:]}
    elif last and not ended and metadata and not begins and not whole:  # an empty piece may have brought it
        yield sent(told), {**start, "type": f"{part['type']}-delta", "delta": ""}
    if ended:
        yield _ENDED, {**others[-1], **metadata}


def _tool_chunks(told: Entry, part: Part, ai_sdk: AiSdk, *, final: bool) -> Iterator[tuple[Entry, Chunk]]:
    """The chunks beyond the stage told, the last again if it changed; all if the call began anew, or an earlier one changed."""
    chunks = [chunk for chunk in chunks_of_part(part, "", ai_sdk) if chunk["type"] != "tool-input-delta"]
    chain = [(_STAGES.get(chunk["type"], RESULT), chunk) for chunk in chunks]
    told_stage, detail = told if isinstance(told, list | tuple) else (_NOTHING, "")
    known = [chunk for stage, chunk in chain if stage <= told_stage]
    before = [_digest([chunk for stage, chunk in chain[:place] if stage != RESULT]) for place in range(len(chain))]
    entries = [[stage, _NO_INPUT if stage == OPEN else before[at] + _digest(chunk)] for at, (stage, chunk) in enumerate(chain)]
    streams = bool(chain) and chain[-1][0] == OPEN
    if told_stage > OPEN and [told_stage, detail] in entries:
        known = chunks[: entries.index([told_stage, detail]) + 1]
    elif told_stage > OPEN and (not known or streams or _digest(known[:-1]) != detail[:_DIGEST]):
        told_stage, known = _NOTHING, []
    elif told_stage > OPEN and _digest(known[-1]) != detail[_DIGEST:]:
        known = known[:-1] if len(known) == len(chain) else []
    elif told_stage == OPEN and detail != _NO_INPUT and not streams and not {"input", "rawInput"} & part.keys():
        told_stage = _NOTHING  # the input that streamed was refused, and nothing of it is kept
    first = 0 if told_stage == _NOTHING else len(known)
    for place, (stage, chunk) in enumerate(chain):
        if place >= first and not (stage == OPEN == told_stage):
            yield entries[place], chunk
        if stage == OPEN and told_stage <= OPEN and place == (len(chain) - 1 if streams else 0):
            yield from _input_delta(part, detail if told_stage == OPEN else _NO_INPUT, ai_sdk, whole=final or not streams)


def _input_delta(part: Part, known: int, ai_sdk: AiSdk, *, whole: bool) -> Iterator[tuple[Entry, Chunk]]:
    """The text of a streaming input after the `known` characters that were sent."""
    for chunk in chunks_of_part(part, "", ai_sdk):
        if chunk["type"] == "tool-input-delta":
            text = chunk["inputTextDelta"] if whole else _without_half(chunk["inputTextDelta"])
            if len(text) > known:
                yield [OPEN, len(text)], {**chunk, "inputTextDelta": text[max(known, 0) :]}


def _settle(sent: SentChunks, parts: Mapping[int, Part]) -> None:
    """Count the leading entries of past steps that can change no more, instead of keeping them."""
    while sent.entries and sent.settled < sent.step and (sent.settled not in parts or _is_settled(parts[sent.settled])):
        sent.entries.pop(0)
        sent.settled += 1


def _is_settled(part: Part) -> bool:
    kind, state = part["type"], part.get("state")
    if kind in TEXT_TYPES:
        return state != "streaming"
    if is_tool(part):
        return state in (ToolState.OUTPUT_ERROR, ToolState.OUTPUT_DENIED) or (
            state == ToolState.OUTPUT_AVAILABLE and not part.get("preliminary")
        )
    return not (kind.startswith("data-") and "id" in part)


def _without_half(text: str) -> str:
    """Growing text without the first half of a surrogate pair at its end: the second half will complete the character."""
    return text[:-1] if "\ud800" <= text[-1:] <= "\udbff" else text


def _digest(value: Any) -> str:
    """A short digest of a JSON value, to tell whether it changed."""
    return "" if value == {} else blake2b(encode(value).encode("utf-8", "surrogatepass"), digest_size=_DIGEST // 2).hexdigest()


# What a follower reads: the session's turn, and the message with the parts that may have changed since the last look.

_M, _P, _D, _T = messages.c, parts.c, deltas.c, turns.c
_MARK = 6
"""The number of characters at the end of a part's id, which are random, that tell the part from an earlier one."""
_message, _first = param("message_id"), param("first_index")
_HEAD = Statement(
    select(_M.session_id, type_coerce(_M.role, Label()), json_text(_M.metadata_json)).where(_M.id == _message),
    unreadable=OnUnreadable.RAISE,
)
_PARTS = Statement(
    select(_P.index, _P.id, json_text(_P.data_json)).where(_P.message_id == _message, _P.index >= _first).order_by(_P.index),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_TAILS = Statement(
    select(_D.part_id, stored_text(_D.seq), stored_text(_D.delta))
    .join(parts, _P.id == _D.part_id)
    .where(_P.message_id == _message, _P.index >= _first)
    .order_by(_D.part_id, _D.seq),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_unfolded = select(func.sum(_D.seq)).join(parts, _P.id == _D.part_id).where(_P.message_id == _T.message_id)
_MARKS = Statement(
    select(
        _T.session_id,
        _T.owner,
        type_coerce(_T.state, Label()),
        _T.message_id,
        select(func.count()).where(_P.message_id == _T.message_id).correlate(turns).scalar_subquery(),
        type_coerce(
            select(func.max(_P.updated_at)).where(_P.message_id == _T.message_id).correlate(turns).scalar_subquery(), Int64()
        ),
        type_coerce(_unfolded.correlate(turns).scalar_subquery(), Int64()),
    ).where(among_labels(_T.session_id, "ids")),
    unreadable=OnUnreadable.LEAVE_OUT,
)
_STOPPED = Statement(select(_T.session_id, _T.owner).where(STOP_REQUESTED), unreadable=OnUnreadable.LEAVE_OUT)


@dataclass(frozen=True, slots=True)
class TurnSnapshot:
    """A session's running turn, and the metadata and parts from an index on of a message, if it is shown."""

    turn: Turn | None
    metadata: dict[str, Any] | None = None
    """None: there is no such message to be shown, or not yet."""
    parts: tuple[IndexedPart, ...] = ()


def snapshot_turn(work: UnitOfWork, session_id: str, message_id: str | None, first: int) -> TurnSnapshot:
    """Read a session's turn and one message, by default of the running turn. Raises NotFound."""
    if message_id is None:
        _, _, turn = session_agent(work, session_id)
        if turn is None or not turn.running(work.now()) or turn.message_id is None:
            return TurnSnapshot(turn)
        return snapshot_turn(work, session_id, turn.message_id, first)
    with work.batch() as batch:
        turn_row = batch.row(READ_TURN, of_session=session_id)
        head = batch.row(_HEAD, message_id=message_id)
        rows = batch.rows(_PARTS, message_id=message_id, first_index=first)
        tails = batch.rows(_TAILS, message_id=message_id, first_index=first)
    turn = turn_of(turn_row.result)
    if head.result is None:
        return TurnSnapshot(turn)
    owner, role, stored = head.result
    if owner != session_id or role != "assistant":
        raise NotFound("message", message_id)
    metadata = read_object(stored, f"the metadata of message {message_id}")
    if metadata.get("hidden_at") is not None:
        return TurnSnapshot(turn)
    found = _grown_parts(rows.result, tails.result)
    filed = [StoredFile(message_id, one.place, one.part) for one in found if one.part.get("state") == STORED]
    if filed:
        put_back(work, work.runtime, filed)
    return TurnSnapshot(turn, metadata, tuple(found))


def _grown_parts(rows: list[Row], tails: list[Row]) -> list[IndexedPart]:
    pieces: dict[str, list[tuple[Any, Any]]] = {}
    for part_id, seq, delta in tails:
        pieces.setdefault(part_id, []).append((seq, delta))
    found: list[IndexedPart] = []
    for (index, part_id, _), data in zip(rows, stored_objects([text for *_, text in rows]), strict=True):
        if data is None or not isinstance(data.get("type"), str):
            continue  # lists leave it out as well
        whole = data
        try:
            if part_id in pieces:
                tail, _ = joined_deltas(part_id, pieces[part_id])
                whole = grown_part(part_id, data, tail)
        except UnreadableRow:
            pass  # shown without its latest text, as in lists
        found.append(IndexedPart(index, part_id[-_MARK:], whole))
    return found


def marks_of(work: UnitOfWork, session_ids: list[str]) -> dict[str, tuple[Any, ...]]:
    """For each session with a turn, values that change whenever the turn's recorder writes."""
    return {session_id: tuple(rest) for session_id, *rest in work.rows(_MARKS, ids=session_ids)}


def stopped_turns(work: UnitOfWork) -> set[tuple[str, str]]:
    """(session, owner) of all turns that were asked to stop."""
    return {(session_id, owner) for session_id, owner in work.rows(_STOPPED)}


def ended_turns(work: UnitOfWork, session_ids: list[str]) -> list[str]:
    """The sessions of the list whose turn ended, or whose recorder's process is gone."""
    running = running_among(work, session_ids)
    return [session_id for session_id in session_ids if session_id not in running]
