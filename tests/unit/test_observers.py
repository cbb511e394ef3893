"""Observers by themselves: who is told of what, in which order, and what becomes of their exceptions."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from persist.db.concurrency.observers import Observers
from persist.errors import InvalidValue

Tell = Callable[[Observers, str, Any], None]


def tell_sync(observers: Observers, topic: str, value: Any) -> None:
    observers.tell(topic, value)


def tell_async(observers: Observers, topic: str, value: Any) -> None:
    asyncio.run(observers.tell_async(topic, value))


@pytest.fixture(params=[tell_sync, tell_async], ids=["sync", "async"])
def tell(request: pytest.FixtureRequest) -> Tell:
    told: Tell = request.param
    return told


@pytest.fixture
def observers() -> Observers:
    return Observers()


@pytest.fixture
def seen() -> list[Any]:
    return []


def test_each_is_told_in_the_order_of_adding(observers: Observers, seen: list[Any], tell: Tell) -> None:
    for name in "abc":
        observers.add("ended", lambda value, name=name: seen.append((name, value)))  # type: ignore[misc]  # a default that binds the loop variable
    tell(observers, "ended", 1)
    assert seen == [("a", 1), ("b", 1), ("c", 1)]


def test_a_topic_concerns_its_own_observers(observers: Observers, seen: list[Any], tell: Tell) -> None:
    assert not observers.wanted("ended")
    remove = observers.add("ended", seen.append)
    assert observers.wanted("ended")
    assert not observers.wanted("began")
    tell(observers, "began", 1)
    assert seen == []
    remove()
    assert not observers.wanted("ended")
    tell(observers, "ended", 2)
    assert seen == []


def test_a_remover_ends_its_own_registration_alone(observers: Observers, seen: list[Any], tell: Tell) -> None:
    first, second = (observers.add("ended", seen.append) for _ in range(2))
    tell(observers, "ended", 1)
    first()
    first()
    tell(observers, "ended", 2)
    second()
    observers.add("ended", seen.append)
    first()
    second()
    tell(observers, "ended", 3)
    assert seen == [1, 1, 2, 3]


def test_observers_that_are_equal_are_told_each(observers: Observers, tell: Tell) -> None:
    class Same:
        def __init__(self) -> None:
            self.told = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Same)

        __hash__ = None  # type: ignore[assignment]  # nor can it be a key

        def __call__(self, value: Any) -> None:
            self.told += 1

    one, two = Same(), Same()
    observers.add("ended", one)
    remove = observers.add("ended", two)
    tell(observers, "ended", 1)
    remove()
    tell(observers, "ended", 2)
    assert (one.told, two.told) == (2, 1)


def test_one_may_add_and_remove_others_while_it_is_told(observers: Observers, seen: list[Any], tell: Tell) -> None:
    removers: list[Callable[[], None]] = []

    def busy(value: Any) -> None:
        removers.append(observers.add("ended", seen.append))
        removers[0]()

    removers.append(observers.add("ended", busy))
    tell(observers, "ended", 1)
    assert seen == []  # told from the next one on
    tell(observers, "ended", 2)
    assert (seen, len(removers)) == ([2], 2)


@pytest.mark.parametrize("bad", [None, 7, "print", []])
def test_an_observer_is_a_function(observers: Observers, bad: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        observers.add("ended", bad)
    assert refused.value.path == "callback"
    assert not observers.wanted("ended")


def test_a_coroutine_function_is_awaited_before_the_next_is_told(observers: Observers, seen: list[Any]) -> None:
    async def slow(value: Any) -> None:
        await asyncio.sleep(0)
        seen.append("slow")

    observers.add("ended", slow)
    observers.add("ended", lambda value: seen.append("quick"))
    tell_async(observers, "ended", 1)
    assert seen == ["slow", "quick"]


def test_a_coroutine_function_that_fails_is_logged(
    observers: Observers, seen: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(value: Any) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("oh no")

    observers.add("ended", broken)
    observers.add("ended", seen.append)
    with caplog.at_level(logging.ERROR, logger="persist"):
        tell_async(observers, "ended", 1)
    assert seen == [1]
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["oh no"]


def test_without_a_loop_a_coroutine_function_is_logged_and_never_runs(
    observers: Observers, seen: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def never(value: Any) -> None:
        seen.append("ran")

    observers.add("ended", never)
    observers.add("ended", seen.append)
    with caplog.at_level(logging.ERROR, logger="persist"):
        observers.tell("ended", 1)
    assert seen == [1]
    assert ["AsyncStore" in record.getMessage() for record in caplog.records] == [True]


def test_one_whose_own_task_was_cancelled_concerns_nobody_else(
    observers: Observers, seen: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def waits_for_a_cancelled_task(value: Any) -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    observers.add("ended", waits_for_a_cancelled_task)
    observers.add("ended", seen.append)
    with caplog.at_level(logging.ERROR, logger="persist"):
        tell_async(observers, "ended", 1)
    assert seen == [1]
    assert len(caplog.records) == 1


def test_whoever_is_cancelled_while_an_observer_waits_is_cancelled(observers: Observers) -> None:
    waiting = asyncio.Event()

    async def waits(value: Any) -> None:
        waiting.set()
        await asyncio.sleep(60)

    async def main() -> None:
        observers.add("ended", waits)
        task = asyncio.create_task(observers.tell_async("ended", 1))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
