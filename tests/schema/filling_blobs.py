"""Something of every table of blobs, made through the public API, and what a reader sees of it."""

from base64 import b64encode
from hashlib import sha256
from typing import Any

from persist import Store
from persist.store.transaction import Transaction, work_of

SMALL, LARGE = b"\x00\xff small", bytes(17_000)
FILE = bytes(range(256))


def fill_blobs(store: Store) -> None:
    """A blob whose body is in its row, and one that has pieces; nothing names them."""
    store.blobs.put(SMALL, "text/plain")
    store.blobs.put([LARGE[:16_000], LARGE[16_000:]], "application/pdf")


def with_a_file(tx: Transaction, session_id: str) -> None:
    """A message with a file that is a blob, for once although it is small: kept databases are not to grow."""
    runtime = work_of(tx).runtime
    usual, runtime.settings = runtime.settings, runtime.settings.model_copy(update={"inline_file_bytes": 200})
    url = f"data:image/png;base64,{b64encode(FILE).decode()}"
    part = {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": url}
    tx.chat.messages.append(session_id, role="user", parts=[{"type": "text", "text": "Look:"}, part])
    runtime.settings = usual


def blobs_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    found = tx.blobs.list().items
    return {
        "blobs": {one.sha256: one.model_dump(mode="json") for one in found},
        "bodies": {one.sha256: {"sha256": sha256(tx.blobs.read(one.sha256)).hexdigest()} for one in found},
    }
