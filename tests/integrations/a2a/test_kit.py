"""persist's conformance kit: our stores pass it, the framework's but for three checks, and each check finds its fault."""

import asyncio
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task, TaskPushNotificationConfig

from persist import AsyncStore, Store
from persist.integrations.a2a import PersistPushNotificationConfigStore, PersistTaskStore
from persist.testing.conformance.a2a import CHECKS, WEBHOOK_CHECKS
from tests.contract.faces import every_way
from tests.integrations.kits import Do, require_all, require_all_but_beyond, require_faults_found


@every_way
def test_our_stores_conform(store: Store | AsyncStore, do: Do) -> None:
    require_all(do, CHECKS, lambda: PersistTaskStore(store))
    require_all(do, WEBHOOK_CHECKS, lambda: PersistPushNotificationConfigStore(store))


def test_the_frameworks_own_stores_conform(do: Do) -> None:
    tasks, webhooks = InMemoryTaskStore(), InMemoryPushNotificationConfigStore()
    require_all_but_beyond(do, CHECKS, lambda: tasks)
    require_all_but_beyond(do, WEBHOOK_CHECKS, lambda: webhooks)


class Inventing(InMemoryTaskStore):
    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        return await super().get(task_id, context) or Task(id=task_id)


class WithoutMetadata(InMemoryTaskStore):
    async def save(self, task: Task, context: ServerCallContext) -> None:
        kept = Task()
        kept.CopyFrom(task)
        kept.ClearField("metadata")
        await super().save(kept, context)


class Merging(InMemoryTaskStore):
    async def save(self, task: Task, context: ServerCallContext) -> None:
        before = await self.get(task.id, context)
        kept = Task()
        kept.CopyFrom(task)
        if before is not None:
            kept.history.extend(before.history[len(task.history) :])
        await super().save(kept, context)


class OneOwner(InMemoryTaskStore):
    def __init__(self) -> None:
        super().__init__(owner_resolver=lambda context: "everybody")


class Asking(InMemoryTaskStore):
    """Asks for something else than it was asked for."""

    def asked(self, params: ListTasksRequest) -> None:
        params.ClearField("context_id")

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        given = ListTasksRequest()
        given.CopyFrom(params)
        self.asked(given)
        return await super().list(given, context)


class OldestFirst(InMemoryTaskStore):
    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        page = await super().list(params, context)
        tasks = list(page.tasks)[::-1]
        del page.tasks[:]
        page.tasks.extend(tasks)
        return page


class CountingThePage(InMemoryTaskStore):
    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        page = await super().list(params, context)
        page.total_size = len(page.tasks)
        return page


class AnyToken(Asking):
    def asked(self, params: ListTasksRequest) -> None:
        params.ClearField("page_token")


class Sharing(InMemoryTaskStore):
    def __init__(self) -> None:
        super().__init__(use_copying=False)


class Mixing(InMemoryTaskStore):
    async def save(self, task: Task, context: ServerCallContext) -> None:
        await super().save(task, context)
        for _ in range(10 - len(task.history)):
            await asyncio.sleep(0)
        mixed = await self.get(task.id, context)
        assert mixed is not None
        del mixed.artifacts[:]
        mixed.artifacts.extend(task.artifacts)
        await super().save(mixed, context)


class InTwoSteps(InMemoryTaskStore):
    async def save(self, task: Task, context: ServerCallContext) -> None:
        half = Task()
        half.CopyFrom(task)
        del half.artifacts[:]
        await super().save(half, context)
        await asyncio.sleep(0)
        await super().save(task, context)


def test_each_check_of_tasks_finds_its_fault(do: Do) -> None:
    faults: dict[str, type[InMemoryTaskStore]] = {
        "an_unknown_task_is_nothing": Inventing,
        "a_task_comes_back_exactly": WithoutMetadata,
        "a_save_takes_the_place_of_the_last": Merging,
        "owners_are_apart": OneOwner,
        "lists_are_filtered": Asking,
        "the_latest_status_comes_first": OldestFirst,
        "pages_have_each_task_once": CountingThePage,
        "a_broken_token_is_refused": AnyToken,
        "what_is_returned_is_a_copy": Sharing,
        "of_concurrent_savers_one_is_last": Mixing,
        "a_cancelled_save_is_whole_or_absent": InTwoSteps,
    }
    require_faults_found(do, CHECKS, faults, "tokens_are_an_owners_own", "a_final_state_is_final")


class Webhooks(InMemoryPushNotificationConfigStore):
    pass


class InventingWebhooks(Webhooks):
    async def get_info(self, task_id: str, context: ServerCallContext) -> list[TaskPushNotificationConfig]:
        return await super().get_info(task_id, context) or [TaskPushNotificationConfig(task_id=task_id)]


class Echoing(Webhooks):
    async def set_info(
        self, task_id: str, notification_config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        await super().set_info(task_id, notification_config, context)
        return notification_config


class Collecting(Webhooks):
    async def set_info(
        self, task_id: str, notification_config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        given = TaskPushNotificationConfig()
        given.CopyFrom(notification_config)
        given.id = f"{given.id}-{len(await self.get_info(task_id, context))}"
        return await super().set_info(task_id, given, context)


class OfEveryOwner(Webhooks):
    async def get_info(self, task_id: str, context: ServerCallContext) -> list[TaskPushNotificationConfig]:
        return await self.get_info_for_dispatch(task_id)


class DeletingAll(Webhooks):
    async def delete_info(self, task_id: str, context: ServerCallContext, config_id: str | None = None) -> None:
        await super().delete_info(task_id, context)


class Racing(Webhooks):
    async def set_info(self, task_id: str, notification_config: Any, context: ServerCallContext) -> Any:
        before = [one for one in await self.get_info(task_id, context) if one.id != notification_config.id]
        await asyncio.sleep(0)
        await super().delete_info(task_id, context)
        for one in (*before, notification_config):
            stored = await super().set_info(task_id, one, context)
        return stored


def test_each_check_of_webhooks_finds_its_fault(do: Do) -> None:
    faults: dict[str, type[Webhooks]] = {
        "an_unknown_webhook_is_nothing": InventingWebhooks,
        "what_is_stored_is_returned": Echoing,
        "a_webhook_takes_the_place_of_its_id": Collecting,
        "a_dispatch_sees_every_owner": OfEveryOwner,
        "webhooks_are_deleted_by_id_or_all": DeletingAll,
        "webhooks_that_are_set_at_once_are_kept": Racing,
    }
    require_faults_found(do, WEBHOOK_CHECKS, faults, "a_returned_webhook_is_a_copy")
