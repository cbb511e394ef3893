"""Which open part of a resumed message a `text-start` or `reasoning-start` names.

A stored part is exactly the AI SDK's part, without the id that the stream's chunks used for it. So the last four characters
of a text part's own id are a hash of the chunk id that opened it. A recorder that never saw that chunk can still tell
whether a chunk names the same part.
"""

import hashlib

from persist.chat.reducer.parts import TEXT_TYPES, PartState

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LETTERS = 4
"""62⁴: one in fifteen million other chunk ids has the same hash. The part id keeps eight random letters and its time stamp."""


def part_id_for(part_id: str, chunk_id: str) -> str:
    """The part id with its last four characters replaced by the hash of the chunk id that opens the part."""
    head = part_id[:-_LETTERS]
    number = int.from_bytes(hashlib.sha256(f"{head} {chunk_id}".encode("utf-8", "surrogatepass")).digest()[:8])
    letters = [_BASE62[number // 62**place % 62] for place in range(_LETTERS)]
    return head + "".join(letters)


def open_parts(parts: list[PartState]) -> list[PartState]:
    """Text and reasoning parts of the latest step that are still streaming, newest first."""
    open_texts: list[PartState] = []
    for part in reversed(parts):
        if part.data["type"] == "step-start":
            break
        if part.data["type"] in TEXT_TYPES and part.data.get("state") == "streaming":
            open_texts.append(part)
    return open_texts


def opened_by(candidates: list[PartState], kind: str, chunk_id: str) -> PartState | None:
    """The part of that kind that the chunk id opened; None if there is none."""
    for part in candidates:
        if part.data["type"] == kind and part.id is not None and part.id == part_id_for(part.id, chunk_id):
            return part
    return None
