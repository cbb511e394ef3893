"""Tasks of A2A: owners apart, ends final, tokens an owner's own, and updates that write what is new."""

import asyncio
from collections.abc import Callable, Iterator

import anyio
import pytest
from a2a.types.a2a_pb2 import ListTasksRequest, Part, Task, TaskPushNotificationConfig

from persist import AsyncStore, Store
from persist.errors import UnsupportedEngine
from persist.integrations.a2a import PersistPushNotificationConfigStore, PersistTaskStore
from tests.integrations.a2a.scenes import of, task
from tests.integrations.kits import Do
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, require


def test_bytes_and_text_come_back_equal(tasks: PersistTaskStore, do: Do) -> None:
    whole = task("\x00 id", parts=2)
    whole.artifacts[0].parts.add().raw = bytes(range(256))
    whole.artifacts[0].parts.add().data.number_value = float("inf")
    whole.artifacts.add().artifact_id = ""
    whole.history.add()
    whole.metadata.update({"z": "\x00\ufdd0", "a": [1.5, None, {"": True}]})
    whole.status.timestamp.FromJsonString("0001-01-01T00:00:00.000000001Z")
    whole.status.message.message_id = "last"
    do(tasks.save(whole, of("ann\x00")))
    assert do(tasks.get("\x00 id", of("ann\x00"))) == whole
    listed = do(tasks.list(ListTasksRequest(), of("ann\x00")))
    assert list(listed.tasks) == [whole]
    bare = Task(id="bare")
    do(tasks.save(bare, of("")))
    assert do(tasks.get("bare", of(""))) == bare


@pytest.fixture
def one_store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        store.switch_events(True)
        yield store


def test_an_append_to_a_long_artifact_writes_its_new_part_alone(one_store: Store) -> None:
    """Counted in the log of events, which holds every row and every byte that is written."""
    tasks = PersistTaskStore(one_store)
    growing = task(parts=300, said=50)
    asyncio.run(tasks.save(growing, of("ann")))
    (stored,) = one_store.agent_tasks.tasks.latest().items
    stream = f"agent_task:{stored.id}"
    sizes = []
    for number in range(3):
        before = one_store.events.read(stream, limit=1000)[-1].seq
        growing.artifacts[0].parts.append(Part(text=f"new {number} " + "y" * 100))
        asyncio.run(tasks.save(growing, of("ann")))
        events = [event for event in one_store.events.read(stream, limit=1000) if event.seq > before]
        changes = [change for event in events for change in event.data["changes"]]
        assert [change["table"] for change in changes].count("agent_task_pieces") == 1
        assert len(changes) == 2
        sizes.append(len(str(changes)))
    assert max(sizes) < 2000  # of an artifact of 300,000 bytes
    assert asyncio.run(tasks.get("t", of("ann"))) == growing


def test_on_trio_a_store_serves_too(tasks: PersistTaskStore, store: Store | AsyncStore) -> None:
    async def scene() -> None:
        await tasks.save(task(), of("ann"))
        assert await tasks.get("t", of("ann")) == task()

    if isinstance(store, Store):
        anyio.run(scene, backend="trio")
        return
    with pytest.raises(UnsupportedEngine):
        anyio.run(scene, backend="trio")


ROWS = (
    Row("save", 2, goal=2),
    Row("get", 2, goal=2),
    Row("list", 2, goal=2),
    Row("delete", 1, goal=2),
    Row("set_info", 1, goal=2),
    Row("get_info", 1, goal=2),
    Row("get_info_for_dispatch", 1, goal=2),
    Row("delete_info", 1, goal=2),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, do: Do) -> None:
    with Store.open(meter.url) as store:
        tasks, hooks, given = PersistTaskStore(store), PersistPushNotificationConfigStore(store), task(parts=3)
        hook = TaskPushNotificationConfig(id="1", url="https://example.org")
        do(hooks.set_info("t", hook, of("ann")))
        methods: dict[str, Callable[[], object]] = {
            "save": lambda: do(tasks.save(given, of("ann"))),
            "get": lambda: do(tasks.get("t", of("ann"))),
            "list": lambda: do(tasks.list(ListTasksRequest(), of("ann"))),
            "delete": lambda: do(tasks.delete("t", of("ann"))),
            "set_info": lambda: do(hooks.set_info("t", hook, of("ann"))),
            "get_info": lambda: do(hooks.get_info("t", of("ann"))),
            "get_info_for_dispatch": lambda: do(hooks.get_info_for_dispatch("t")),
            "delete_info": lambda: do(hooks.delete_info("t", of("ann"))),
        }
        methods["save"]()
        given.artifacts[0].parts.add().text = "new"
        require(complaint(row.name, row.bound, meter.flights(methods[row.name], bound=row.bound)))
