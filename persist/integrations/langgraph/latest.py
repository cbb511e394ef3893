"""A memory of the latest entries, bounded by the bytes that they take."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Latest(Generic[K, V]):
    """Keeps the entries that were put last. Together they take at most `most` bytes of memory, and an eighth more for moments.

    Threads may share it: each step is one operation of a dict. A lock might be held by another thread when a process is forked.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[K, tuple[V, int]] = {}
        self._added = 0

    def get(self, key: K) -> V | None:
        """The entry of a key; None if there is none any more."""
        found = self._entries.get(key)
        return None if found is None else found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep an entry that takes `size` bytes, as the latest one."""
        self._entries.pop(key, None)
        if size > self._most:
            return
        self._entries[key] = value, size
        self._added += size
        if self._added > self._most // 8:
            self._shrink()

    def pop(self, key: K) -> V | None:
        """Remove and return the entry of a key."""
        found = self._entries.pop(key, None)
        return None if found is None else found[0]

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def _shrink(self) -> None:
        self._added = 0
        keys = list(self._entries)
        excess = sum(found[1] for key in keys if (found := self._entries.get(key)) is not None) - self._most
        for key in keys:
            if excess <= 0:
                break
            if (found := self._entries.pop(key, None)) is not None:
                excess -= found[1]
