"""Which open part of a resumed message a `text-start` or `reasoning-start` names.

The ids of a stream's parts are not kept with what is stored, which is the AI SDK's part and nothing else. So the last
characters of a text part's own id are made of the id it was opened under: a recorder that never saw that chunk can tell
whether it is the same one.
"""

import hashlib

from persist.chat.parts import TEXT_TYPES, PartState

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LETTERS = 4
"""62⁴: one in fifteen million other ids seems to be the same; eight random letters are left beside the stamp."""


def opened_as(part_id: str, chunk_id: str) -> str:
    """The id of a part that a chunk opens."""
    head = part_id[:-_LETTERS]
    number = int.from_bytes(hashlib.sha256(f"{head} {chunk_id}".encode("utf-8", "surrogatepass")).digest()[:8])
    letters = [_BASE62[number // 62**place % 62] for place in range(_LETTERS)]
    return head + "".join(letters)


def open_parts(parts: list[PartState]) -> list[PartState]:
    """The texts of the latest step that a turn left open."""
    found: list[PartState] = []
    for part in reversed(parts):
        if part.data["type"] == "step-start":
            break
        if part.data["type"] in TEXT_TYPES and part.data.get("state") == "streaming":
            found.append(part)
    return found


def named(left: list[PartState], kind: str, chunk_id: str) -> PartState | None:
    """The one among them that was opened under this id."""
    for part in left:
        if part.data["type"] == kind and part.id is not None and part.id == opened_as(part.id, chunk_id):
            return part
    return None
