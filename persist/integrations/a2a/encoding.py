"""Tasks of A2A in pieces, so that an update writes what is new: messages of the history, artifacts, and their parts."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from a2a.types.a2a_pb2 import Artifact, Task, TaskState
from a2a.utils.errors import InvalidParamsError
from google.protobuf.timestamp_pb2 import Timestamp

from persist.agent_tasks.schemas import LoadedTask, Piece
from persist.errors import Conflict, InvalidValue

FINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_REJECTED,
    }
)
"""The states that end a task."""

_BEFORE_1970 = 62_135_596_800
"""The seconds from the first instant of a Timestamp, the year 1, to 1970."""


class InvalidTask(InvalidValue, InvalidParamsError):  # noqa: N818  # named like the errors it stands among
    """A task, configuration, token or argument that is refused: an InvalidValue, and an InvalidParamsError of the framework."""

    def __init__(self, path: str, reason: str) -> None:
        InvalidParamsError.__init__(self, f"{path}: {reason}")
        InvalidValue.__init__(self, path, reason)


class TaskEnded(Conflict, InvalidParamsError):  # noqa: N818  # named like the errors it stands among
    """A task that ended cannot go on or end otherwise: a Conflict, and an InvalidParamsError of the framework."""

    def __init__(self, reason: str) -> None:
        InvalidParamsError.__init__(self, reason)
        Conflict.__init__(self, reason)


def pieces_of(task: Task) -> tuple[bytes, list[Piece]]:
    """The head of a task, which is small and always written, and its pieces."""
    head = Task(id=task.id, context_id=task.context_id)
    if task.HasField("status"):
        head.status.CopyFrom(task.status)
    if task.HasField("metadata"):
        head.metadata.CopyFrom(task.metadata)
    pieces = [Piece("history", place, 0, _bytes(message)) for place, message in enumerate(task.history)]
    for place, artifact in enumerate(task.artifacts):
        shell = Artifact(
            artifact_id=artifact.artifact_id,
            name=artifact.name,
            description=artifact.description,
            extensions=artifact.extensions,
        )
        if artifact.HasField("metadata"):
            shell.metadata.CopyFrom(artifact.metadata)
        pieces.append(Piece("artifact", place, -1, _bytes(shell)))
        pieces += [Piece("artifact", place, number, _bytes(part)) for number, part in enumerate(artifact.parts)]
    return _bytes(head), pieces


def task_of(loaded: LoadedTask) -> Task:
    """The task of its head and its pieces, which come by kind, position and part."""
    task = Task()
    task.MergeFromString(loaded.head)
    for piece in loaded.pieces:
        if piece.kind == "history":
            task.history.add().MergeFromString(piece.data)
        elif piece.part < 0:
            task.artifacts.add().MergeFromString(piece.data)
        else:
            task.artifacts[-1].parts.add().MergeFromString(piece.data)
    return task


def state_name(state: int) -> str:
    """The name of a state, and the number of one that this release of the framework does not know."""
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
    except (ValueError, TypeError):
        raise InvalidTask("page_token", "it is no token of a list of tasks.") from None
    if mark != _mark(owner) or not isinstance(key, str) or not isinstance(task_id, str) or not task_id:
        raise InvalidTask("page_token", "it is no token of a list of this owner's tasks.")
    return key, task_id


def _mark(owner: str) -> str:
    return sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _bytes(message: object) -> bytes:
    found: bytes = message.SerializeToString(deterministic=True)  # type: ignore[attr-defined]  # of every message of protobuf
    return found
