"""Puts a large blob into the store of the URL and reads it back, and prints by how many bytes its memory grew at most."""

import resource
import sys
from collections.abc import Iterator
from hashlib import sha256

from persist import Store

CHUNK = bytes(range(256)) * 256


def chunks(size: int) -> Iterator[bytes]:
    for number in range(size // len(CHUNK)):
        yield number.to_bytes(8, "big") + CHUNK[8:]


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(url: str, size: int, folder: str | None) -> None:
    with Store.open(url, blobs=folder) as store:
        store.blobs.read(store.blobs.put(b"small").sha256)
        before = peak()
        blob = store.blobs.put(chunks(size))
        digest = sha256()
        for piece in store.blobs.open(blob.sha256):
            digest.update(piece)
        assert digest.hexdigest() == blob.sha256
        assert blob.size == size
        print(peak() - before)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
