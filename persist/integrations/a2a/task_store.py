"""PersistTaskStore: the A2A SDK's TaskStore over a Store or an AsyncStore."""

from collections.abc import Callable
from typing import TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
from a2a.server.tasks.push_notification_config_store import PushNotificationConfigStore, normalize_push_notification_config
from a2a.server.tasks.task_store import TaskStore
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task, TaskPushNotificationConfig
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE

from persist.db.values.arguments import check_kind
from persist.errors import Conflict, named
from persist.framework_state.agent_tasks.repository import AgentTasks, AgentTaskWebhooks
from persist.framework_state.agent_tasks.schemas import Webhook
from persist.integrations.a2a.encoding import (
    FINAL,
    InvalidTask,
    TaskEnded,
    check_store,
    decoded,
    key_of,
    label_of,
    owner_of,
    page_token,
    pieces_of,
    place_of,
    state_name,
    status_key,
    task_of,
)
from persist.integrations.store_bridge import StoreBridge
from persist.store.async_store import AsyncStore
from persist.store.store import Store

T = TypeVar("T")


class PersistPushNotificationConfigStore(PushNotificationConfigStore):
    """Whom to notify of a task's changes, in a store. A caller sees its own configurations; a dispatch sees every owner's."""

    def __init__(self, store: Store | AsyncStore, owner_resolver: OwnerResolver = resolve_user_scope) -> None:
        check_store(store, owner_resolver)
        self.store, self.owner_resolver = store, owner_resolver
        self._bridge = StoreBridge(store)

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
        check_store(store, owner_resolver)
        self.store, self.owner_resolver = store, owner_resolver
        self._bridge = StoreBridge(store)

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
