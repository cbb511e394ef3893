"""The chunks of an AI SDK v6 UI message stream: their types and the fields each type must have."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from persist.errors import InvalidValue


class ChunkType(StrEnum):
    """Every chunk type with a fixed name; `data-*` types are the application's own."""

    START = "start"
    FINISH = "finish"
    ABORT = "abort"
    ERROR = "error"
    MESSAGE_METADATA = "message-metadata"
    START_STEP = "start-step"
    FINISH_STEP = "finish-step"
    TEXT_START = "text-start"
    TEXT_DELTA = "text-delta"
    TEXT_END = "text-end"
    REASONING_START = "reasoning-start"
    REASONING_DELTA = "reasoning-delta"
    REASONING_END = "reasoning-end"
    SOURCE_URL = "source-url"
    SOURCE_DOCUMENT = "source-document"
    FILE = "file"
    TOOL_INPUT_START = "tool-input-start"
    TOOL_INPUT_DELTA = "tool-input-delta"
    TOOL_INPUT_AVAILABLE = "tool-input-available"
    TOOL_INPUT_ERROR = "tool-input-error"
    TOOL_APPROVAL_REQUEST = "tool-approval-request"
    TOOL_OUTPUT_AVAILABLE = "tool-output-available"
    TOOL_OUTPUT_ERROR = "tool-output-error"
    TOOL_OUTPUT_DENIED = "tool-output-denied"


class FinishReason(StrEnum):
    """Why a stream finished."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content-filter"
    TOOL_CALLS = "tool-calls"
    ERROR = "error"
    OTHER = "other"


class InputEncoding(StrEnum):
    """The format of a tool's streamed input."""

    JSON = "json"
    TEXT = "text"


DATA_PREFIX = "data-"

_FINISH_REASONS = frozenset(reason.value for reason in FinishReason)
_INPUT_ENCODINGS = frozenset(encoding.value for encoding in InputEncoding)


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_object_of_objects(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(item, Mapping) for item in value.values())


def _is_finish_reason(value: Any) -> bool:
    return isinstance(value, str) and value in _FINISH_REASONS


def _is_input_encoding(value: Any) -> bool:
    return isinstance(value, str) and value in _INPUT_ENCODINGS


_Optional = tuple[str, Callable[[Any], bool], str]  # field name, check, error message
_Rules = tuple[tuple[str, ...], tuple[_Optional, ...]]  # (required fields, all strings; optional fields)

_STRING = "must be a string"
_PROVIDER: _Optional = ("providerMetadata", _is_object_of_objects, "must be an object of objects")
_TITLE: _Optional = ("title", _is_string, _STRING)
_TOOL: tuple[_Optional, ...] = (
    _PROVIDER,
    ("toolMetadata", _is_object, "must be an object"),
    ("providerExecuted", _is_boolean, "must be true or false"),
    ("dynamic", _is_boolean, "must be true or false"),
)

_TEXT_RULES: _Rules = (("id",), (_PROVIDER,))
_TEXT_DELTA_RULES: _Rules = (("id", "delta"), (_PROVIDER,))
_NO_RULES: _Rules = ((), ())
_DATA_RULES: _Rules = ((), (("id", _is_string, _STRING), ("transient", _is_boolean, "must be true or false")))

# Payloads of unknown type (input, output, data, messageMetadata) have no rule: any JSON value, or none.
_RULES: dict[ChunkType, _Rules] = {
    ChunkType.START: ((), (("messageId", _is_string, _STRING),)),
    ChunkType.FINISH: ((), (("finishReason", _is_finish_reason, "must be one of " + ", ".join(FinishReason)),)),
    ChunkType.ABORT: ((), (("reason", _is_string, _STRING),)),
    ChunkType.ERROR: (("errorText",), ()),
    ChunkType.MESSAGE_METADATA: _NO_RULES,
    ChunkType.START_STEP: _NO_RULES,
    ChunkType.FINISH_STEP: _NO_RULES,
    ChunkType.TEXT_START: _TEXT_RULES,
    ChunkType.TEXT_DELTA: _TEXT_DELTA_RULES,
    ChunkType.TEXT_END: _TEXT_RULES,
    ChunkType.REASONING_START: _TEXT_RULES,
    ChunkType.REASONING_DELTA: _TEXT_DELTA_RULES,
    ChunkType.REASONING_END: _TEXT_RULES,
    ChunkType.SOURCE_URL: (("sourceId", "url"), (_TITLE, _PROVIDER)),
    ChunkType.SOURCE_DOCUMENT: (("sourceId", "mediaType", "title"), (("filename", _is_string, _STRING), _PROVIDER)),
    ChunkType.FILE: (("url", "mediaType"), (_PROVIDER,)),
    ChunkType.TOOL_INPUT_START: (
        ("toolCallId", "toolName"),
        (("inputEncoding", _is_input_encoding, "must be json or text"), _TITLE, *_TOOL),
    ),
    ChunkType.TOOL_INPUT_DELTA: (("toolCallId", "inputTextDelta"), ()),
    ChunkType.TOOL_INPUT_AVAILABLE: (("toolCallId", "toolName"), (_TITLE, *_TOOL)),
    ChunkType.TOOL_INPUT_ERROR: (("toolCallId", "toolName", "errorText"), (_TITLE, *_TOOL)),
    ChunkType.TOOL_APPROVAL_REQUEST: (("approvalId", "toolCallId"), (("signature", _is_string, _STRING),)),
    ChunkType.TOOL_OUTPUT_AVAILABLE: (("toolCallId",), (("preliminary", _is_boolean, "must be true or false"), *_TOOL)),
    ChunkType.TOOL_OUTPUT_ERROR: (("toolCallId", "errorText"), _TOOL),
    ChunkType.TOOL_OUTPUT_DENIED: (("toolCallId",), ()),
}
_RULES_BY_NAME: dict[str, _Rules] = {kind.value: rules for kind, rules in _RULES.items()}


def validate(chunk: Mapping[str, Any]) -> str | None:
    """Check one chunk and return its type, or None for a type this version does not know. InvalidValue names a bad field."""
    if type(chunk) is not dict and not isinstance(chunk, Mapping):  # isinstance() alone doubles the cost
        raise InvalidValue("chunk", f"must be an object, not {type(chunk).__name__}")
    kind = chunk.get("type")
    if not isinstance(kind, str):
        raise InvalidValue("type", _STRING)
    rules = _RULES_BY_NAME.get(kind)
    if rules is None:
        if not kind.startswith(DATA_PREFIX):
            return None
        rules = _DATA_RULES
    required, optional = rules
    for field in required:
        if not isinstance(chunk.get(field), str):
            raise InvalidValue(f"{kind}.{field}", _STRING)
    for field, accepts, wanted in optional:
        if field in chunk and not accepts(chunk[field]):
            raise InvalidValue(f"{kind}.{field}", wanted)
    return kind
