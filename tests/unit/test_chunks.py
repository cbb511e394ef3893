"""validate against the real uiMessageChunkSchema; only unknown types are told apart instead of refused."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from persist.chat.reducer.chunks import ChunkType, validate
from persist.errors import InvalidValue
from tests.cases import each

STREAMS = json.loads((Path(__file__).parents[1] / "streams" / "ai-sdk-streams.json").read_text(encoding="utf-8"))
CASES: list[dict[str, Any]] = STREAMS["chunk_validation"]


def is_unknown(chunk: object) -> bool:
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    return isinstance(kind, str) and kind not in set(ChunkType) and not kind.startswith("data-")


@each("case", CASES, ids=lambda case: json.dumps(case["chunk"])[:60])
def test_same_verdict_as_the_sdk(case: dict[str, Any]) -> None:
    chunk = case["chunk"]
    if is_unknown(chunk):
        assert validate(chunk) is None
    elif case["accepted"]:
        assert validate(chunk) == chunk["type"]
    else:
        with pytest.raises(InvalidValue):
            validate(chunk)


def test_the_vectors_cover_every_type() -> None:
    accepted = {case["chunk"]["type"] for case in CASES if case["accepted"]}
    assert accepted >= set(ChunkType)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
