"""What PersistSaver promises beyond the suite: lists, trimming, the order of writes, histories, listings and event loops."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.checkpoint.base import DeltaChannelHistory
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from persist import AsyncStore, Store
from persist.errors import Conflict, InvalidValue
from persist.framework_state.checkpoints.schemas import Blob
from persist.integrations.langgraph import PersistSaver
from tests.integrations.langgraph.scenes import checkpoint, config, messages, metadata, put

Call = Callable[..., Any]


def test_a_copy_stands_by_itself(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", {"said": messages(5)})
    call(saver.put_writes, config(id="1"), [("said", "x")], "task")
    call(saver.copy_thread, "t", "u")
    put(call, saver, "2", {"said": messages(6)}, parent="1", thread="u")
    call(saver.delete_thread, "t")
    assert call(saver.get_tuple, config("t")) is None
    found = call(saver.list, config("u"))
    assert [one.checkpoint["channel_values"]["said"] for one in found] == [messages(6), messages(5)]
    with pytest.raises(Conflict):
        call(saver.copy_thread, "u", "u")
    call(saver.copy_thread, "absent", "v")
    assert call(saver.get_tuple, config("v")) is None


def test_prune_refuses_what_it_does_not_know(call: Call, saver: PersistSaver) -> None:
    with pytest.raises(InvalidValue, match="thread_ids"):
        call(saver.prune, "t")
    with pytest.raises(ValueError, match="'keep_some'"):
        call(saver.prune, ["t"], strategy="keep_some")


def delta_thread(saver: Any, call: Call) -> None:
    """A channel that is stored whole at 2 and at 5 only; every step belongs to a run of its own."""
    for number in range(1, 8):
        snapshot = number in (2, 5)
        values = {"log": _DeltaSnapshot([f"whole {number}"])} if snapshot else {}
        more: dict[str, Any] = {} if snapshot else {"counters_since_delta_snapshot": {"log": [1, 1]}}
        versions = {"log": f"{number}"}
        at = config(id=f"{number - 1}" if number > 1 else None)
        call(saver.put, at, checkpoint(f"{number}", values, versions), metadata(run_id=f"run-{number}", **more), versions)
        call(saver.put_writes, config(id=f"{number}"), [("log", f"b{number}"), ("other", 0)], "b", "~2")
        call(saver.put_writes, config(id=f"{number}"), [("log", f"a{number}")], "z", "~1")


def history(saver: Any, call: Call, id: str | None = None) -> Any:
    return call(saver.get_delta_channel_history, config=config(id=id), channels=["log", "absent"])


@pytest.mark.parametrize("id", ["1", "2", "3", "5", "7", None])
def test_the_history_of_a_channel_is_that_of_the_in_memory_saver(call: Call, saver: PersistSaver, id: str | None) -> None:
    reference = InMemorySaver()
    delta_thread(saver, call)
    delta_thread(reference, lambda method, *args, **options: method(*args, **options))
    expected = reference.get_delta_channel_history(config=config(id=id), channels=["log", "absent"])
    assert history(saver, call, id) == expected


def test_the_history_of_nothing_is_empty(call: Call, saver: PersistSaver) -> None:
    assert history(saver, call) == {"log": {"writes": []}, "absent": {"writes": []}}
    assert call(saver.get_delta_channel_history, config=config(), channels=[]) == {}


def test_pruning_keeps_the_ancestors_back_to_a_snapshot(call: Call, saver: PersistSaver) -> None:
    delta_thread(saver, call)
    before: dict[str, DeltaChannelHistory] = history(saver, call)
    call(saver.prune, ["t"])
    assert [one.checkpoint["id"] for one in call(saver.list, config())] == ["7", "6", "5"]
    assert history(saver, call) == before


def test_deleting_runs_keeps_what_others_are_rebuilt_from(call: Call, saver: PersistSaver) -> None:
    delta_thread(saver, call)
    before = history(saver, call)
    call(saver.delete_for_runs, ["run-1", "run-3", "run-5", "run-6"])
    assert [one.checkpoint["id"] for one in call(saver.list, config())] == ["7", "6", "5", "4", "3", "2"]
    assert history(saver, call) == before


def test_a_long_listing_comes_page_by_page(call: Call, saver: PersistSaver) -> None:
    for number in range(55):
        put(call, saver, f"{number:03}", {"n": number}, thread=f"{number % 3}", step=number % 2)
    everything = [one.checkpoint["id"] for one in call(saver.list, None)]
    assert everything == [f"{number:03}" for number in range(55)][::-1]
    odd = [one.checkpoint["id"] for one in call(saver.list, None, filter={"step": 1}, limit=23)]
    assert odd == [f"{number:03}" for number in range(53, 0, -2)][:23]
    assert [one.checkpoint["id"] for one in call(saver.list, None, limit=0)] == []
    assert [one.checkpoint["id"] for one in call(saver.list, config("1"), before=config(id="004"))] == ["001"]


def test_a_paused_synchronous_listing_holds_nothing(database_url: str) -> None:
    with Store.open(database_url) as store:
        saver = PersistSaver(store)
        for number in range(3):
            saver.put(config(), checkpoint(f"{number}"), metadata(), {})
        listing = saver.list(config())
        next(listing)
        saver.put(config(), checkpoint("9"), metadata(), {})
        assert len(list(listing)) == 2


def test_synchronous_methods_over_an_async_store(database_url: str) -> None:
    """They work in another thread, and refuse in that of the loop instead of waiting for it for ever."""

    async def run() -> list[str]:
        async with AsyncStore.open(database_url) as store:
            saver = PersistSaver(store)
            with pytest.raises(asyncio.InvalidStateError):
                saver.put(config(), checkpoint("1"), metadata(), {})
            await asyncio.to_thread(saver.put, config(), checkpoint("1"), metadata(), {})
            return [one.checkpoint["id"] async for one in saver.alist(config())]

    assert asyncio.run(run()) == ["1"]


def test_the_loop_goes_on_while_a_coroutine_waits_for_the_database(database_url: str) -> None:
    async def run() -> int:
        with Store.open(database_url) as store, Store.open(database_url) as other:
            saver = PersistSaver(store)
            holding, free = threading.Event(), threading.Event()

            def hold() -> None:
                with other.begin() as tx:
                    tx.checkpoints.threads.copy("nobody", "nobody")
                    tx.checkpoints.states.put("t", "0", head=_head())
                    holding.set()
                    free.wait(30)

            holder = threading.Thread(target=hold)
            holder.start()
            await asyncio.to_thread(holding.wait, 30)
            putting = asyncio.create_task(saver.aput(config(), checkpoint("1"), metadata(), {}))
            for _ in range(20):
                await asyncio.sleep(0)
            waited = not putting.done()
            free.set()
            await putting
            holder.join()
            return int(waited) + len([one async for one in saver.alist(config())])

    assert asyncio.run(run()) == 3


def _head() -> Blob:
    return Blob(*JsonPlusSerializer().dumps_typed(({"v": 4, "id": "0"},)))
