"""A piece of text on its way to the database: the short way of the recorder, which nearly every chunk takes."""

from persist.chat.changes import Change
from persist.chat.flush import Piece
from persist.chat.parts import PartState


class Growth(Piece):
    """The row to write, and what it did to the message. Kept when it is durable, else undone."""

    __slots__ = ("change", "part", "size")

    change: Change | None
    """None where it did nothing but extend the part."""
    part: PartState
    size: int
