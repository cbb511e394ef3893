"""What is stored stands in no error of the stores of A2A, nor in those that one comes from."""

from collections.abc import Callable
from typing import Any

import pytest
from a2a.types.a2a_pb2 import TaskPushNotificationConfig

from persist import AsyncStore, Store
from persist.errors import StoreCorrupt
from persist.integrations.a2a import PersistPushNotificationConfigStore, PersistTaskStore
from tests.integrations.a2a.scenes import of, task
from tests.integrations.telling import SECRET, require_silence


def test_tasks_and_webhooks_that_cannot_be_read_are_not_told(
    store: Store | AsyncStore,
    tasks: PersistTaskStore,
    do: Callable[..., Any],
    execute: Callable[[str], int],
    backend: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = PersistPushNotificationConfigStore(store)
    do(tasks.save(task(parts=2), of("ann")))
    do(hooks.set_info("t", TaskPushNotificationConfig(id="1", url="https://example.com"), of("ann")))
    spoilt = (b"\x0a\x0e" + SECRET.encode() + b"\xff\xff").hex()  # a field with the secret, and then no field
    for column in ("agent_task_records SET head", "agent_task_webhooks SET data"):
        assert execute(f"UPDATE {column} = " + (f"X'{spoilt}'" if backend == "sqlite" else f"'\\x{spoilt}'::bytea"))
    calls: list[Any] = [tasks.get("t", of("ann")), hooks.get_info("t", of("ann"))]
    for call in calls:
        with pytest.raises(StoreCorrupt, match="cannot be read as") as caught:
            do(call)
        require_silence(caught, caplog)
