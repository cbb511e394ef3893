"""The recorder's fast path, which nearly every chunk takes: text added to a part is inserted as one delta row."""

from persist.chat.recording.flush import DeltaRow
from persist.chat.reducer.parts import PartState
from persist.chat.reducer.undo import Change


class DeltaInsert(DeltaRow):
    """A delta row to insert, with the change it made to the message. Followed by `Recording.keep` or `undo`."""

    __slots__ = ("change", "part", "size")

    change: Change | None
    """None if the chunk only extended the part, by `Accumulator.extend`."""
    part: PartState
    size: int
