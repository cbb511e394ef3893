"""The vectors of both majors of the AI SDK: what their real reducers make of streams. See README.md beside this file."""

import json
from pathlib import Path
from typing import Any

from persist.settings import AiSdk

FILES = {AiSdk.V6: "ai-sdk-streams.json", AiSdk.V7: "ai-sdk-7-streams.json"}
STREAMS: dict[AiSdk, dict[str, Any]] = {
    major: json.loads((Path(__file__).parent / name).read_text(encoding="utf-8")) for major, name in FILES.items()
}


def cases(key: str) -> list[tuple[AiSdk, dict[str, Any]]]:
    """The cases under that key of both files, each with its major."""
    return [(major, case) for major, streams in STREAMS.items() for case in streams[key]]


VECTORS: list[dict[str, Any]] = [{**vector, "ai_sdk": major} for major, vector in cases("vectors")]
"""Each names its major under `ai_sdk`."""


def name_of(vector: dict[str, Any]) -> str:
    return f"{vector['ai_sdk']:d}-{vector['name']}"
