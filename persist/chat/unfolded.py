"""The growing parts of one recording whose newest text is in rows of its own, and when it is folded into them."""

import time

from persist.chat.parts import PartState
from persist.chat.tails import fold, fold_long
from persist.db.hot import Statements
from persist.settings import Settings

# A part is folded when an eighth of it is new, so that total work stays linear in its length; by the database, a quarter.
_SHARE = 8
_SHARE_OF_LONG = 4


class Unfolded:
    """Those parts, in the order in which they began to grow."""

    __slots__ = ("_began", "_grew", "_least", "_seconds", "parts")

    def __init__(self, settings: Settings) -> None:
        self._least, self._seconds = settings.fold_bytes, settings.fold_ms / 1000
        self.parts: dict[PartState, None] = {}
        self._began = self._grew = 0.0  # when the first and the latest of what is unfolded was stored, in monotonic seconds

    def __bool__(self) -> bool:
        return bool(self.parts)

    def full(self, part: PartState, size: int) -> bool:
        """Whether so much more text is to be folded at once."""
        unfolded = part.tail + size
        return unfolded >= self._least and unfolded >= self._most(part)

    def due(self) -> float:
        """When what grew is folded, however little it is, in monotonic seconds.

        Once nothing has come for fold_ms; while more keeps coming fold_ms after it began, and for a long part as much later as
        its folds by size are further apart: else its cost would grow with the square of its length.
        """
        longest = max(self._most(part) for part in self.parts)
        return min(self._grew + self._seconds, self._began + self._seconds * longest / self._least)

    def fold(self, db: Statements) -> None:
        """What is stored of them; what still waits is written when it is due."""
        for part in self.parts:
            assert part.id is not None
            if part.frame is None:
                fold(db, part.id)
            else:
                fold_long(db, part.id, part.frame)

    def grew(self, part: PartState, size: int) -> None:
        """That much of its text is stored in one more row."""
        self._grew = time.monotonic()
        if not self.parts:
            self._began = self._grew
        part.grew(size)
        self.parts[part] = None

    def wrote(self, part: PartState) -> None:
        """All that was fed of the part is stored in it."""
        part.seq += 1  # of a piece that was written before, or that the log of events may have been told
        part.tail = 0
        self.parts.pop(part, None)
        part.stored()

    def folded(self) -> None:
        """`fold` is durable."""
        for part in self.parts:
            part.tail = 0
        self.parts.clear()

    def _most(self, part: PartState) -> int:
        return max(self._least, part.base // (_SHARE if part.frame is None else _SHARE_OF_LONG))
