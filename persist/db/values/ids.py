"""Ids: `ses_ msg_ prt_ …` + 14 hex digits of `ms * 4096 + counter` + 12 base62 characters, sorted as a process minted them.

UUIDs are minted from the same counter. A reader of the design's layout (docs/designs.md), with 12 hex digits, accepts these ids.
"""

import os
import threading
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from persist.db.concurrency.fork_count import PROCESS
from persist.db.values.clock import Clock, epoch_ms, epoch_ms_clock

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LETTERS = bytes(ord(_BASE62[byte % 62]) for byte in range(256))
_UNFAIR = bytes(range(248, 256))
"""Bytes to discard, since they would make the first letters more likely: 248 is the largest multiple of 62 below 256."""
_TAIL = 12
_VERSION, _VARIANT, _RANDOM = 7 << 76, 2 << 62, (1 << 62) - 1
"""The version and variant bits of a UUID, and the mask of the random bits in its second half."""
_POOL = 4096


def decode_ms(id: str) -> int:
    """The millisecond since 1970 in which an id (three-letter prefix) was minted."""
    return int(id[4:18], 16) >> 12


class IdMinter:
    """Mints ids of every prefix from one counter. Thread-safe; a forked child draws fresh entropy."""

    def __init__(self, clock: Clock, *, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._clock_ms = epoch_ms_clock(clock)
        self._entropy = entropy
        self._lock = threading.Lock()
        self._last = 0
        self._pool: list[str] = []
        self._forks = PROCESS.forks

    def mint(self, prefix: str, at: datetime | None = None) -> str:
        """A new id, whose stamp is greater than that of every id this minter made before. `at`: the instant, instead of now."""
        now = self._clock_ms() if at is None else epoch_ms(at)
        with self._lock:
            stamp = self._next(now)
            if not self._pool or self._forks != PROCESS.forks:
                self._refill()
            tail = self._pool.pop()
        return f"{prefix}_{stamp:014x}{tail}"

    def mint_uuid(self) -> str:
        """A new UUID as text (version 7, RFC 9562). The 60-bit stamp comes first, so UUIDs sort in the order of minting."""
        now = self._clock_ms()
        with self._lock:
            stamp = self._next(now)
        tail = int.from_bytes(self._entropy(8)) & _RANDOM | _VARIANT
        return str(UUID(int=(stamp >> 12) << 80 | _VERSION | (stamp & 0xFFF) << 64 | tail))

    def mint_many(self, prefix: str, count: int) -> list[str]:
        """`count` new ids in ascending order, for bulk inserts."""
        return [self.mint(prefix) for _ in range(count)]

    def _next(self, now_ms: int) -> int:
        """The first stamp of this millisecond, or the last stamp plus one if that is greater. The caller holds the lock."""
        self._last = max(now_ms << 12, self._last + 1)
        return self._last

    def _refill(self) -> None:
        self._forks = PROCESS.forks
        letters = self._entropy(_POOL).translate(_LETTERS, _UNFAIR).decode("ascii")
        self._pool = [letters[i : i + _TAIL] for i in range(0, len(letters) - _TAIL + 1, _TAIL)]
        if not self._pool:  # an injected entropy source may return few usable bytes
            self._pool = [(letters + "0" * _TAIL)[:_TAIL]]
