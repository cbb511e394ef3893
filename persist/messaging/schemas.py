"""Values and vocabularies of messaging, with the fields of Last Light's state (docs/designs.md)."""

from datetime import datetime
from enum import StrEnum

from persist.db.values.frozen import Value


class MessagingRole(StrEnum):
    """The author of a message."""

    USER = "user"
    ASSISTANT = "assistant"


class MessagingSession(Value):
    """A row of messaging_sessions: one user in one channel or thread, until a pause is longer than the idle time."""

    id: str
    platform: str
    channel_id: str
    thread_id: str | None
    user_id: str
    agent_session_id: str | None
    created_at: datetime
    last_activity_at: datetime
    message_count: int | None
    active: bool | None
    """None, in rows of other programs, counts as neither active nor inactive: such a session is never cleaned up."""


class MessagingMessage(Value):
    """A row of messaging_messages."""

    id: int
    session_id: str
    role: MessagingRole
    content: str
    timestamp: datetime
    platform_message_id: str | None
