"""Arguments of a wrong kind are refused by the framework's error."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from a2a.types.a2a_pb2 import ListTasksRequest, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError

from persist import AsyncStore, Store
from persist.integrations.a2a import InvalidTask, PersistPushNotificationConfigStore, PersistTaskStore
from tests.integrations.a2a.scenes import of, task
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors

Do = Callable[[Awaitable[Any]], Any]


def test_arguments_of_a_task_store(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    maria = of("maria")
    do(PersistTaskStore(store).save(task("t"), maria))
    valid: dict[str, dict[str, Any]] = {
        "save": {"task": task("u"), "context": maria},
        "get": {"task_id": "t", "context": maria},
        "list": {"params": ListTasksRequest(), "context": maria},
        "delete": {"task_id": "t", "context": maria},
    }
    require_typed_errors(lambda: PersistTaskStore(store), valid, do=do, database_url=database_url, error=InvalidParamsError)


def test_arguments_of_a_store_of_webhooks(store: Store | AsyncStore, database_url: str, do: Do) -> None:
    maria, config = of("maria"), TaskPushNotificationConfig(id="w", url="https://example.org")
    hooks = PersistPushNotificationConfigStore(store)
    do(hooks.set_info("t", config, maria))
    valid: dict[str, dict[str, Any]] = {
        "set_info": {"task_id": "t", "notification_config": config, "context": maria},
        "get_info": {"task_id": "t", "context": maria},
        "get_info_for_dispatch": {"task_id": "t"},
        "delete_info": {"task_id": "t", "context": maria, "config_id": "w"},
    }
    require_typed_errors(lambda: hooks, valid, do=do, database_url=database_url, error=InvalidParamsError)


@pytest.mark.parametrize("kind", [PersistTaskStore, PersistPushNotificationConfigStore])
@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(kind: Any, store: Store | AsyncStore, wrong: Any) -> None:
    with pytest.raises(InvalidTask, match="expected a Store or an AsyncStore"):
        kind(wrong)
    with pytest.raises(InvalidTask, match="owner_resolver: expected a function"):
        kind(store, wrong)
