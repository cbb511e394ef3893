"""One recording's growing parts with text in delta rows, and when it is folded into them."""

import time
from collections.abc import Callable

from persist.chat.reducer.parts import PartState
from persist.chat.storage.folding import Tail, fold_in_database
from persist.db.changes.batch import Batch
from persist.db.changes.driver_statements import StatementRunner
from persist.settings import Settings

# A part is folded when an eighth of it is new (a quarter, if the database folds it): total work stays linear in its length.
_SHARE = 8
_SHARE_IN_DATABASE = 4


class Unfolded:
    """Parts with unfolded text, in the order in which they began to grow."""

    __slots__ = ("_began", "_grew", "_least", "_seconds", "folds", "parts")

    def __init__(self, settings: Settings) -> None:
        self._least, self._seconds = settings.fold_bytes, settings.fold_ms / 1000
        self.parts: dict[PartState, None] = {}
        self.folds = 0
        """How many parts were folded so far."""
        self._began = self._grew = 0.0  # when the first and latest unfolded delta was stored, monotonic

    def __bool__(self) -> bool:
        return bool(self.parts)

    def should_fold(self, part: PartState, size: int) -> bool:
        """Whether to fold the part at once when `size` more bytes of text are added."""
        unfolded = part.tail + size
        return unfolded >= self._least and unfolded >= self._maximum(part)

    def due(self) -> float:
        """When the next fold is due, however little text there is; monotonic seconds.

        If no text comes: fold_ms after the latest delta. If text keeps coming: fold_ms after the first unfolded delta. For a
        long part, later in proportion to its size limit for folds: otherwise the total cost is quadratic in its length.
        """
        longest = max(self._maximum(part) for part in self.parts)
        return min(self._grew + self._seconds, self._began + self._seconds * longest / self._least)

    def fold(self, db: StatementRunner, guard: Callable[[Batch], None]) -> None:
        """Fold the delta rows of all parts, after the guard's statements. Text buffered in memory is not included."""
        with db.batch() as batch:
            guard(batch)
            tails = [Tail.ask(batch, part.id or "") for part in self.parts if part.frame is None]
        for part in self.parts:
            if part.frame is not None:
                fold_in_database(db, part.id or "", part.frame)
        with db.batch(last=True) as batch:
            for tail in tails:
                tail.fold(db, batch)

    def delta_stored(self, part: PartState, size: int) -> None:
        """A delta row with all unstored text of the part, `size` bytes, is durable."""
        self._grew = time.monotonic()
        if not self.parts:
            self._began = self._grew
        part.seq += 1
        part.tail += size
        if part.frame is not None:
            part.pieces = []
        self.parts[part] = None

    def part_stored(self, part: PartState) -> None:
        """The part's row was stored with all of its text."""
        self.folds += part.tail > 0
        part.seq += 1  # the number of a delta written before, or given to the event log only
        part.tail = 0
        self.parts.pop(part, None)
        part.part_stored()

    def part_removed(self, part: PartState) -> None:
        """The part's row was deleted, and its deltas with it."""
        self.parts.pop(part, None)

    def folded(self) -> None:
        """`fold` was committed."""
        self.folds += len(self.parts)
        for part in self.parts:
            part.tail = 0
        self.parts.clear()

    def _maximum(self, part: PartState) -> int:
        return max(self._least, part.base // (_SHARE if part.frame is None else _SHARE_IN_DATABASE))
