"""Tasks of A2A in pieces, so that an update writes only new pieces: messages of the history, artifacts, and their parts."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import TypeVar

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.server.owner_resolver import OwnerResolver
from a2a.types.a2a_pb2 import Task, TaskState
from a2a.utils.errors import InvalidParamsError
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from persist.db.values.arguments import check_kind
from persist.db.values.json import escape_text
from persist.errors import Conflict, StoreCorrupt, named
from persist.framework_state.agent_tasks.schemas import LoadedTask, Piece
from persist.integrations.framework_errors import InvalidForFramework
from persist.store.async_store import AsyncStore
from persist.store.store import Store

# Arguments of the stores of A2A, checked, and the errors for them: those of persist and of the framework at once.


class InvalidTask(InvalidForFramework, InvalidParamsError):  # noqa: N818  # named like the errors it stands among
    """A task, configuration, token or argument that is refused: an InvalidValue, and an InvalidParamsError of the framework."""


class TaskEnded(Conflict, InvalidParamsError):  # noqa: N818  # named like the errors it stands among
    """A task that ended cannot go on or end otherwise: a Conflict, and an InvalidParamsError of the framework."""

    def __init__(self, reason: str) -> None:
        InvalidParamsError.__init__(self, reason)
        Conflict.__init__(self, reason)


def owner_of(resolver: OwnerResolver, context: object) -> str:
    """The owner whom a context names, as it is stored. Raises InvalidTask for what is no context."""
    with InvalidTask.raised():
        given = check_kind("context", context, ServerCallContext)
        check_kind("context.user", given.user, User)  # type: ignore[type-abstract]  # an abstract class is a class
    return label_of("owner", resolver(given))


def check_store(store: object, resolver: object) -> None:
    """Raises InvalidTask for what is no store, or no function that names owners."""
    if not isinstance(store, Store | AsyncStore):
        raise InvalidTask("store", f"expected a Store or an AsyncStore, got {type(store).__name__}.")
    if not callable(resolver):
        raise InvalidTask("owner_resolver", f"expected a function, got {type(resolver).__name__}.")


def label_of(path: str, value: object) -> str:
    """The text of an id or an owner, as it is stored. Raises InvalidTask for anything but text."""
    if not isinstance(value, str):
        raise InvalidTask(path, f"expected text, got {type(value).__name__}.")
    return escape_text(value, nul=True)


M = TypeVar("M", bound=Message)

FINAL = frozenset(
    {TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_CANCELED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_REJECTED}
)
"""The states that end a task."""

_BEFORE_1970 = 62_135_596_800
"""The seconds from the first instant of a Timestamp, the year 1, to 1970."""


def pieces_of(task: Task) -> tuple[bytes, list[Piece]]:
    """The head of a task, which is small and always written, and its pieces. Fields that a newer release adds are kept."""
    with InvalidTask.raised():
        check_kind("task", task, Task)
    head = _without(task, "history", "artifacts")
    pieces = [Piece("history", place, 0, _bytes(message)) for place, message in enumerate(task.history)]
    for place, artifact in enumerate(task.artifacts):
        pieces.append(Piece("artifact", place, -1, _bytes(_without(artifact, "parts"))))
        pieces += [Piece("artifact", place, number, _bytes(part)) for number, part in enumerate(artifact.parts)]
    return _bytes(head), pieces


def task_of(loaded: LoadedTask) -> Task:
    """The task of its head and its pieces, which come by kind, position and part. Raises StoreCorrupt if they make none."""
    what = f"the task {named(loaded.task.task_id)}"
    task = decoded(Task(), loaded.head, what)
    place = -1
    for piece in loaded.pieces:
        if piece.kind == "history":
            decoded(task.history.add(), piece.data, what)
        elif piece.kind == "artifact" and piece.part < 0:
            place = piece.position
            decoded(task.artifacts.add(), piece.data, what)
        elif piece.kind == "artifact" and piece.position == place:
            decoded(task.artifacts[-1].parts.add(), piece.data, what)
        else:
            raise StoreCorrupt(what, f"its piece {piece.kind} {piece.position} {piece.part} belongs to nothing.")
    return task


def decoded(message: M, data: bytes, what: str) -> M:
    """The message, with what was stored of it. Raises StoreCorrupt if that is no message."""
    try:
        message.MergeFromString(data)
    except DecodeError:
        pass
    else:
        return message
    raise StoreCorrupt(what, f"it cannot be read as {type(message).__name__} of the framework.")


def state_name(state: int) -> str:
    """The name of a state; a number for a state that this release of the framework does not know."""
    return TaskState.Name(state) if state in TaskState.values() else str(state)


def status_key(instant: Timestamp) -> str:
    """Text that sorts as instants do."""
    return f"{instant.seconds + _BEFORE_1970:015d}{instant.nanos:09d}"


def key_of(task: Task) -> str:
    """The text by which a task is listed; empty without an instant of its status."""
    return status_key(task.status.timestamp) if task.HasField("status") and task.status.HasField("timestamp") else ""


def page_token(owner: str, key: str, task_id: str) -> str:
    """The token of the page after a task, for this owner alone."""
    text = json.dumps([_mark(owner), key, task_id])
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(owner: str, token: str) -> tuple[str, str]:
    """The key and the id at which a token's page begins. Raises InvalidTask for one that is broken or another owner's."""
    try:
        mark, key, task_id = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, TypeError, RecursionError):
        raise InvalidTask("page_token", "it is no token of a list of tasks.") from None
    if mark != _mark(owner) or not isinstance(key, str) or not isinstance(task_id, str) or not task_id:
        raise InvalidTask("page_token", "it is no token of a list of this owner's tasks.")
    return key, task_id


def _mark(owner: str) -> str:
    return sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _without(message: M, *fields: str) -> M:
    """A copy of a message without some of its fields."""
    copy: M = type(message)()
    copy.CopyFrom(message)
    for field in fields:
        copy.ClearField(field)
    return copy


def _bytes(message: Message) -> bytes:
    found: bytes = message.SerializeToString(deterministic=True)
    return found
