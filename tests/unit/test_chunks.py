"""validate against the real uiMessageChunkSchema; only unknown types are told apart instead of refused."""

import json
from typing import Any, cast

import pytest

from persist.chat.reducer.chunks import ONLY_IN_7, ChunkType, validate
from persist.errors import InvalidValue
from persist.settings import AiSdk
from tests.cases import each
from tests.streams.vectors import cases

CASES = cases("chunk_validation")
KNOWN = {AiSdk.V6: set(ChunkType) - ONLY_IN_7, AiSdk.V7: set(ChunkType)}


def is_unknown(chunk: object, ai_sdk: AiSdk) -> bool:
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    return isinstance(kind, str) and kind not in KNOWN[ai_sdk] and not kind.startswith("data-")


@each(("ai_sdk", "case"), CASES, ids=lambda one: f"{one[0]:d}, {json.dumps(one[1]['chunk'])[:60]}")
def test_same_verdict_as_the_sdk(ai_sdk: AiSdk, case: dict[str, Any]) -> None:
    chunk = case["chunk"]
    if is_unknown(chunk, ai_sdk):
        assert validate(chunk, ai_sdk) is None
    elif case["accepted"]:
        assert validate(chunk, ai_sdk) == chunk["type"]
    else:
        with pytest.raises(InvalidValue):
            validate(chunk, ai_sdk)


@each("ai_sdk", AiSdk)
def test_the_vectors_cover_every_type(ai_sdk: AiSdk) -> None:
    accepted = {case["chunk"]["type"] for major, case in CASES if major == ai_sdk and case["accepted"]}
    assert accepted >= KNOWN[ai_sdk]


@each("kind", sorted(ONLY_IN_7))
def test_6_does_not_know_what_only_7_has(kind: str) -> None:
    assert validate({"type": kind}, AiSdk.V6) is None


@each(
    "chunk",
    [
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "w"},
        {"type": "tool-input-error", "toolCallId": "c", "toolName": "w", "errorText": "e"},
        {"type": "tool-output-available", "toolCallId": "c"},
        {"type": "data-status", "id": "x"},
        {"type": "message-metadata"},
    ],
    ids=lambda chunk: str(chunk["type"]),
)
def test_a_missing_payload_of_unknown_type_is_accepted(chunk: dict[str, Any]) -> None:
    assert validate(chunk) == chunk["type"]


@each(
    ("chunk", "path"),
    [
        ({"type": "text-delta", "id": "t"}, "text-delta.delta"),
        ({"type": "text-delta", "id": None, "delta": "x"}, "text-delta.id"),
        ({"type": "finish", "finishReason": "bored"}, "finish.finishReason"),
        ({"type": "data-x", "data": 1, "id": 5}, "data-x.id"),
        ({"type": 5}, "type"),
        ({}, "type"),
        (["text-start"], "chunk"),
        (None, "chunk"),
    ],
    ids=str,
)
def test_the_error_names_the_field(chunk: object, path: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        validate(cast("dict[str, Any]", chunk))
    assert caught.value.path == path
