"""A store of bodies in memory, which tests of any other may look into."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from threading import Lock

from persist.errors import BlobUnreadable
from persist.testing import START


class MemoryBlobStore:
    """Keeps bodies in a dict; `written` is when all of them were."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.written: datetime = START
        self.puts = 0
        self._lock = Lock()

    def put(self, sha256: str, pieces: Iterable[bytes]) -> None:
        body = b"".join(pieces)
        with self._lock:
            self.bodies[sha256] = body
            self.puts += 1

    def open(self, sha256: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        if sha256 not in self.bodies:
            raise BlobUnreadable(sha256, "its body is missing in memory")
        yield self.bodies[sha256][start:end]

    def exists(self, sha256: str) -> bool:
        return sha256 in self.bodies

    def delete(self, sha256: str) -> None:
        self.bodies.pop(sha256, None)

    def stored(self) -> Iterable[tuple[str, datetime]]:
        return [(digest, self.written) for digest in self.bodies]
