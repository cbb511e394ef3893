"""PersistPushNotificationConfigStore: the A2A SDK's PushNotificationConfigStore over a Store or an AsyncStore."""

from collections.abc import Callable
from typing import TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
from a2a.server.tasks.push_notification_config_store import PushNotificationConfigStore, normalize_push_notification_config
from a2a.types.a2a_pb2 import TaskPushNotificationConfig

from persist.agent_tasks.repository import AgentTaskWebhooks
from persist.agent_tasks.schemas import Webhook
from persist.db.values.arguments import check_kind
from persist.integrations.a2a.arguments import check_store, framework_errors, label_of, owner_of
from persist.integrations.a2a.encoding import decoded
from persist.integrations.store_bridge import StoreBridge
from persist.quoting import named
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
        with framework_errors():
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
        with framework_errors():
            return await self._bridge.call_async(lambda work: verb(AgentTaskWebhooks(work)), writes=writes)


def _read(found: list[Webhook]) -> list[TaskPushNotificationConfig]:
    return [decoded(TaskPushNotificationConfig(), one.data, f"the webhook {named(one.id)}") for one in found]
