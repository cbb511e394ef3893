"""Values of replay streams."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from persist.db.values.frozen import Value


class ReplaySession(Value):
    """A row of replay_sessions: the session of one client."""

    id: str
    created_at: datetime
    updated_at: datetime
    """When a message for it was last stored."""


class ReplayMessage(Value):
    """A row of replay_messages."""

    session_id: str
    id: str
    stream: str
    position: int
    created_at: datetime
    message: str | None
    """None in a marker, which is a place to go on from and is never sent again."""


@dataclass(frozen=True, slots=True)
class Missed:
    """A page of what followed a message in its stream, oldest first, without markers."""

    stream: str
    messages: Sequence[ReplayMessage]
    position: int
    """Where the page ends."""
    more: bool
    """Whether there was more behind the page when it was read."""
