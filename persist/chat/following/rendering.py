"""UI message chunks made from a stored message: those that rebuild it whole, or those that it lacks since an earlier look.

`Sent` is what a follower has been given so far. It is small, so that it fits into a cursor: of text the number of characters, of
other parts how far they are and a digest. Source: the UI message stream of AI SDK 6 and 7.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from persist.chat.reducer.parts import TEXT_TYPES, Part
from persist.chat.reducer.tool_parts import is_dynamic, is_tool, tool_name
from persist.chat.schemas import ToolState
from persist.db.values.json import encode

Chunk = dict[str, Any]
IndexedPart = tuple[int, Part]

OPEN, INPUT, REQUESTED, RESPONDED, RESULT = range(5)
"""How far a tool call was told: its input streams, its input is whole, approval asked, approval answered, result."""

_TEXT_KEYS = frozenset(("type", "text", "state", "id", "providerMetadata"))
_DONE = _NO_INPUT = _NOTHING = -1
_DIGEST = 12
"""The length of a digest."""
_RESULTS = (ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR, ToolState.OUTPUT_DENIED)


@dataclass(slots=True)
class Sent:
    """What a follower of one message was given: an entry for each part from index `settled` on, and the metadata's digest.

    An entry is a number for text (the characters sent, -1 once it is ended), [stage, characters or digest] for a tool call, and a
    digest for any other part.
    """

    message_id: str
    started: bool = False
    ended: bool = False
    settled: int = 0
    """The index before which all parts can change no more, and were sent whole."""
    in_step: bool = False
    metadata: str = ""
    entries: list[Any] = field(default_factory=list)


def missing_chunks(
    sent: Sent, metadata: Mapping[str, Any], parts: Sequence[IndexedPart], end: int, *, final: bool = False, ai_sdk: int = 7
) -> Iterator[Chunk]:
    """The chunks that turn what was sent into this message; `sent` keeps pace with each one.

    `parts`: (index, part) in their order, at least those from index `sent.settled` on. `end`: the index after the message's
    last part. `final`: nothing follows, so that a half of a surrogate pair at the end of a text is sent, too. If that is less than before, parts were taken back: `reset-step` says so, which AI SDK 6 has not.
    """
    if not sent.started:
        sent.started, sent.metadata = True, _digest(metadata)
        yield {"type": "start", "messageId": sent.message_id} | ({"messageMetadata": metadata} if metadata else {})
    elif _digest(metadata) != sent.metadata:
        sent.metadata = _digest(metadata)
        yield {"type": "message-metadata", "messageMetadata": metadata}
    yield from _reset(sent, end, ai_sdk)
    for index, part in parts:
        if index >= sent.settled:
            yield from _part_chunks(sent, index, part, ai_sdk, final=final)
    _settle(sent, dict(parts))


def ending_chunks(sent: Sent, last: str) -> Iterator[Chunk]:
    """The end of the stream: `finish-step` if a step is open, then `finish`, `abort` or `error`."""
    if sent.ended:
        return
    if sent.in_step and last == "finish":
        sent.in_step = False
        yield {"type": "finish-step"}
    sent.ended = True
    yield {"type": "error", "errorText": "The turn ended with an error."} if last == "error" else {"type": last}


def _part_chunks(sent: Sent, index: int, part: Part, ai_sdk: int, *, final: bool) -> Iterator[Chunk]:
    place = index - sent.settled
    while len(sent.entries) < place:
        sent.entries.append(None)  # an index without a readable part
    told = sent.entries[place] if place < len(sent.entries) else None
    kind = part["type"]
    if kind == "step-start":
        if told is None:
            sent.in_step = True  # without a finish-step before it, which would end parts that are still open
            _note(sent, place, "")
            yield {"type": "start-step"}
    elif kind in TEXT_TYPES:
        yield from _text_chunks(sent, place, told, index, part, final=final)
    elif is_tool(part):
        yield from _tool_chunks(sent, place, told, part, ai_sdk, final=final)
    elif told != (digest := _digest(part)):
        _note(sent, place, digest)
        yield dict(part)


def _text_chunks(sent: Sent, place: int, told: Any, index: int, part: Part, *, final: bool) -> Iterator[Chunk]:
    kind, text, ended = part["type"], part.get("text") or "", part.get("state") != "streaming"
    id = part.get("id") if isinstance(part.get("id"), str) else f"{kind}-{index}"
    metadata = {"providerMetadata": part["providerMetadata"]} if "providerMetadata" in part else {}
    if told is None:
        told = 0
        _note(sent, place, told)
        yield {"type": f"{kind}-start", "id": id, **metadata}
    if told == _DONE or type(told) is not int:
        return
    text = text if ended or final else _without_half(text)
    if len(text) > told:
        _note(sent, place, len(text))
        yield {"type": f"{kind}-delta", "id": id, "delta": text[told:], **metadata}
    if ended:
        _note(sent, place, _DONE)
        more = {key: value for key, value in part.items() if key not in _TEXT_KEYS}
        yield {"type": f"{kind}-end", "id": id, **metadata, **more}


def _tool_chunks(sent: Sent, place: int, told: Any, part: Part, ai_sdk: int, *, final: bool) -> Iterator[Chunk]:
    """The chunks of a tool call beyond the stage that was told; its last chunk again if that says something else now.

    Everything again if the call began anew, or if what came before its last chunk is not what was told.
    """
    chain, streams = list(_call(part, ai_sdk)), part.get("state") == ToolState.INPUT_STREAMING
    told_stage, detail = told if isinstance(told, list) else (_NOTHING, "")
    last_stage, last_chunk = chain[-1]
    before, last = _digest([chunk for _, chunk in chain[:-1]]), _digest(last_chunk)
    if told_stage > last_stage or (told_stage == last_stage > OPEN and detail[:_DIGEST] != before):
        told_stage = _NOTHING
    for stage, chunk in chain:
        if stage > told_stage or (stage == last_stage > OPEN and detail[_DIGEST:] != last):
            _note(sent, place, [OPEN, _NO_INPUT] if stage == OPEN else [stage, f"{before}{_digest(chunk)}"])
            yield chunk
        if stage == OPEN and told_stage <= OPEN and isinstance(raw := part.get("rawInput"), str):
            raw, known = raw if final or not streams else _without_half(raw), detail if told_stage == OPEN else _NO_INPUT
            if len(raw) > known:
                _note(sent, place, [OPEN, len(raw)])
                yield {"type": "tool-input-delta", "toolCallId": part.get("toolCallId"), "inputTextDelta": raw[max(known, 0) :]}


def _call(part: Part, ai_sdk: int) -> Iterator[tuple[int, Chunk]]:
    """The chunks that make a tool part, each with its stage; without the deltas of its input."""
    state, call_id = part.get("state"), part.get("toolCallId")
    sticky = {key: part[key] for key in ("providerExecuted", "toolMetadata") if key in part}
    call: Chunk = {"toolCallId": call_id, "toolName": tool_name(part), **sticky}
    call |= {"title": part["title"]} if "title" in part else {}
    call |= {"dynamic": True} if is_dynamic(part) else {}
    call |= {"providerMetadata": part["callProviderMetadata"]} if "callProviderMetadata" in part else {}
    result: Chunk = {"toolCallId": call_id, **sticky}
    result |= {"providerMetadata": part["resultProviderMetadata"]} if "resultProviderMetadata" in part else {}
    available = {"type": "tool-input-available", **call} | ({"input": part["input"]} if "input" in part else {})
    failed, raw = state == ToolState.OUTPUT_ERROR, part.get("rawInput")
    if failed and not is_dynamic(part) and "input" not in part and "approval" not in part:
        refused = {"input": raw} if "rawInput" in part else {}
        yield OPEN, {"type": "tool-input-start", **call}
        yield RESULT, {**result, "type": "tool-input-error", **call, **refused, "errorText": part.get("errorText", "")}
        return
    if state == ToolState.INPUT_STREAMING or isinstance(raw, str):
        encoding = {"inputEncoding": part["inputEncoding"]} if "inputEncoding" in part else {}
        yield OPEN, {"type": "tool-input-start", **call, **encoding}
        if state == ToolState.INPUT_STREAMING:
            return
    else:
        yield INPUT, available
    yield from _approval(part, ai_sdk)
    if state == ToolState.INPUT_AVAILABLE and "approval" in part:
        yield RESPONDED, available  # its input changed after the approval was asked for
    if state == ToolState.OUTPUT_AVAILABLE or "output" in part:
        output = {key: part[key] for key in ("output", "preliminary") if key in part}
        yield RESULT, {"type": "tool-output-available", **result, **output}
    if failed or "errorText" in part:
        yield RESULT, {"type": "tool-output-error", **result, "errorText": part.get("errorText", "")}
    if state == ToolState.OUTPUT_DENIED:
        yield RESULT, {"type": "tool-output-denied", "toolCallId": call_id}


def _approval(part: Part, ai_sdk: int) -> Iterator[tuple[int, Chunk]]:
    approval = part.get("approval")
    if not isinstance(approval, dict):
        return
    asked = {"approvalDescriptor": "descriptor", "inputSchemaInput": "inputSchemaInput", "signature": "signature"}
    answered = "approved" in approval
    if ai_sdk >= 7:  # noqa: PLR2004 - the major
        asked |= {"isAutomatic": "isAutomatic"} | ({} if answered else {"reason": "reason"})
    chunk = {name: approval[key] for name, key in asked.items() if key in approval}
    yield REQUESTED, {"type": "tool-approval-request", "approvalId": approval.get("id"), "toolCallId": part.get("toolCallId"), **chunk}
    if answered and ai_sdk >= 7:  # noqa: PLR2004 - AI SDK 6 has no chunk for the answer
        reason = {"reason": approval["reason"]} if "reason" in approval else {}
        yield RESPONDED, {"type": "tool-approval-response", "approvalId": approval.get("id"), "approved": approval["approved"], **reason}


def _reset(sent: Sent, stored: int, ai_sdk: int) -> Iterator[Chunk]:
    """Tell that parts from index `stored` on were taken back, as those of a step that was discarded are."""
    known = sent.settled + len(sent.entries)
    if stored >= known:
        return
    del sent.entries[max(0, stored - sent.settled) :]
    sent.settled = min(sent.settled, stored)
    if ai_sdk >= 7:  # noqa: PLR2004 - AI SDK 6 has no such chunk
        yield {"type": "reset-step"}


def _settle(sent: Sent, parts: Mapping[int, Part]) -> None:
    """Count the leading entries that can change no more instead of keeping them. A tool call's can in its own step only."""
    steps = [index for index, part in parts.items() if part["type"] == "step-start"]
    current = max(steps, default=-1)
    while sent.entries and (sent.settled not in parts or _is_settled(parts[sent.settled], is_past=sent.settled < current)):
        sent.entries.pop(0)
        sent.settled += 1


def _is_settled(part: Part, *, is_past: bool) -> bool:
    kind, state = part["type"], part.get("state")
    if kind in TEXT_TYPES:
        return state != "streaming"
    if is_tool(part):
        return is_past and state in _RESULTS and not part.get("preliminary")
    return not (kind.startswith("data-") and "id" in part)


def _note(sent: Sent, place: int, entry: Any) -> None:
    if place < len(sent.entries):
        sent.entries[place] = entry
    else:
        sent.entries.append(entry)


def _without_half(text: str) -> str:
    """Growing text without the first half of a surrogate pair at its end: its second half will make one character of it."""
    return text[:-1] if "\ud800" <= text[-1:] <= "\udbff" else text


def _digest(value: Any) -> str:
    """A short digest of a JSON value, to tell whether it changed."""
    if value == {}:
        return ""
    return blake2b(encode(value).encode("utf-8", "surrogatepass"), digest_size=_DIGEST // 2).hexdigest()
