"""Values and vocabularies of messaging. Shapes: the Last Light state document, "messaging_sessions + messaging_messages"."""

from datetime import datetime
from enum import StrEnum

from persist.db.values import Value


class MessagingRole(StrEnum):
    """Who spoke."""

    USER = "user"
    ASSISTANT = "assistant"


class MessagingSession(Value):
    """A row of messaging_sessions: one person in one channel or thread, for as long as they keep talking."""

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
    """None is neither active nor old enough to be cleaned up: a row that another program left."""


class MessagingMessage(Value):
    """A row of messaging_messages."""

    id: int
    session_id: str
    role: MessagingRole
    content: str
    timestamp: datetime
    platform_message_id: str | None
