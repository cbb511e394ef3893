"""Values of application sessions. What a runner serialized is kept as JSON text, exactly as it was given."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ConfigDict

from persist.db.values.frozen import Value

Entries = Mapping[str, str]
"""Entries of a state: JSON text by key."""


class AppSession(Value):
    """A row of app_user_sessions: one conversation of a user of an application."""

    id: str
    """The id of the row, unique in the store; `session_id` is unique for one user of one application."""
    app_name: str
    user_id: str
    session_id: str
    revision: int
    """The number of events so far: a writer who has read another number has missed an event."""
    update_time: float
    """Seconds since 1970, as the runner gave them with the newest event."""
    created_at: datetime
    updated_at: datetime

    @property
    def marker(self) -> str:
        """Text that changes with every write, and differs for a session that was deleted and created again."""
        return f"{self.id}:{self.revision}"


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append. `data` is its JSON text; the other fields are what events are found by."""

    id: str
    timestamp: float
    data: str
    author: str = ""
    invocation_id: str = ""


class AppSessionEvent(Value):
    """A row of app_session_events. `position` counts the events of a session in the order in which they were appended."""

    id: str
    position: int
    timestamp: float
    author: str
    invocation_id: str
    data: str


@dataclass(frozen=True, slots=True)
class StateChange:
    """Entries to set in the three scopes of a state: those of the application, of the user, and of the session."""

    app: Entries = field(default_factory=dict)
    user: Entries = field(default_factory=dict)
    session: Entries = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InHand:
    """What a writer without a marker holds of a session: the ids of its events, and its update time."""

    event_ids: Collection[str]
    update_time: float


@dataclass(frozen=True, slots=True)
class LoadedSession:
    """A session with its events, oldest first, and its state in the three scopes."""

    session: AppSession
    events: Sequence[AppSessionEvent]
    state: StateChange


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of an append. `was_there`: the same event had been stored before, and nothing was written.

    `is_newest`: no other event was appended after it.
    """

    session: AppSession
    was_there: bool
    is_newest: bool


@dataclass(frozen=True, slots=True)
class ArtifactKey:
    """The names of an artifact. `session_id` None: it belongs to the user, and all sessions see it."""

    app_name: str
    user_id: str
    session_id: str | None
    filename: str


class ArtifactVersion(Value):
    """A row of app_artifact_versions, without its contents."""

    version: int
    created_at: datetime
    mime_type: str | None
    metadata: str
    """A JSON object as text."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One version of an artifact: `part` is JSON text, `data` the bytes that belong to it. In JSON the bytes are base64."""

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    version: ArtifactVersion
    part: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory to store: JSON text, the text that is searched, and its words, by which ASCII words are found."""

    id: str
    entry: str
    text: str
    words: Collection[str]


@dataclass(frozen=True, slots=True)
class FoundMemory:
    """A memory that was found, and how many words of the query it has."""

    id: str
    session_id: str
    entry: str
    matches: int
