"""Values of application sessions. What a runner serialized is kept as JSON text, exactly as it was given."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ConfigDict

from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_kind, check_list
from persist.db.values.frozen import Value
from persist.errors import InvalidValue

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
    """Entries to set in the three scopes of a state: of the application, of the user, and of the session."""

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
    """The result of an append. `was_there`: the event was stored already. `is_newest`: no other event came after it."""

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


Names = dict[str, str]


def names(work: UnitOfWork, **given: object) -> Names:
    """The checked names of an application, a user, a session or a file, as parameters of statements. They may be empty."""
    return {name: work.label(name, value, empty=True) for name, value in given.items()}


def json_text(work: UnitOfWork, path: str, value: object) -> str:
    """Checked JSON text. NaN and infinite numbers are allowed, as Python's own encoder writes them."""
    text = work.body(path, value)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(path, f"it is not JSON: {error}.") from None
    return text


def seconds(path: str, value: object) -> float:
    """Seconds since 1970 as a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(path, f"expected a number of seconds, got {type(value).__name__}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidValue(path, "a time is a finite number of seconds.")
    return number


def entries(work: UnitOfWork, path: str, value: object) -> Entries:
    """Checked entries of a state."""
    return {
        work.label(f"{path} key", key, empty=True): json_text(work, f"{path}.{key}", text)
        for key, text in check_kind(path, value, Mapping).items()  # type: ignore[type-abstract]  # an abstract class is a class
    }


def change(work: UnitOfWork, value: object) -> StateChange:
    """A checked change of a state; None changes nothing."""
    given = StateChange() if value is None else check_kind("state", value, StateChange)
    return StateChange(
        app=entries(work, "state.app", given.app),
        user=entries(work, "state.user", given.user),
        session=entries(work, "state.session", given.session),
    )


def event(work: UnitOfWork, value: object) -> NewEvent:
    """A checked event."""
    given = check_kind("event", value, NewEvent)
    return NewEvent(
        id=work.label("event.id", given.id),
        timestamp=seconds("event.timestamp", given.timestamp),
        data=json_text(work, "event.data", given.data),
        author=work.body("event.author", given.author),
        invocation_id=work.body("event.invocation_id", given.invocation_id),
    )


def expected(work: UnitOfWork, value: object) -> str | InHand | None:
    """What the writer of an event expects to be stored: a marker, what it has in hand, or anything (None)."""
    if value is None or isinstance(value, InHand):
        return value
    return work.label("expected", value)


def artifact_key(work: UnitOfWork, value: object) -> Names:
    """The checked names of an artifact, as parameters of statements."""
    key = check_kind("key", value, ArtifactKey)
    session_id = "" if key.session_id is None else work.label("session_id", key.session_id)
    return {
        **names(work, app_name=key.app_name, user_id=key.user_id),
        "session_id": session_id,
        "filename": work.label("filename", key.filename),
    }


def memories(work: UnitOfWork, value: object) -> list[NewMemory]:
    """Checked memories. Of several with one id the last one counts, at the place of the first."""
    checked = {}
    for index, one in enumerate(check_list("memories", value)):
        path = f"memories[{index}]"
        given = check_kind(path, one, NewMemory)
        memory_id = work.label(f"{path}.id", given.id)
        text, found = work.body(f"{path}.text", given.text), words(work, f"{path}.words", given.words)
        checked[memory_id] = NewMemory(memory_id, json_text(work, f"{path}.entry", given.entry), text, found)
    return list(checked.values())


def words(work: UnitOfWork, path: str, value: object) -> list[str]:
    """Checked words: text without blanks. Each once, sorted."""
    found: Iterable[str] = (work.label(f"{path}[{index}]", one) for index, one in enumerate(check_list(path, value)))
    several = set(found)
    for word in several:
        if len(word.split()) != 1 or word != word.strip():
            raise InvalidValue(path, "a word holds a blank.")
    return sorted(several)
