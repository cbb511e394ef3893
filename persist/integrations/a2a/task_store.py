"""PersistTaskStore: the A2A SDK's TaskStore over a Store or an AsyncStore."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
from a2a.server.tasks.push_notification_config_store import PushNotificationConfigStore, normalize_push_notification_config
from a2a.server.tasks.task_store import TaskStore
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task, TaskPushNotificationConfig, TaskState
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from persist.db.values.arguments import check_kind
from persist.db.values.escaping import escape_text
from persist.errors import Conflict, StoreCorrupt, named
from persist.framework_state.agent_tasks.repository import AgentTasks, AgentTaskWebhooks
from persist.framework_state.agent_tasks.schemas import LoadedTask, Piece, Webhook
from persist.integrations.store_bridge import InvalidForFramework, StoreBridge
from persist.store.async_store import AsyncStore
from persist.store.store import Store


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


def bridge_of(store: Store | AsyncStore, resolver: object) -> StoreBridge:
    """The bridge to a store. Raises InvalidTask for what is none, or for no function that names owners."""
    with InvalidTask.raised():
        bridge = StoreBridge(store)
    if not callable(resolver):
        raise InvalidTask("owner_resolver", f"expected a function, got {type(resolver).__name__}.")
    return bridge


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
    copy: M = type(message)()
    copy.CopyFrom(message)
    for field in fields:
        copy.ClearField(field)
    return copy


def _bytes(message: Message) -> bytes:
    found: bytes = message.SerializeToString(deterministic=True)
    return found


T = TypeVar("T")


class PersistPushNotificationConfigStore(PushNotificationConfigStore):
    """Whom to notify of a task's changes, in a store. A caller sees its own configurations; a dispatch sees every owner's."""

    def __init__(self, store: Store | AsyncStore, owner_resolver: OwnerResolver = resolve_user_scope) -> None:
        self._bridge = bridge_of(store, owner_resolver)
        self.store, self.owner_resolver = store, owner_resolver

    async def set_info(
        self, task_id: str, notification_config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Store the caller's configuration, in place of the one with its id; the copy that is stored."""
        key, owner = label_of("task_id", task_id), self._owner(context)
        with InvalidTask.raised():
            check_kind("notification_config", notification_config, TaskPushNotificationConfig)
        stored = normalize_push_notification_config(task_id, notification_config)
        id, data = label_of("id", stored.id), stored.SerializeToString()
        await self._run(lambda hooks: hooks.set(key, id, owner=owner, data=data), writes=True)
        return stored

    async def get_info(self, task_id: str, context: ServerCallContext) -> list[TaskPushNotificationConfig]:
        """The caller's configurations of a task."""
        owner = self._owner(context)
        return _read(await self._run(lambda hooks: hooks.list(label_of("task_id", task_id), owner=owner), writes=False))

    async def get_info_for_dispatch(self, task_id: str) -> list[TaskPushNotificationConfig]:
        """The configurations of every owner."""
        return _read(await self._run(lambda hooks: hooks.list(label_of("task_id", task_id)), writes=False))

    async def delete_info(self, task_id: str, context: ServerCallContext, config_id: str | None = None) -> None:
        """Delete the caller's configuration, or with None all that it has of the task."""
        owner, id = self._owner(context), None if config_id is None else label_of("config_id", config_id)
        await self._run(lambda hooks: hooks.delete(label_of("task_id", task_id), owner=owner, id=id), writes=True)

    def _owner(self, context: ServerCallContext) -> str:
        return owner_of(self.owner_resolver, context)

    async def _run(self, verb: Callable[[AgentTaskWebhooks], T], *, writes: bool) -> T:
        with InvalidTask.raised():
            return await self._bridge.call_async(lambda work: verb(AgentTaskWebhooks(work)), writes=writes)


def _read(found: list[Webhook]) -> list[TaskPushNotificationConfig]:
    return [decoded(TaskPushNotificationConfig(), one.data, f"the webhook {named(one.id)}") for one in found]


_MOST = 1000


class PersistTaskStore(TaskStore):
    """Tasks of A2A in a store. Each owner, as `owner_resolver` names it, sees its own tasks alone.

    A save writes the task's status, and of its history and its artifacts what is new. A task that ended stays ended: saving it
    in another state raises TaskEnded. The caller opens and closes the store.
    """

    def __init__(self, store: Store | AsyncStore, owner_resolver: OwnerResolver = resolve_user_scope) -> None:
        self._bridge = bridge_of(store, owner_resolver)
        self.store, self.owner_resolver = store, owner_resolver

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Store the task as it stands. Raises TaskEnded for one that ended in another state."""
        owner, (head, pieces) = self._owner(context), pieces_of(task)
        named = {"state": state_name(task.status.state), "status_key": key_of(task), "final": task.status.state in FINAL}
        id, context_id = label_of("task_id", task.id), label_of("context_id", task.context_id)
        await self._run(
            lambda tasks: tasks.save(owner, id, context_id=context_id, head=head, pieces=pieces, **named),  # type: ignore[arg-type]  # of several types
            writes=True,
        )

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """The caller's task of this id; None if it has none."""
        owner, id = self._owner(context), label_of("task_id", task_id)
        if not id:
            return None
        loaded = await self._run(lambda tasks: tasks.get(owner, id), writes=False)
        return None if loaded is None else task_of(loaded)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """A page of the caller's tasks, the one with the latest status first. Raises InvalidTask for a token of another owner."""
        owner = self._owner(context)
        with InvalidTask.raised():
            check_kind("params", params, ListTasksRequest)
        size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        if not 1 <= size <= _MOST:
            raise InvalidTask("page_size", f"expected a number from 1 to {_MOST}.")
        after = place_of(owner, params.page_token) if params.page_token else None
        page = await self._run(
            lambda tasks: tasks.list(
                owner,
                context_id=label_of("context_id", params.context_id) or None,
                state=state_name(params.status) if params.status else None,
                since=status_key(params.status_timestamp_after) if params.HasField("status_timestamp_after") else None,
                after=after,
                limit=size,
            ),
            writes=False,
        )
        last = page.items[-1].task if page.more and page.items else None
        return ListTasksResponse(
            tasks=[task_of(one) for one in page.items],
            next_page_token="" if last is None else page_token(owner, last.status_key, last.task_id),
            page_size=size,
            total_size=page.total,
        )

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Delete the caller's task with this id, if it exists."""
        owner, id = self._owner(context), label_of("task_id", task_id)
        if id:
            await self._run(lambda tasks: tasks.delete(owner, id), writes=True)

    def _owner(self, context: ServerCallContext) -> str:
        return owner_of(self.owner_resolver, context)

    async def _run(self, verb: Callable[[AgentTasks], T], *, writes: bool) -> T:
        try:
            with InvalidTask.raised():
                return await self._bridge.call_async(lambda work: verb(AgentTasks(work)), writes=writes)
        except Conflict as error:
            raise TaskEnded(str(error)) from error
