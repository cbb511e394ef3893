"""Tasks of A2A: owners apart, ends final, tokens an owner's own, and updates that write what is new."""

import asyncio
import threading
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
from a2a.types.a2a_pb2 import ListTasksRequest, Part, Task, TaskPushNotificationConfig, TaskState
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import encode_page_token

from persist import AsyncStore, Store
from persist.errors import Conflict, InvalidValue, UnsupportedEngine
from persist.integrations.a2a import InvalidTask, PersistPushNotificationConfigStore, PersistTaskStore, TaskEnded
from tests.integrations.a2a.scenes import of, task
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, metered, require

Do = Callable[[Awaitable[Any]], Any]


def test_owners_do_not_see_each_other(tasks: PersistTaskStore, do: Do) -> None:
    do(tasks.save(task(said=1), of("ann")))
    do(tasks.save(task(said=2), of("bob")))
    assert len(do(tasks.get("t", of("ann"))).history) == 1
    assert len(do(tasks.get("t", of("bob"))).history) == 2
    assert do(tasks.get("t", of(""))) is None
    do(tasks.delete("t", of("")))
    do(tasks.delete("t", of("bob")))
    assert do(tasks.get("t", of("bob"))) is None
    assert do(tasks.get("t", of("ann"))) is not None
    assert do(tasks.list(ListTasksRequest(), of("bob"))).total_size == 0


@pytest.mark.parametrize("end", ["COMPLETED", "CANCELED", "FAILED", "REJECTED"])
def test_a_final_state_is_final(tasks: PersistTaskStore, do: Do, end: str) -> None:
    final = TaskState.Value(f"TASK_STATE_{end}")
    do(tasks.save(task(state=final), of("ann")))
    for state in TaskState.values():
        if state == final:
            continue
        with pytest.raises(TaskEnded) as caught:
            do(tasks.save(task(state=state), of("ann")))
        assert isinstance(caught.value, InvalidParamsError)
        assert isinstance(caught.value, Conflict)
        assert caught.value.message == str(caught.value)
    do(tasks.save(task(state=final, parts=1), of("ann")))  # what belongs to the end may still come
    assert do(tasks.get("t", of("ann"))) == task(state=final, parts=1)


def test_tokens_are_an_owners_own(tasks: PersistTaskStore, do: Do) -> None:
    for id in "abc":
        do(tasks.save(task(id), of("ann")))
        do(tasks.save(task(id), of("bob")))
    token = do(tasks.list(ListTasksRequest(page_size=1), of("ann"))).next_page_token
    second = do(tasks.list(ListTasksRequest(page_size=1, page_token=token), of("ann")))
    assert [one.id for one in second.tasks] == ["b"]
    broken = [token[:-3], "x", "é", "🦀", encode_page_token("a"), urlsafe_b64encode(b"[1, 2, 3]").decode(), "W10", "bnVsbA"]
    for owner, given in [("bob", token), ("", token), *(("ann", one) for one in broken)]:
        with pytest.raises(InvalidParamsError) as caught:
            do(tasks.list(ListTasksRequest(page_token=given), of(owner)))
        assert isinstance(caught.value, InvalidValue)


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


def test_wrong_arguments_are_refused_with_both_classes(tasks: PersistTaskStore, do: Do) -> None:
    wrong: list[Callable[[], object]] = [
        lambda: PersistTaskStore("sqlite://"),  # type: ignore[arg-type]  # the point
        lambda: PersistPushNotificationConfigStore(None),  # type: ignore[arg-type]  # the point
        lambda: do(tasks.save(Task(), of(""))),
        lambda: do(tasks.save(task("x" * 601), of(""))),
        lambda: do(tasks.list(ListTasksRequest(page_size=-1), of(""))),
    ]
    for call in wrong:
        with pytest.raises(InvalidTask):
            call()


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


def test_savers_at_once_leave_one_of_their_tasks_whole(database_url: str) -> None:
    with Store.open(database_url) as store:
        tasks, errors = PersistTaskStore(store), list[BaseException]()

        def save(number: int) -> None:
            try:
                for said in range(5):
                    asyncio.run(tasks.save(task(said=number * 10 + said), of("ann")))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        found = asyncio.run(tasks.get("t", of("ann")))
        assert found is not None
        assert found == task(said=len(found.history))


def test_on_trio_a_store_serves_too(tasks: PersistTaskStore, store: Store | AsyncStore) -> None:
    async def scene() -> None:
        await tasks.save(task(), of("ann"))
        assert await tasks.get("t", of("ann")) == task()

    if isinstance(store, Store):
        anyio.run(scene, backend="trio")
        return
    with pytest.raises(UnsupportedEngine):
        anyio.run(scene, backend="trio")


def test_a_cancelled_save_is_whole_or_nothing(tasks: PersistTaskStore, runner: asyncio.Runner) -> None:
    async def scene() -> None:
        for delay in range(12):
            given = task(f"t{delay}", parts=5)
            running = asyncio.ensure_future(tasks.save(given, of("ann")))
            await asyncio.sleep(delay / 3000)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert await tasks.get(f"t{delay}", of("ann")) in (None, given)

    runner.run(scene())


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


@pytest.fixture
def meter(postgres_url: str) -> Iterator[Meter]:
    with metered(postgres_url) as meter:
        yield meter


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
