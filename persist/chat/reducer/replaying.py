"""A stored message as the chunks that rebuild it, for a client that lost the stream or came later."""

from collections.abc import Iterator, Mapping
from typing import Any

from persist.chat.reducer.chunks import DATA_PREFIX, InputEncoding
from persist.chat.reducer.partial_json import ABSENT
from persist.chat.reducer.parts import RESULT_STATES, Part, derived_input, is_dynamic, is_part, is_tool, picked, tool_name
from persist.chat.schemas import STOPPED_AT, ToolState, UIMessage
from persist.errors import InvalidValue
from persist.settings import AiSdk

Chunk = dict[str, Any]
_AS_THEY_ARE = frozenset(("source-url", "source-document", "file"))
_AS_THEY_ARE_IN_7 = frozenset(("custom", "reasoning-file", "steering-message"))
_GROWING = {"text": "text", "reasoning": "reasoning"}
_CHUNK_NAMES = {"descriptor": "approvalDescriptor", "requestReason": "reason"}


def chunks_of(message: UIMessage, *, ai_sdk: AiSdk = AiSdk.V7, finished: bool = True) -> list[Chunk]:
    """The chunks of a UI message stream from which the SDK rebuilds the message; without its end if it is not `finished`.

    What the stream has no words for is left out: parts of unknown type and, in AI SDK 6, parts that only 7 has and answers to
    approvals: the stream then has the result without the approval, as the validator of AI SDK 6 requires. InvalidValue: it is no
    assistant's message.
    """
    if message.get("role") != "assistant":
        raise InvalidValue("message.role", "must be assistant: a stream builds no other message")
    start: Chunk = {"type": "start"} | ({"messageId": message["id"]} if message.get("id") else {})
    if message.get("metadata") is not None:
        start["messageMetadata"] = message["metadata"]
    chunks, in_step = [start], False
    for number, part in enumerate(message["parts"]):
        if not is_part(part):
            continue  # another program wrote it
        if part["type"] == "step-start":
            chunks += ([{"type": "finish-step"}] if in_step else []) + [{"type": "start-step"}]
            in_step = True
        else:
            chunks += chunks_of_part(part, str(number), ai_sdk)
    if finished and (message.get("metadata") or {}).get(STOPPED_AT) is not None:
        chunks.append({"type": "abort"})
    elif finished:
        chunks += ([{"type": "finish-step"}] if in_step else []) + [{"type": "finish"}]
    return chunks


def chunks_of_part(part: Part, id: str, ai_sdk: AiSdk) -> Iterator[Chunk]:
    """The chunks of a part, except a step's start; none if this AI SDK lacks words for it. `id`: for a text without an id."""
    kind = part["type"]
    if kind in _GROWING:
        yield from _growing(part, id)
    elif kind in _AS_THEY_ARE or kind.startswith(DATA_PREFIX) or (ai_sdk >= AiSdk.V7 and kind in _AS_THEY_ARE_IN_7):
        yield dict(part)
    elif is_tool(part) and isinstance(part.get("toolCallId"), str):
        former = part.get("state") not in RESULT_STATES and ("output" in part or "errorText" in part)
        yield from _input(part, ai_sdk, former=former)
        if former:  # of a call that asked for an approval after it had a result, such as a preliminary one
            state = ToolState.OUTPUT_ERROR if "errorText" in part else ToolState.OUTPUT_AVAILABLE
            yield from _outcome({**part, "state": state}, ai_sdk)
        yield from _approval(part, ai_sdk)
        yield from _outcome(part, ai_sdk)


def _growing(part: Part, id: str) -> Iterator[Chunk]:
    """The chunks of a text or reasoning part. Its end is missing as long as it is streaming."""
    kind = part["type"]
    if kind == "reasoning" and isinstance(part.get("id"), str):
        id = part["id"]
    yield {"type": f"{kind}-start", "id": id, **picked(part, "providerMetadata")}
    if part.get("text"):
        yield {"type": f"{kind}-delta", "id": id, "delta": part["text"]}
    if part.get("state") != "streaming":
        yield {"type": f"{kind}-end", "id": id, **picked(part, "citations")}


def _input(part: Part, ai_sdk: AiSdk, *, former: bool) -> Iterator[Chunk]:
    """The chunks of a call's input, streamed while incomplete or absent, else whole. `former`: an earlier result follows."""
    call = _call(part)
    if "resultProviderMetadata" in part and part.get("state") not in RESULT_STATES and not former:
        began = {"toolCallId": part["toolCallId"], "providerMetadata": part["resultProviderMetadata"]}
        yield {"type": "tool-input-start", **call}  # the call began again after a result
        yield {"type": "tool-output-error", **began, "errorText": ""}
    if "input" in part and "rawInput" not in part and part.get("state") != ToolState.INPUT_STREAMING:
        yield {"type": "tool-input-available", **call, "input": part["input"]}
        return
    raw_input, encoding = part.get("rawInput"), picked(part, "inputEncoding")
    if not encoding and "input" in part and part["input"] == raw_input:
        encoding = {"inputEncoding": InputEncoding.TEXT.value}  # the part of a call that failed no longer names it
    yield {"type": "tool-input-start", **call, **encoding}
    if isinstance(raw_input, str) and not _was_refused(part, ai_sdk):
        yield {"type": "tool-input-delta", "toolCallId": part["toolCallId"], "inputTextDelta": raw_input}


def _call(part: Part) -> Chunk:
    call = {**picked(part, "toolCallId", "title", "toolMetadata", "providerExecuted"), "toolName": tool_name(part)}
    if is_dynamic(part):
        call["dynamic"] = True
    if "callProviderMetadata" in part:
        call["providerMetadata"] = part["callProviderMetadata"]
    return call


def _was_refused(part: Part, ai_sdk: AiSdk) -> bool:
    """Whether a static part's `rawInput` is an input that was refused, and not text that streamed before the call failed."""
    if part.get("state") != ToolState.OUTPUT_ERROR or "rawInput" not in part or is_dynamic(part):
        return False
    raw_input, shown = part["rawInput"], part.get("input", ABSENT)
    return not isinstance(raw_input, str) or (raw_input != shown and derived_input(raw_input, None, ai_sdk) != shown)


def _approval(part: Part, ai_sdk: AiSdk) -> Iterator[Chunk]:
    approval = part.get("approval")
    if not isinstance(approval, Mapping) or not isinstance(approval.get("id"), str):
        return
    answered = isinstance(approval.get("approved"), bool)
    if answered and ai_sdk == AiSdk.V6 and part.get("state") in RESULT_STATES:
        return
    kept = ["descriptor", "inputSchemaInput", "signature", *(("requestReason", "isAutomatic") if ai_sdk >= AiSdk.V7 else ())]
    request = {_CHUNK_NAMES.get(key, key): value for key, value in picked(approval, *kept).items()}
    yield {"type": "tool-approval-request", "approvalId": approval["id"], "toolCallId": part["toolCallId"], **request}
    if ai_sdk >= AiSdk.V7 and answered:
        yield {"type": "tool-approval-response", "approvalId": approval["id"], **picked(approval, "approved", "reason")}


def _outcome(part: Part, ai_sdk: AiSdk) -> Iterator[Chunk]:
    state, call = part.get("state"), {"toolCallId": part["toolCallId"]}
    result = {"providerMetadata": part["resultProviderMetadata"]} if "resultProviderMetadata" in part else {}
    if state == ToolState.OUTPUT_AVAILABLE:
        yield {"type": "tool-output-available", **call, **picked(part, "output", "preliminary"), **result}
    elif state == ToolState.OUTPUT_DENIED:
        yield {"type": "tool-output-denied", **call}
    elif state == ToolState.OUTPUT_ERROR and _was_refused(part, ai_sdk):
        refused = {**call, "toolName": tool_name(part), "input": part["rawInput"], **picked(part, "errorText")}
        yield {"type": "tool-input-error", **refused, **result}
    elif state == ToolState.OUTPUT_ERROR:
        yield {"type": "tool-output-error", **call, **picked(part, "errorText"), **result}
