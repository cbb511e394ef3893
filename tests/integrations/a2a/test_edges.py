"""What the task store refuses, hides and leaves alone: arguments of wrong kinds, secrets, rows of others."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from a2a.types.a2a_pb2 import Artifact, ListTasksRequest, Part, Task, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError

from persist import AsyncStore, Store
from persist.errors import StoreCorrupt
from persist.integrations.a2a import InvalidTask, PersistPushNotificationConfigStore, PersistTaskStore
from persist.maintenance import doctor
from tests.integrations.a2a.scenes import of, task
from tests.integrations.kits import Do
from tests.integrations.telling import SECRET, require_silence
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors


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


# What is stored stands in no error of the stores of A2A, nor in those that one comes from.


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


# What other programs and other releases wrote: reported as such, or kept. And what callers may get wrong is refused.


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
