"""Short ways to say what the tests of messaging say all the time, each verb in a transaction of its own."""

from datetime import datetime
from typing import Any

from persist.messaging.schemas import MessagingMessage, MessagingSession
from tests.contract.conftest import Raw

KEY: dict[str, Any] = {"platform": "slack", "channel_id": "C1", "user_id": "U1"}
THREADS = [None, "T1"]
NOWHERE = "mse_nowhere"


def talk(store: Any, **options: Any) -> MessagingSession:
    """The session of U1 in C1, or of the key that the options make of it."""
    session: MessagingSession = store.messaging.sessions.get_or_create(**{**KEY, **options})
    return session


def stored(store: Any, id: str) -> MessagingSession:
    session: MessagingSession = store.messaging.sessions.get(id)
    return session


def found(store: Any, *, thread_id: str | None = None, **options: Any) -> str | None:
    """The id of the active session in C1."""
    place = {"platform": "slack", "channel_id": "C1", "thread_id": thread_id}
    session = store.messaging.sessions.find_active(**{**place, **options})
    return None if session is None else str(session.id)


def end(store: Any, id: str) -> bool:
    return bool(store.messaging.sessions.deactivate(id))


def touch(store: Any, id: str) -> bool:
    return bool(store.messaging.sessions.touch(id))


def add(store: Any, session_id: str, content: str = "hi", *, role: str = "user", **options: Any) -> MessagingMessage:
    message: MessagingMessage = store.messaging.messages.add(session_id, role=role, content=content, **options)
    return message


def history(store: Any, session_id: str, **options: Any) -> list[MessagingMessage]:
    return list(store.messaging.messages.history(session_id, **options))


def words(messages: list[MessagingMessage]) -> list[str]:
    return [message.content for message in messages]


def plant(raw: Raw, id: str, *, at: datetime, active: bool | None, thread_id: str | None = None, count: int | None = 0) -> str:
    """A row as another program writes it -> its id."""
    instant = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
    flag = active if active is None or not raw.is_sqlite else int(active)
    raw.rows(
        "INSERT INTO messaging_sessions (id, platform, channel_id, thread_id, user_id, created_at, last_activity_at, "
        "message_count, active) VALUES (?, 'slack', 'C1', ?, 'U1', ?, ?, ?, ?)",
        *(id, thread_id, instant, instant, count, flag),
    )
    return id
