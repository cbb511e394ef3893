"""Threads and processes that want the session of one person, or a task: they get the same one, and nobody gets it twice."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from itertools import chain, pairwise
from threading import Barrier
from typing import Any

import pytest

from persist import Store
from persist.errors import NotFound
from persist.messaging.schemas import MessagingSession
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.at_once import together
from tests.concurrency.telemetry_worker import START, STATUSES
from tests.contract.conftest import Raw
from tests.contract.messaging.scenes import KEY, THREADS, add, end, history, stored, talk, touch
from tests.subprocesses import output_of

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> FrozenClock:
    """One instant for all, which a test can move; processes have their own clocks."""
    return FrozenClock()


def sessions(store: Store, active: bool) -> list[MessagingSession]:
    with store.read() as tx:
        return tx.messaging.sessions.list(active=active, limit=1000).items


@pytest.mark.parametrize("thread", THREADS)
def test_many_threads_make_one_session(store: Store, open_store: Callable[..., Store], thread: str | None) -> None:
    """By two handles, which share nothing but the database."""
    handles = (store, open_store()) * 4
    for user in ("U1", "U2", "U3"):
        made = together([partial(talk, handle, user_id=user, thread_id=thread) for handle in handles])
        assert len({session.id for session in made}) == 1
    assert len(sessions(store, active=True)) == 3
    assert sessions(store, active=False) == []


@pytest.mark.parametrize("thread", THREADS)
def test_many_threads_replace_a_stale_session_by_one(store: Store, clock: FrozenClock, thread: str | None) -> None:
    for round in range(3):
        old = talk(store, thread_id=thread)
        clock.advance(delta=HOUR)
        made = together([lambda: talk(store, thread_id=thread)] * 8)
        (active,) = sessions(store, active=True)
        assert {session.id for session in made} == {active.id}
        assert active.id != old.id
        assert len(sessions(store, active=False)) == round + 1


def test_threads_whose_clocks_go_on_leave_one_active_session(open_store: Callable[..., Store], clock: FrozenClock) -> None:
    store = open_store(clock=lambda: clock.advance(seconds=0.001))

    def replace() -> None:
        for _ in range(20):
            talk(store, idle=timedelta())

    together([replace] * 6)
    assert len(sessions(store, active=True)) == 1


def first_and_second(store: Store, commits: bool, verb: Callable[[Any], Any], other: Callable[[], Any]) -> list[Any]:
    """What a verb gives in a transaction that ends after the other one has begun, and what that one gives."""
    made, waiting = threading.Event(), threading.Event()

    def first() -> Any:
        with suppress(InterruptedError), store.begin() as tx:
            found = verb(tx)
            made.set()
            assert waiting.wait(30)
            if not commits:
                raise InterruptedError
        return found

    def second() -> Any:
        assert made.wait(30)
        waiting.set()
        return other()

    return together([first, second])


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_whoever_comes_second_waits_for_the_first(store: Store, clock: FrozenClock, stale: bool, commits: bool) -> None:
    """Its session is taken over when it commits, and not when it rolls back."""
    if stale:
        talk(store)
        clock.advance(delta=HOUR)
    one, two = first_and_second(store, commits, lambda tx: tx.messaging.sessions.get_or_create(**KEY).id, lambda: talk(store).id)
    assert (one == two) is commits
    assert [session.id for session in sessions(store, active=True)] == [two]
    assert len(sessions(store, active=False)) == int(stale)


def test_reuse_does_not_wait_for_whoever_uses_the_session(postgres_url: str, clock: FrozenClock) -> None:
    """SQLite has one writer at a time, so there it does."""
    with Store.open(postgres_url, clock=clock, migrate=True) as store:
        session = talk(store)
        touched, done = threading.Event(), threading.Event()

        def use() -> bool:
            with store.begin() as tx:
                assert tx.messaging.sessions.touch(session.id)
                touched.set()
                return done.wait(30)

        def reuse() -> str:
            assert touched.wait(30)
            id = talk(store).id
            done.set()
            return id

        assert together([use, reuse]) == [True, session.id]


@pytest.mark.parametrize("commits", [True, False])
def test_a_second_delivery_waits_for_the_first(store: Store, commits: bool) -> None:
    session = talk(store).id
    one, two = first_and_second(
        store,
        commits,
        lambda tx: tx.messaging.messages.add(session, role="user", content="first", platform_message_id="1").id,
        lambda: add(store, session, "second", platform_message_id="1").id,
    )
    assert [(message.id, message.content) for message in history(store, session)] == [(two, "first" if commits else "second")]
    assert commits is False or one == two


def test_no_touch_is_lost(store: Store) -> None:
    id = talk(store).id
    assert together([lambda: [touch(store, id) for _ in range(25)]] * 8) == [[True] * 25] * 8
    assert stored(store, id).message_count == 200


def test_one_of_many_ends_a_session(store: Store) -> None:
    id = talk(store).id
    assert sorted(together([lambda: end(store, id)] * 8)) == [False] * 7 + [True]


def test_messages_of_many_threads_are_all_there(store: Store) -> None:
    id = talk(store).id
    together([lambda name=name: [add(store, id, f"{name}{n}") for n in range(20)] for name in "abcdef"])  # type: ignore[misc]  # a default that binds the loop variable
    said = history(store, id, limit=1000)
    assert sorted(message.content for message in said) == sorted(f"{name}{n}" for name in "abcdef" for n in range(20))
    for name in "abcdef":
        own = [message.content for message in said if message.content.startswith(name)]
        assert own == [f"{name}{n}" for n in range(20)]


def old_ones(store: Store, clock: FrozenClock, count: int) -> list[str]:
    ids = [talk(store, user_id=f"U{number}").id for number in range(count)]
    for id in ids:
        add(store, id)
        end(store, id)
    clock.advance(delta=timedelta(days=8))
    return ids


def clean(store: Store) -> int:
    with store.begin() as tx:
        return tx.messaging.sessions.cleanup_stale()


def test_each_old_session_is_cleaned_up_once(store: Store, clock: FrozenClock) -> None:
    old_ones(store, clock, 20)
    assert sum(together([lambda: clean(store)] * 4)) == 20
    assert sessions(store, active=False) == []


def test_a_message_for_a_session_that_is_cleaned_up_is_refused_or_goes_with_it(store: Store, clock: FrozenClock) -> None:
    """Neither of the two ever fails on the foreign key."""
    ids = old_ones(store, clock, 30)

    def say() -> int:
        refused = 0
        for id in ids:
            try:
                add(store, id, "late")
            except NotFound:
                refused += 1
        return refused

    results = together([say, lambda: clean(store)] * 2)
    assert sum(results[1::2]) + clean(store) == 30  # the last one takes those that were just written to
    assert sessions(store, active=False) == []
    for id in ids:
        with pytest.raises(NotFound):
            history(store, id)


def test_someone_who_comes_back_meets_the_cleaning(store: Store, clock: FrozenClock) -> None:
    for number in range(20):
        add(store, talk(store, user_id=f"U{number}").id)
    clock.advance(delta=timedelta(days=8))

    def come_back() -> list[str]:
        made = []
        for number in range(20):
            with store.begin() as tx:
                id = tx.messaging.sessions.get_or_create(**{**KEY, "user_id": f"U{number}"}).id
                tx.messaging.messages.add(id, role="user", content="back")
            made.append(id)
        return made

    results = together([come_back, lambda: [clean(store) for _ in range(10)]] * 2)
    assert results[0] == results[2]
    clean(store)
    assert sorted(session.id for session in sessions(store, active=True)) == sorted(results[0])
    assert sessions(store, active=False) == []
    assert [len(history(store, id)) for id in results[0]] == [2] * 20


@pytest.mark.one_server
@pytest.mark.parametrize("backend", ["postgres"])
def test_a_session_that_ends_while_others_are_cleaned_up_is_left_for_the_next_time(
    store: Store, database_url: str, clock: FrozenClock
) -> None:
    """Where several write at once, one may end after the messages of the others were looked for."""
    lasting = talk(store, user_id="lasting").id
    add(store, lasting, "said before")
    old_ones(store, clock, 1)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    with closing(Raw(database_url)) as raw, ThreadPoolExecutor(1) as pool:
        raw.rows("BEGIN")
        raw.rows("UPDATE messaging_sessions SET active = false WHERE id = ?", lasting)
        raw.rows("SELECT id FROM messaging_messages WHERE session_id <> ? FOR UPDATE", lasting)
        cleaning = pool.submit(clean, store)
        while not cleaning.done() and not raw.value(waits):
            time.sleep(0.01)
        raw.rows("COMMIT")
        assert cleaning.result(30) == 1
    assert [message.content for message in history(store, lasting)] == ["said before"]
    assert clean(store) == 1


@pytest.mark.parametrize("backend", ["postgres"])
def test_cleaning_up_does_not_wait_for_a_session_in_use(store: Store, clock: FrozenClock) -> None:
    """Where several write at once; the session is left for the next time."""
    _, used, _ = old_ones(store, clock, 3)
    with store.begin() as tx:
        tx.messaging.messages.add(used, role="user", content="late")
        assert together([lambda: clean(store)]) == [2]
    assert [message.content for message in history(store, used)] == ["hi", "late"]
    assert clean(store) == 1


# Processes that want the same tasks, and that report of the same instance.


PROCESSES = 3
MANY = 8


def in_processes(url: str, command: str, processes: int = PROCESSES) -> list[Any]:
    """Run the worker's command in several processes at once -> what each reported."""

    def run(number: int) -> Any:
        return json.loads(output_of("tests.concurrency.telemetry_worker", command, url, f"box-{number}"))

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(run, range(processes)))


def queue(store: Store, count: int) -> list[str]:
    ids = [f"t{number:03}" for number in range(count)]
    with store.begin() as tx:
        tx.telemetry.tasks.poll([{"id": id, "source_id": "s", "kind": "k", "title": id} for id in ids], workspace_id="ws")
    return ids


def test_claimers_do_not_exceed_the_cap_together(store: Store, database_url: str) -> None:
    ids = queue(store, 20)
    assert sorted(chain.from_iterable(in_processes(database_url, "crowd"))) == ids[:3]


def test_of_claimers_with_leases_each_task_is_done_by_one_at_a_time(store: Store, database_url: str) -> None:
    """No two claims have the same token, and a task is ended once, by its last claim, however many instances stalled before."""
    ids = queue(store, 40)
    reports = in_processes(database_url, "lapse", MANY)
    claims = [tuple(claim) for claimed, _ in reports for claim in claimed]
    ends = {task: token for _, ended in reports for task, token in ended}
    assert len(claims) == len(set(claims))
    assert sum(len(ended) for _, ended in reports) == len(ids)
    last = {task: max(token for one, token in claims if one == task) for task in ids}
    assert ends == last
    assert sorted(claims) == [(task, token) for task in ids for token in range(1, last[task] + 1)]
    by = {task: f"box-{number}" for number, (_, ended) in enumerate(reports) for task, _ in ended}
    found = store.telemetry.tasks.list(workspace_id="ws")
    assert {task.id: (task.state, task.instance_name, task.outcome) for task in found} == {
        task: ("completed", box, box) for task, box in by.items()
    }


def test_reporters_of_one_instance_lose_nothing_and_repeat_nothing(store: Store, database_url: str) -> None:
    """Each status differs from the one before it, and every sample is in the sum."""
    made = in_processes(database_url, "report")
    with store.read() as tx:
        history = [entry.new_status for entry in tx.telemetry.status.history(limit=1000, instance_id="box")]
        totals = tx.telemetry.usage.totals(instance_id="box")
    assert sum(made) == len(history)
    assert all(one != next for one, next in pairwise(history))
    assert (totals.samples, totals.token_input) == (STATUSES, PROCESSES * STATUSES)


def test_of_reporters_in_a_tiny_window_each_finds_what_it_just_reported(database_url: str) -> None:
    """Their clocks run apart, and each adds to seconds that another one's trim is about to take."""
    threads, samples = 6, 25
    ready = Barrier(threads)

    def run(store: Store, number: int) -> int:
        found = 0
        ready.wait()
        for count in range(samples):
            at = START + timedelta(seconds=count % 7 if number % 2 else count * 1000 - number * 100_000)
            with store.begin() as tx:
                tx.telemetry.usage.sample(at=at, token_input=1, instance_id="box")
                found += tx.telemetry.usage.totals(at, at + timedelta(seconds=1), instance_id="box").samples
        return found

    settings = Settings(usage_samples_keep=2, usage_samples_trim_every=1)
    with Store.open(database_url, settings=settings) as store, ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(run, [store] * threads, range(threads))) == [samples] * threads
        with store.read() as tx:
            assert tx.telemetry.usage.totals(instance_id="box").samples == 2
