"""What persist replays of the vectors' messages, for the real reducers: `python -m tests.streams.replaying FILE`; replays.mjs."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from persist.chat.reducer.replaying import chunks_of
from persist.settings import AiSdk
from tests.streams.vectors import VECTORS, name_of

FILE = Path(__file__).parent / "ai-sdk-replays.json"


def replays() -> Iterator[dict[str, Any]]:
    """Each vector's message, with its chunks for every major whose validator accepts it."""
    for vector in VECTORS:
        for major in AiSdk:
            if major in vector["valid"]:
                chunks = chunks_of(vector["message"], ai_sdk=major)
                name = f"{name_of(vector)} for {major:d}"
                yield {
                    "name": name,
                    "major": int(major),
                    "message": vector["message"],
                    "chunks": chunks,
                    "digest": digest(chunks),
                }


def digest(chunks: list[dict[str, Any]]) -> str:
    text = json.dumps(chunks, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(list(replays())), encoding="utf-8")
