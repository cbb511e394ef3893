"""Chunks of UI message streams, as the AI SDK sends them, for answers that are told in words."""

from collections.abc import Iterator
from typing import Any

Chunk = dict[str, Any]


def words(text: str) -> list[str]:
    """The text in pieces that begin with a word and end before the next one."""
    pieces: list[str] = []
    for piece in text.split(" "):
        pieces.append(piece if not pieces else f" {piece}")
    return pieces


def told(kind: str, id: str, text: str, *, pieces: int | None = None) -> Iterator[Chunk]:
    """A text or reasoning part, word by word, or in so many pieces."""
    said = words(text)
    if pieces is not None:
        step = max(1, -(-len(said) // pieces))
        said = ["".join(said[start : start + step]) for start in range(0, len(said), step)]
    yield {"type": f"{kind}-start", "id": id}
    for piece in said:
        yield {"type": f"{kind}-delta", "id": id, "delta": piece}
    yield {"type": f"{kind}-end", "id": id}


def called(id: str, name: str, given: Any, output: Any = None, *, error: str | None = None) -> Iterator[Chunk]:
    """A call of a tool; without an output and an error it has no result yet."""
    yield {"type": "tool-input-start", "toolCallId": id, "toolName": name}
    yield {"type": "tool-input-available", "toolCallId": id, "toolName": name, "input": given}
    if error is not None:
        yield {"type": "tool-output-error", "toolCallId": id, "errorText": error}
    elif output is not None:
        yield {"type": "tool-output-available", "toolCallId": id, "output": output}
