"""What other programs and other releases wrote: reported as such, or kept. And what callers may get wrong is refused."""

from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from a2a.types.a2a_pb2 import Artifact, ListTasksRequest, Part, Task, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError

from persist import AsyncStore, Store
from persist.errors import InvalidValue, StoreCorrupt
from persist.integrations.a2a import PersistPushNotificationConfigStore, PersistTaskStore
from persist.maintenance import doctor
from tests.integrations.a2a.scenes import of, task

Do = Callable[[Awaitable[Any]], Any]
Execute = Callable[[str], int]

NEW_FIELD = b"\xfa\x3f\x03new"
"""A field of the number 1023, as a later release of the protocol may add to any message."""

SPOILT = {
    "the head": ("UPDATE agent_task_records SET head = {}", "cannot be read as Task"),
    "a message": ("UPDATE agent_task_pieces SET data = {} WHERE kind = 'history'", "cannot be read as Message"),
    "an artifact": ("UPDATE agent_task_pieces SET data = {} WHERE part = -1", "cannot be read as Artifact"),
    "a part": ("UPDATE agent_task_pieces SET data = {} WHERE part = 1", "cannot be read as Part"),
    "the first artifact": ("DELETE FROM agent_task_pieces WHERE part = -1 AND position = 0", "artifact 0 0 belongs to nothing"),
    "the second artifact": ("DELETE FROM agent_task_pieces WHERE part = -1 AND position = 1", "artifact 1 0 belongs to nothing"),
    "the kind": ("UPDATE agent_task_pieces SET kind = 'other' WHERE kind = 'history'", "other 0 0 belongs to nothing"),
}


def no_message(backend: str) -> str:
    """Bytes that are no message of protobuf, as the database writes them in SQL."""
    return "X'ffff'" if backend == "sqlite" else "'\\xffff'::bytea"


def two_artifacts() -> Task:
    given = task(parts=2)
    given.artifacts.append(Artifact(artifact_id="b", parts=[Part(text="x"), Part(text="y")]))
    return given


@pytest.mark.parametrize("spoilt", SPOILT)
def test_pieces_that_make_no_task(
    tasks: PersistTaskStore, do: Do, execute: Execute, backend: str, database_url: str, spoilt: str
) -> None:
    do(tasks.save(two_artifacts(), of("ann")))
    statement, reason = SPOILT[spoilt]
    assert execute(statement.format(no_message(backend)))
    calls: list[Any] = [tasks.get("t", of("ann")), tasks.list(ListTasksRequest(), of("ann"))]
    for call in calls:
        with pytest.raises(StoreCorrupt, match=f"the task 't': .*{reason}"):
            do(call)
    with Store.open(database_url) as look:
        found = {one.code for one in doctor(look)}
    assert ("task_pieces" in found) == ("belongs to nothing" in reason and spoilt != "the kind")
    do(tasks.save(two_artifacts(), of("ann")))
    if spoilt not in ("a message", "an artifact", "a part"):  # what seems to be stored is not written again
        assert do(tasks.get("t", of("ann"))) == two_artifacts()


def test_a_webhook_that_is_none(store: Store | AsyncStore, do: Do, execute: Execute, backend: str) -> None:
    hooks = PersistPushNotificationConfigStore(store)
    do(hooks.set_info("t", TaskPushNotificationConfig(id="1", url="https://example.com"), of("ann")))
    assert execute(f"UPDATE agent_task_webhooks SET data = {no_message(backend)}") == 1
    calls: list[Any] = [hooks.get_info("t", of("ann")), hooks.get_info_for_dispatch("t")]
    for call in calls:
        with pytest.raises(StoreCorrupt, match="the webhook '1': it cannot be read"):
            do(call)


def test_fields_of_a_later_release_are_kept(tasks: PersistTaskStore, do: Do) -> None:
    given = task(parts=2)
    messages: list[Any] = [given, given.status, given.history[0], given.artifacts[0], given.artifacts[0].parts[1]]
    for message in messages:
        message.MergeFromString(NEW_FIELD)
    do(tasks.save(given, of("ann")))
    found = do(tasks.get("t", of("ann")))
    assert found == given
    assert found.SerializeToString(deterministic=True) == given.SerializeToString(deterministic=True)
    assert found.SerializeToString().count(NEW_FIELD) == len(messages)


def test_a_token_nested_too_deep_is_refused(tasks: PersistTaskStore, do: Do) -> None:
    token = urlsafe_b64encode(b"[" * 100_000).decode().rstrip("=")
    with pytest.raises(InvalidParamsError, match="no token of a list of tasks"):
        do(tasks.list(ListTasksRequest(page_token=token), of("ann")))


def test_arguments_of_a_wrong_kind(store: Store | AsyncStore, tasks: PersistTaskStore, do: Do) -> None:
    hooks = PersistPushNotificationConfigStore(store)
    ann = of("ann")
    config = TaskPushNotificationConfig(id="1", url="https://example.com")
    wrong: Any
    for wrong in (5, b"t", ["t"]):
        unnamed: dict[str, Any] = {"owner_resolver": lambda _, wrong=wrong: wrong}
        calls: dict[str, Any] = {
            "task: expected a Task": tasks.save(wrong, ann),
            "task_id": tasks.get(wrong, ann),
            "task_id: expected text": tasks.delete(wrong, ann),
            "notification_config": hooks.set_info("t", wrong, ann),
            "task_id:": hooks.set_info(wrong, config, ann),
            "task_id: expected": hooks.get_info(wrong, ann),
            "task_id: e": hooks.get_info_for_dispatch(wrong),
            "config_id": hooks.delete_info("t", ann, wrong),
            "owner: expected text": PersistTaskStore(store, **unnamed).save(task(), ann),
            "owner": PersistPushNotificationConfigStore(store, **unnamed).set_info("t", config, ann),
        }
        for reason, call in calls.items():
            with pytest.raises(InvalidParamsError, match=reason) as caught:
                do(call)
            assert isinstance(caught.value, InvalidValue)
    assert do(tasks.list(ListTasksRequest(), ann)).total_size == 0
