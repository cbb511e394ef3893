"""Random histories end as they do in the stores of the SDK, in memory and in a database."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from a2a.server.context import ServerCallContext
from a2a.server.tasks import DatabaseTaskStore, InMemoryPushNotificationConfigStore, InMemoryTaskStore
from a2a.types.a2a_pb2 import (
    Artifact,
    ListTasksRequest,
    Message,
    Part,
    Role,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
)
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import create_async_engine

from persist import Store
from persist.integrations.a2a import PersistPushNotificationConfigStore, PersistTaskStore, TaskEnded
from persist.integrations.a2a.task_store import FINAL
from tests.integrations.a2a.scenes import of

OWNERS, IDS = ("", "ann", "bob"), ("t1", "t2", "T3", "é")
STATES = (
    TaskState.TASK_STATE_SUBMITTED,
    TaskState.TASK_STATE_WORKING,
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_FAILED,
)
RANDOM = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


PARTS = st.lists(st.sampled_from(["a", "b\x00", "ü"]).map(lambda text: Part(text=text)), max_size=3)
TASKS = st.builds(
    lambda id, context, state, at, said, made: Task(
        id=id,
        context_id=context,
        status=TaskStatus(state=state, timestamp=None if at is None else Timestamp(seconds=at, nanos=at * 1000)),
        history=[Message(message_id=str(n), role=Role.ROLE_USER, parts=parts) for n, parts in enumerate(said)],
        artifacts=[Artifact(artifact_id=str(n), name="n", parts=parts) for n, parts in enumerate(made)],
    ),
    st.sampled_from(IDS),
    st.sampled_from(["c1", "c2"]),
    st.sampled_from(STATES),
    st.sampled_from([None, 1, 2, 3]),
    st.lists(PARTS, max_size=3),
    st.lists(PARTS, max_size=2),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), st.sampled_from(OWNERS), TASKS),
        st.tuples(st.just("delete"), st.sampled_from(OWNERS), st.sampled_from(IDS)),
    ),
    min_size=1,
    max_size=12,
)
ASKED = st.builds(
    lambda context, state, since, size: ListTasksRequest(
        context_id=context,
        status=state,
        status_timestamp_after=None if since is None else Timestamp(seconds=since),
        page_size=size,
    ),
    st.sampled_from(["", "c1"]),
    st.sampled_from([TaskState.TASK_STATE_UNSPECIFIED, *STATES]),
    st.sampled_from([None, 2]),
    st.sampled_from([1, 2, 50]),
)


@pytest.fixture
def one_store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        yield store


async def pages(store: Any, asked: ListTasksRequest, context: ServerCallContext) -> list[Any]:
    found, token = [], ""
    while True:
        request = ListTasksRequest()
        request.CopyFrom(asked)
        request.page_token = token
        page = await store.list(request, context)
        found.append((list(page.tasks), page.total_size, page.page_size))
        token = page.next_page_token
        if not token:
            return found


@RANDOM
@given(steps=STEPS, asked=ASKED)
def test_tasks_are_those_of_the_store_in_memory(one_store: Store, steps: list[Any], asked: ListTasksRequest) -> None:
    async def scene() -> None:
        ours, theirs = PersistTaskStore(one_store), InMemoryTaskStore()
        for what, owner, value in steps:
            if what == "delete":
                await ours.delete(value, of(owner))
                await theirs.delete(value, of(owner))
                continue
            before = await theirs.get(value.id, of(owner))
            if before is not None and before.status.state in FINAL and before.status.state != value.status.state:
                with pytest.raises(TaskEnded):
                    await ours.save(value, of(owner))
                continue
            await ours.save(value, of(owner))
            await theirs.save(value, of(owner))
        for owner in OWNERS:
            for id in IDS:
                assert await ours.get(id, of(owner)) == await theirs.get(id, of(owner))
            assert await pages(ours, asked, of(owner)) == await pages(theirs, asked, of(owner))
            for id in IDS:
                await ours.delete(id, of(owner))

    asyncio.run(scene())


@settings(RANDOM, max_examples=8)
@given(saved=st.lists(TASKS, max_size=6, unique_by=lambda task: task.id), asked=ASKED)
def test_tasks_are_those_of_the_store_in_a_database(one_store: Store, saved: list[Task], asked: ListTasksRequest) -> None:
    async def scene() -> None:
        engine = create_async_engine("sqlite+aiosqlite://")
        ours, theirs = PersistTaskStore(one_store), DatabaseTaskStore(engine)
        for task in saved:
            await ours.save(task, of("ann"))
            await theirs.save(task, of("ann"))
        assert await pages(ours, asked, of("ann")) == await pages(theirs, asked, of("ann"))
        for task in saved:
            assert await ours.get(task.id, of("ann")) == await theirs.get(task.id, of("ann"))
            assert await ours.get(task.id, of("bob")) is None
            await ours.delete(task.id, of("ann"))
        await engine.dispose()

    asyncio.run(scene())


@RANDOM
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["set", "delete", "delete all"]),
            st.sampled_from(OWNERS),
            st.sampled_from(["t1", "t2"]),
            st.sampled_from(["", "1", "2"]),
        ),
        max_size=10,
    )
)
def test_webhooks_are_those_of_the_store_in_memory(one_store: Store, steps: list[Any]) -> None:
    async def scene() -> None:
        ours, theirs = PersistPushNotificationConfigStore(one_store), InMemoryPushNotificationConfigStore()
        for number, (what, owner, task, id) in enumerate(steps):
            results: list[Any] = []
            for store in (ours, theirs):
                if what == "set":
                    config = TaskPushNotificationConfig(id=id, url=f"https://example.org/{number}", token="t")
                    results.append(await store.set_info(task, config, of(owner)))
                else:
                    await store.delete_info(task, of(owner), id if what == "delete" else None)
                    results.append(None)
            assert results[0] == results[1]
        for task in ("t1", "t2"):
            for owner in OWNERS:
                assert await ours.get_info(task, of(owner)) == await theirs.get_info(task, of(owner))
            found, wanted = await ours.get_info_for_dispatch(task), await theirs.get_info_for_dispatch(task)
            assert sorted(one.url for one in found) == sorted(one.url for one in wanted)
            for owner in OWNERS:
                await ours.delete_info(task, of(owner))

    asyncio.run(scene())
