"""Ids: `ses_ msg_ prt_ …` + 14 hex digits of `ms * 4096 + counter` + 12 base62 characters, 30 in all.

Lexicographic order is minting order within a process, whatever the clock does; across processes it is as good as
their clocks. The published layout (12 hex + 14 base62) is a special case, since hex digits are base62 digits: the
56-bit stamp needs 14 of them. See the chat persistency document, "ID strategy".
What other programs read as UUIDs is minted from the same counter.
"""

import os
import threading
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from persist.db.clock import Clock, epoch_ms, in_ms
from persist.db.process import THIS

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LETTERS = bytes(ord(_BASE62[byte % 62]) for byte in range(256))
_UNFAIR = bytes(range(248, 256))
"""Bytes that would favour the first letters: 248 is the last multiple of 62 that fits."""
_TAIL = 12
_VERSION, _VARIANT, _RANDOM = 7 << 76, 2 << 62, (1 << 62) - 1
"""The bits of a UUID that say how the others are to be read, and those of its second half that are random."""
_POOL = 4096


def decode_ms(id: str) -> int:
    """The millisecond an id of ours was minted in."""
    return int(id[4:18], 16) >> 12


class IdMinter:
    """Mints ids of every prefix from one counter. Safe for threads; a forked child draws fresh entropy."""

    def __init__(self, clock: Clock, *, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._clock_ms = in_ms(clock)
        self._entropy = entropy
        self._lock = threading.Lock()
        self._last = 0
        self._pool: list[str] = []
        self._forks = THIS.forks

    def mint(self, prefix: str, at: datetime | None = None) -> str:
        """One new id, greater than every id this minter gave before."""
        now = self._clock_ms() if at is None else epoch_ms(at)
        with self._lock:
            stamp = self._next(now)
            if not self._pool or self._forks != THIS.forks:
                self._refill()
            tail = self._pool.pop()
        return f"{prefix}_{stamp:014x}{tail}"

    def mint_uuid(self) -> str:
        """One new UUID as text (version 7, RFC 9562): its first 60 bits are the stamp, so that it sorts as it was minted."""
        now = self._clock_ms()
        with self._lock:
            stamp = self._next(now)
        tail = int.from_bytes(self._entropy(8)) & _RANDOM | _VARIANT
        return str(UUID(int=(stamp >> 12) << 80 | _VERSION | (stamp & 0xFFF) << 64 | tail))

    def mint_many(self, prefix: str, count: int) -> list[str]:
        """Ascending new ids, for bulk inserts."""
        return [self.mint(prefix) for _ in range(count)]

    def _next(self, now_ms: int) -> int:
        """The stamp of this millisecond, or the one after the last; the lock is held."""
        self._last = max(now_ms << 12, self._last + 1)
        return self._last

    def _refill(self) -> None:
        self._forks = THIS.forks
        letters = self._entropy(_POOL).translate(_LETTERS, _UNFAIR).decode("ascii")
        self._pool = [letters[i : i + _TAIL] for i in range(0, len(letters) - _TAIL + 1, _TAIL)]
        if not self._pool:  # an injected source may give few usable bytes
            self._pool = [(letters + "0" * _TAIL)[:_TAIL]]
