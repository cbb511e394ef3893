"""The chunks of a UI message stream of AI SDK 6 and 7: their types and the fields each type must have."""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

from persist.errors import InvalidValue
from persist.settings import AiSdk


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
    TOOL_APPROVAL_RESPONSE = "tool-approval-response"
    CUSTOM = "custom"
    REASONING_FILE = "reasoning-file"
    STEERING_MESSAGE = "steering-message"
    RESET_STEP = "reset-step"


ONLY_IN_7 = frozenset(
    (
        ChunkType.TOOL_APPROVAL_RESPONSE,
        ChunkType.CUSTOM,
        ChunkType.REASONING_FILE,
        ChunkType.STEERING_MESSAGE,
        ChunkType.RESET_STEP,
    )
)
"""The chunk types that AI SDK 6 does not know."""


class FinishReason(StrEnum):
    """Why a stream finished."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content-filter"
    TOOL_CALLS = "tool-calls"
    ERROR = "error"
    OTHER = "other"
    INTERRUPTED = "interrupted"


class InputEncoding(StrEnum):
    """The format of a tool's streamed input."""

    JSON = "json"
    TEXT = "text"


DATA_PREFIX = "data-"
_FINISH_REASONS = [reason.value for reason in FinishReason]
_FINISH_REASONS_OF_6 = [reason for reason in _FINISH_REASONS if reason != FinishReason.INTERRUPTED]
_LARGEST = 2**53 - 1
_INPUT_ENCODINGS = frozenset(encoding.value for encoding in InputEncoding)
_Check = Callable[[Any], bool]


def _is(kind: type) -> _Check:
    return lambda value: isinstance(value, kind)


def _is_object_of(kind: type) -> _Check:
    return lambda value: isinstance(value, Mapping) and all(isinstance(item, kind) for item in value.values())


def _is_word_of(words: Collection[str]) -> _Check:
    return lambda value: isinstance(value, str) and value in words


def _is_list_of(check: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


_is_string, _is_boolean = _is(str), _is(bool)


def _is_offset(value: Any) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and 0 <= value <= _LARGEST


_Optional = tuple[str, _Check, str]  # field name, check, error message
_Rules = tuple[tuple[str, ...], tuple[_Optional, ...]]  # (required fields, all strings; optional fields)
_STRING = "must be a string"
_BOOLEAN = "must be true or false"
_PROVIDER: _Optional = ("providerMetadata", _is_object_of(Mapping), "must be an object of objects")
_TITLE: _Optional = ("title", _is_string, _STRING)
_TOOL: tuple[_Optional, ...] = (
    _PROVIDER,
    ("toolMetadata", _is(Mapping), "must be an object"),
    ("providerExecuted", _is_boolean, _BOOLEAN),
    ("dynamic", _is_boolean, _BOOLEAN),
)
_TEXT_RULES: _Rules = (("id",), (_PROVIDER,))
_TEXT_DELTA_RULES: _Rules = (("id", "delta"), (_PROVIDER,))
_NO_RULES: _Rules = ((), ())
_DATA_RULES: _Rules = ((), (("id", _is_string, _STRING), ("transient", _is_boolean, _BOOLEAN)))
_FILE_RULES: _Rules = (("url", "mediaType"), (_PROVIDER,))


def _fits(value: Any, rules: _Rules) -> bool:
    required, optional = rules
    return (
        isinstance(value, Mapping)
        and all(isinstance(value.get(field), str) for field in required)
        and all(field not in value or accepts(value[field]) for field, accepts, _ in optional)
    )


_FILENAME: _Optional = ("filename", _is_string, _STRING)
_CITED: dict[str, _Rules] = {
    "url": (("id", "url"), (_TITLE, _PROVIDER)),
    "document": (("id", "mediaType", "title"), (_FILENAME, _PROVIDER)),
}
_CITATION: _Rules = ((), (("startIndex", _is_offset, ""), ("endIndex", _is_offset, ""), ("citedText", _is_string, "")))
_STEERING: dict[str, _Rules] = {
    "text": (("text",), (_PROVIDER,)),
    "file": (("mediaType", "url"), (_FILENAME, ("providerReference", _is_object_of(str), ""), _PROVIDER)),
}


def _is_one_of(value: Any, key: str, rules: dict[str, _Rules]) -> bool:
    kind = value.get(key) if isinstance(value, Mapping) else None
    return isinstance(kind, str) and kind in rules and _fits(value, rules[kind])


def _is_citation(value: Any) -> bool:
    source = value.get("source") if _fits(value, _CITATION) else None
    return isinstance(source, Mapping) and source.get("type") == "source" and _is_one_of(source, "sourceType", _CITED)


_CITATIONS: _Optional = ("citations", _is_list_of(_is_citation), "must be a list of citations")
_REASON: _Optional = ("reason", _is_string, _STRING)
_SIGNATURE: _Optional = ("signature", _is_string, _STRING)

# Payloads of unknown type (input, output, data, messageMetadata) have no rule: any JSON value, or none.
_RULES: dict[ChunkType, _Rules] = {
    ChunkType.START: ((), (("messageId", _is_string, _STRING),)),
    ChunkType.FINISH: ((), (("finishReason", _is_word_of(_FINISH_REASONS), "must be one of " + ", ".join(FinishReason)),)),
    ChunkType.ABORT: ((), (_REASON,)),
    ChunkType.ERROR: (("errorText",), ()),
    ChunkType.MESSAGE_METADATA: _NO_RULES,
    ChunkType.START_STEP: _NO_RULES,
    ChunkType.FINISH_STEP: _NO_RULES,
    ChunkType.TEXT_START: _TEXT_RULES,
    ChunkType.TEXT_DELTA: _TEXT_DELTA_RULES,
    ChunkType.TEXT_END: (("id",), (_CITATIONS, _PROVIDER)),
    ChunkType.REASONING_START: _TEXT_RULES,
    ChunkType.REASONING_DELTA: _TEXT_DELTA_RULES,
    ChunkType.REASONING_END: _TEXT_RULES,
    ChunkType.SOURCE_URL: (("sourceId", "url"), (_TITLE, _PROVIDER)),
    ChunkType.SOURCE_DOCUMENT: (("sourceId", "mediaType", "title"), (_FILENAME, _PROVIDER)),
    ChunkType.FILE: _FILE_RULES,
    ChunkType.REASONING_FILE: _FILE_RULES,
    ChunkType.CUSTOM: (("kind",), (_PROVIDER,)),
    ChunkType.STEERING_MESSAGE: (
        ("id",),
        (("parts", _is_list_of(lambda part: _is_one_of(part, "type", _STEERING)), "must be a list of text and file parts"),),
    ),
    ChunkType.RESET_STEP: _NO_RULES,
    ChunkType.TOOL_INPUT_START: (
        ("toolCallId", "toolName"),
        (("inputEncoding", _is_word_of(_INPUT_ENCODINGS), "must be json or text"), _TITLE, *_TOOL),
    ),
    ChunkType.TOOL_INPUT_DELTA: (("toolCallId", "inputTextDelta"), ()),
    ChunkType.TOOL_INPUT_AVAILABLE: (("toolCallId", "toolName"), (_TITLE, *_TOOL)),
    ChunkType.TOOL_INPUT_ERROR: (("toolCallId", "toolName", "errorText"), (_TITLE, *_TOOL)),
    ChunkType.TOOL_APPROVAL_REQUEST: (
        ("approvalId", "toolCallId"),
        (_REASON, ("isAutomatic", _is_boolean, _BOOLEAN), _SIGNATURE),
    ),
    ChunkType.TOOL_APPROVAL_RESPONSE: (
        ("approvalId",),
        (("approved", _is_boolean, _BOOLEAN), _REASON, ("providerExecuted", _is_boolean, _BOOLEAN), _PROVIDER),
    ),
    ChunkType.TOOL_OUTPUT_AVAILABLE: (("toolCallId",), (("preliminary", _is_boolean, _BOOLEAN), *_TOOL)),
    ChunkType.TOOL_OUTPUT_ERROR: (("toolCallId", "errorText"), _TOOL),
    ChunkType.TOOL_OUTPUT_DENIED: (("toolCallId",), ()),
}
_REQUIRED = {ChunkType.STEERING_MESSAGE.value: "parts", ChunkType.TOOL_APPROVAL_RESPONSE.value: "approved"}
"""The required field of each type, where it is no string; the rule of the field is among the optional ones."""
_RULES_OF_6 = _RULES | {
    ChunkType.FINISH: (
        (),
        (("finishReason", _is_word_of(_FINISH_REASONS_OF_6), "must be one of " + ", ".join(_FINISH_REASONS_OF_6)),),
    ),
    ChunkType.TEXT_END: _TEXT_RULES,
    ChunkType.TOOL_APPROVAL_REQUEST: (("approvalId", "toolCallId"), (_SIGNATURE,)),
}
_RULES_BY_NAME: dict[AiSdk, dict[str, _Rules]] = {
    AiSdk.V6: {kind.value: rules for kind, rules in _RULES_OF_6.items() if kind not in ONLY_IN_7},
    AiSdk.V7: {kind.value: rules for kind, rules in _RULES.items()},
}


def validate(chunk: Mapping[str, Any], ai_sdk: AiSdk = AiSdk.V7) -> str | None:
    """Check one chunk and return its type, or None for a type that the SDK does not know. InvalidValue names a bad field."""
    if type(chunk) is not dict and not isinstance(chunk, Mapping):  # isinstance() alone doubles the cost
        raise InvalidValue("chunk", f"must be an object, not {type(chunk).__name__}")
    kind = chunk.get("type")
    if not isinstance(kind, str):
        raise InvalidValue("type", _STRING)
    rules = _RULES_BY_NAME[ai_sdk].get(kind)
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
    if kind in _REQUIRED and _REQUIRED[kind] not in chunk:
        raise InvalidValue(f"{kind}.{_REQUIRED[kind]}", "is missing")
    return kind
