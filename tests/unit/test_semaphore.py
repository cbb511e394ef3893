"""The semaphore on several event loops, all run by one thread, step by step: every interleaving can be written down."""

import asyncio
import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persist.db.concurrency.semaphore import Lease, Semaphore
from persist.db.concurrency.worker_threads import Timed, Timer
from tests.at_once import together
from tests.examples import examples


class StillTimer(Timer):
    """Nobody looks but the test."""

    def watch(self, timed: Timed) -> None:
        """Nothing."""


class Scene:
    """Loops that run when they are told to, and tasks on them that take a permit and keep it until they are told to leave."""

    def __init__(self, loops: int, permits: int) -> None:
        self.semaphore = Semaphore(permits, StillTimer())
        self.permits = permits
        self.open = [asyncio.new_event_loop() for _ in range(loops)]
        for loop in self.open:
            loop.set_exception_handler(lambda *_: None)  # that a task is destroyed while it waits is what is tried here
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.leave: dict[int, asyncio.Event] = {}
        self.inside: list[int] = []
        self.came: list[int] = []
        self.kept: list[asyncio.Task[None]] = []

    def step(self, loop: asyncio.AbstractEventLoop) -> None:
        """What is ready now runs, once."""
        loop.call_soon(loop.stop)
        loop.run_forever()

    def ask(self, loop: asyncio.AbstractEventLoop) -> int:
        number = len(self.leave)
        leave = self.leave[number] = asyncio.Event()

        async def hold() -> None:
            lease = Lease(loop)
            if not self.semaphore.enter(lease):
                await self.semaphore.wait(lease)
            try:
                self.inside.append(number)
                self.came.append(number)
                assert len(self.inside) <= self.permits
                await leave.wait()
            finally:
                if number in self.inside:
                    self.inside.remove(number)
                self.semaphore.release(lease)

        self.tasks[number] = loop.create_task(hold())
        self.step(loop)
        return number

    def close(self, loop: asyncio.AbstractEventLoop, *, keep: bool) -> None:
        """Without a word to its tasks; somebody keeps them, or the garbage collector ends them."""
        self.open.remove(loop)
        loop.close()
        for number, task in list(self.tasks.items()):
            if task.get_loop() is loop:
                if number in self.inside:
                    self.inside.remove(number)
                if keep:
                    self.kept.append(task)
                del self.tasks[number]

    def settle(self, *, look: bool = True) -> None:
        """Whoever is inside leaves, until nobody comes any more. Where every loop lives nobody has to look for that."""
        for _ in range(3 * len(self.leave) + 6):
            for number in self.inside:
                self.leave[number].set()
            for loop in self.open * 4:
                self.step(loop)
            if look:
                self.semaphore.recover_permits(math.inf)

    def check_everybody_came(self) -> None:
        for number, task in self.tasks.items():
            assert task.done(), f"{number} waits for ever"
            assert task.cancelled() or task.exception() is None
            assert task.cancelled() or number in self.came
        lease = Lease(self.open[0])
        assert all(self.semaphore.enter(lease) for lease in [lease, *(Lease(self.open[0]) for _ in range(self.permits - 1))])
        assert not self.semaphore.enter(Lease(self.open[0]))


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Each scene collects garbage: only its own is looked at, and not all that other tests left in the process."""
    gc.collect()
    gc.freeze()


@contextmanager
def scene(loops: int = 3, permits: int = 1) -> Iterator[Scene]:
    scene = Scene(loops, permits)
    try:
        yield scene
    finally:
        for loop in scene.open:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            for _ in range(3):
                scene.step(loop)
            loop.close()
        scene.kept.clear()
        scene.tasks.clear()
        gc.collect()


LOOPS = st.integers(0, 2)
DEEDS = st.one_of(
    *[st.tuples(st.just("ask"), LOOPS)] * 3,
    *[st.tuples(st.just("step"), LOOPS)] * 2,
    st.tuples(st.sampled_from(["leave", "cancel"]), st.integers(0, 11)),
    st.tuples(st.sampled_from(["close", "close and keep"]), st.integers(1, 2)),
    st.tuples(st.sampled_from(["look", "collect"]), st.just(0)),
)


@settings(max_examples=examples(100))
@given(deeds=st.lists(DEEDS, max_size=40), permits=st.integers(1, 2), mortal=st.booleans())
def test_whatever_happens_every_task_that_lives_gets_in(deeds: list[tuple[str, int]], permits: int, mortal: bool) -> None:
    with scene(permits=permits) as here:
        loops = list(here.open)
        for deed, which in deeds:
            if deed in ("leave", "cancel"):
                if here.tasks:
                    number = sorted(here.tasks)[which % len(here.tasks)]
                    here.leave[number].set() if deed == "leave" else here.tasks[number].cancel()
            elif deed == "look":
                here.semaphore.recover_permits(math.inf)
            elif deed == "collect":
                gc.collect(0)
            elif deed in ("ask", "step", "close", "close and keep") and loops[which] in here.open:
                if deed == "ask":
                    here.ask(loops[which])
                elif deed == "step":
                    here.step(loops[which])
                elif mortal:
                    here.close(loops[which], keep=deed != "close")
        here.settle(look=len(here.open) < len(loops))
        here.check_everybody_came()


def test_they_come_in_the_order_in_which_they_asked_whichever_loop_it_was() -> None:
    with scene() as here:
        asked = [here.ask(here.open[number % 3]) for number in (0, 1, 2, 2, 1, 0, 1, 1, 2)]
        here.settle()
        assert here.came == asked


def test_who_is_cancelled_between_being_called_and_coming_keeps_nobody_waiting() -> None:
    with scene() as here:
        first, second, third = (here.ask(loop) for loop in here.open)
        here.leave[first].set()
        here.step(here.open[0])
        here.step(here.open[0])  # it has left, and the second is called
        here.tasks[second].cancel()
        here.step(here.open[1])
        here.step(here.open[1])
        here.step(here.open[2])
        here.step(here.open[2])
        assert here.came == [first, third]


def test_a_loop_that_stands_still_is_passed_over_and_comes_first_when_it_goes_on() -> None:
    with scene() as here:
        still, other = here.open[1], here.open[2]
        first, second, third, fourth = here.ask(here.open[0]), here.ask(still), here.ask(other), here.ask(other)
        here.leave[first].set()
        here.step(here.open[0])
        here.step(here.open[0])
        here.semaphore.recover_permits(math.inf)
        here.step(other)
        here.step(other)
        assert here.inside == [third]
        here.step(still)
        here.step(still)
        here.leave[third].set()
        here.step(other)
        here.step(other)
        here.step(still)
        here.step(still)
        assert here.inside == [second]
        here.settle()
        assert here.came == [first, third, second, fourth]


def test_patience_ends_while_others_keep_their_place() -> None:
    semaphore = Semaphore(1, StillTimer())

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        holder, seen = Lease(loop), []
        assert semaphore.enter(holder)

        async def hope(patience: float | None) -> None:
            lease = Lease(loop)
            assert not semaphore.enter(lease)
            try:
                await semaphore.wait(lease, patience)
            except TimeoutError:
                seen.append("late")
            else:
                seen.append("in")
                semaphore.release(lease)

        short, long = asyncio.create_task(hope(0.01)), asyncio.create_task(hope(None))
        await short
        semaphore.release(holder)
        await long
        return seen

    assert asyncio.run(asyncio.wait_for(main(), 60)) == ["late", "in"]


def test_a_line_that_moves_wears_out_nobody_s_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("persist.db.concurrency.semaphore.time.monotonic", lambda: now)
    semaphore = Semaphore(1, StillTimer())
    loop = asyncio.new_event_loop()
    holder, waiting, gone = Lease(loop), Lease(loop), Lease(loop)
    assert [semaphore.enter(lease) for lease in (holder, waiting, gone)] == [True, False, False]
    now = 110.0
    assert semaphore.left_of(15.0, 100.0) == 5.0
    semaphore.release(gone)  # who only waited moves nothing
    assert semaphore.left_of(15.0, 100.0) == 5.0
    semaphore.release(holder)
    assert semaphore.left_of(15.0, 100.0) == 15.0
    assert semaphore.left_of(15.0, 109.0) == 15.0
    loop.close()


def test_threads_with_a_loop_each_are_never_inside_together() -> None:
    timer = Timer()
    semaphore = Semaphore(1, timer)
    inside, maximum = 0, 0
    done: list[None] = []

    async def main() -> None:
        nonlocal inside, maximum

        async def once() -> None:
            nonlocal inside, maximum
            lease = Lease(asyncio.get_running_loop())
            if not semaphore.enter(lease):
                await semaphore.wait(lease)
            inside += 1
            maximum = max(maximum, inside)
            await asyncio.sleep(0)
            inside -= 1
            done.append(None)
            semaphore.release(lease)

        await asyncio.gather(*(once() for _ in range(50)))

    together([partial(asyncio.run, main()) for _ in range(6)])
    timer.stop()
    assert (maximum, len(done)) == (1, 300)
