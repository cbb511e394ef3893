"""`persist.workflows.Worker`: handlers that fail, runs that wait, waiting for work, and stopping."""

import queue as queues
import threading
import warnings
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from persist import AsyncStore, Settings
from persist.errors import InvalidValue, LeaseLost, StoreInUse
from persist.workflows import Worker
from persist.workflows.schemas import RunStatus, WorkflowRun
from tests.async_portal import Portal
from tests.cases import each
from tests.contract.faces import every_way
from tests.contract.workers.working import PATIENCE, Working, seen, statuses
from tests.contract.workflows.scenes import ask, do, queue, stored

pytestmark = every_way


@pytest.fixture
def store(open_store: Any) -> Any:
    return open_store()


def test_a_handler_that_raises_fails_the_run(store: Any, portal: Portal) -> None:
    bad, good = queue(store, context={"ok": False}), queue(store, context={"ok": True})

    def handle(run: WorkflowRun) -> None:
        if not (run.context or {})["ok"]:
            raise ValueError("no good")

    Working(store, portal, {"build": handle}).run_until_idle()
    assert statuses(store, bad, good) == ["failed", "succeeded"]
    assert stored(store, bad).context == {"ok": False, "error": "ValueError: no good"}


@each("answer", [5, 0.5, "soon", timedelta.max, SystemExit(1), ZeroDivisionError()], ids=repr)
def test_a_retry_policy_whose_answer_cannot_be_used_fails_the_run(store: Any, portal: Portal, answer: Any) -> None:
    id = queue(store, max_attempts=3)

    def handle(run: WorkflowRun) -> None:
        raise ValueError("boom")

    def policy(run: WorkflowRun, error: BaseException) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    Working(store, portal, {"build": handle}, retry=policy).run_until_idle()
    run = stored(store, id)
    assert (run.status, run.attempt, run.context) == (RunStatus.FAILED, 1, {"error": "ValueError: boom"})


def test_a_retry_in_the_past_is_due_at_once(store: Any, portal: Portal) -> None:
    id = queue(store)
    attempts: list[int] = []

    def handle(run: WorkflowRun) -> None:
        attempts.append(run.attempt)
        if run.attempt == 1:
            raise ValueError("boom")

    Working(store, portal, {"build": handle}, retry=lambda run, error: timedelta(days=-1)).run_until_idle()
    assert attempts == [1, 2]
    assert statuses(store, id) == ["succeeded"]


class UntoldError(Exception):
    """An exception whose message ends the thread that reads it."""

    def __str__(self) -> str:
        raise SystemExit(1)


@each(
    ("error", "begin"),
    [
        (ValueError("x" * 3000), "ValueError: xxx"),
        (ValueError("\x01" * 3000), "ValueError: \x01\x01"),
        (type("E" * 100_000, (Exception,), {})("no good"), "EEE"),
        (UntoldError(), "UntoldError: "),
    ],
    ids=["long", "escaped", "name", "untold"],
)
@each("attempts", [None, 2])
def test_an_error_of_any_length_is_stored(
    open_store: Any, portal: Portal, error: Exception, begin: str, attempts: int | None
) -> None:
    store = open_store(settings=Settings(max_scratch_bytes=500))
    id = queue(store, max_attempts=attempts)

    def handle(run: WorkflowRun) -> None:
        raise error

    retry = {"retry": lambda run, error: timedelta(0)} if attempts else {}
    Working(store, portal, {"build": handle}, **retry).run_until_idle()
    run = stored(store, id)
    assert (run.status, run.attempt) == (RunStatus.FAILED, attempts or 1)
    assert (run.context or {})["error"].startswith(begin)


def test_a_coroutine_is_awaited_or_the_run_fails(store: Any, portal: Portal) -> None:
    id = queue(store)
    calls: list[str] = []

    async def handle(run: WorkflowRun) -> None:
        calls.append(run.id)

    target: Any = getattr(store, "_target", store)
    is_async = isinstance(target, AsyncStore)
    worker = Worker(target, {"build": lambda run: handle(run)})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if is_async:
            portal.call(lambda: worker.run(until_idle=True))  # type: ignore[arg-type, return-value]  # it is an AsyncWorker
        else:
            worker.run(until_idle=True)
    assert not [warning for warning in warned if issubclass(warning.category, RuntimeWarning)]
    if is_async:
        assert (statuses(store, id), calls) == (["succeeded"], [id])
    else:
        assert (statuses(store, id), calls) == (["failed"], [])
        assert "handlers.build: the handler returned a coroutine" in (stored(store, id).context or {})["error"]


def test_a_worker_of_a_store_refuses_coroutine_functions(store: Any) -> None:
    class Handler:
        async def __call__(self, run: WorkflowRun, config: object = None) -> None: ...

    target: Any = getattr(store, "_target", store)
    is_async = isinstance(target, AsyncStore)
    for handler in (Handler(), Handler().__call__, partial(Handler().__call__, config=1)):
        if is_async:
            assert Worker(target, {"build": handler}).name
        else:
            with pytest.raises(InvalidValue) as refused:
                Worker(target, {"build": handler})
            assert refused.value.path == "handlers.build"


# What a worker makes of runs that wait for their children, and of gates that expire.


def test_a_handler_that_joins_is_called_again_when_the_children_have_ended(store: Any, portal: Portal) -> None:
    calls: list[str] = []

    def release(run: WorkflowRun) -> None:
        calls.append(run.workflow_name)
        for target in ("linux", "mac"):
            options = {"status": "queued", "parent_run_id": run.id, "idempotency_key": f"{run.id}/{target}"}
            do(store, "create", "build", trigger_id=target, current_phase="start", **options)
        ended = do(store, "join", work.worker.lease(run))
        if ended is not None:
            do(store, "merge_scratch", run.id, {"built": ended.total}, lease=work.worker.lease(run))

    work = Working(store, portal, {"release": release, "build": lambda run: calls.append(run.workflow_name)})
    id = queue(store, workflow_name="release")
    work.run_until_idle()
    assert sorted(calls) == ["build", "build", "release", "release"]
    run = stored(store, id)
    assert (run.status, run.scratch, run.restart_count, run.attempt) == ("succeeded", {"built": 2}, 0, 1)
    assert statuses(store, *[child.id for child in ask(store, "children", id).items]) == ["succeeded"] * 2


def test_a_worker_closes_gates_that_expire(store: Any, portal: Portal, clock: Any) -> None:
    answers: list[Any] = []

    def build(run: WorkflowRun) -> None:
        with store.begin() as tx:
            lease, until = work.worker.lease(run), clock() + timedelta(hours=1)
            options = {"summary": "?", "lease": lease, "expires_at": until, "on_expiry": "resumed"}
            answer = tx.workflows.approvals.wait(run.id, "review", **options)
        if answer is not None:
            answers.append(answer.status)

    work = Working(store, portal, {"build": build})
    id = queue(store)
    work.run_until_idle()
    assert (statuses(store, id), answers) == (["paused"], [])
    clock.advance(delta=timedelta(hours=1))
    work.run_until_idle()
    assert (statuses(store, id), answers) == (["succeeded"], ["rejected"])


def test_an_idle_worker_hears_of_new_work(open_store: Any, portal: Portal) -> None:
    told = Settings(notify_followers=True)
    store, elsewhere = open_store(settings=told), open_store(settings=told)
    calls: queues.Queue[str] = queues.Queue()

    def handle(run: WorkflowRun) -> None:
        if not run.phase_history:
            lease = work.worker.lease(run)
            do(store, "append_phase", run.id, "asked", lease=lease)
            do(store, "pause", run.id, lease=lease)
        calls.put(run.id)

    work = Working(store, portal, {"build": handle}, poll=timedelta(hours=1))
    with work.at_work():
        for _ in range(3):
            id = queue(elsewhere)
            assert calls.get(timeout=PATIENCE) == id
            while stored(elsewhere, id).lease_owner is not None:
                pass
            do(elsewhere, "resume", id)
            assert calls.get(timeout=PATIENCE) == id
            while stored(elsewhere, id).status == RunStatus.RUNNING:
                pass


def test_stopping_waits_for_the_handlers(store: Any, portal: Portal) -> None:
    id = queue(store)
    began, go_on = threading.Event(), threading.Event()

    def handle(run: WorkflowRun) -> None:
        began.set()
        seen(go_on)

    work = Working(store, portal, {"build": handle})
    with work.at_work() as thread:
        seen(began)
        left = queue(store)
        work.stop()
        assert work.worker.is_stopping
        assert thread.is_alive()
        go_on.set()
        thread.join(PATIENCE)
    assert statuses(store, id, left) == ["succeeded", "queued"]


def test_after_the_time_of_grace_a_run_is_given_back(store: Any, portal: Portal) -> None:
    id = queue(store)
    began, go_on, refused = threading.Event(), threading.Event(), threading.Event()

    def handle(run: WorkflowRun) -> None:
        lease = work.worker.lease(run)
        began.set()
        seen(go_on)
        with pytest.raises(LeaseLost):
            do(store, "append_phase", run.id, "late", lease=lease)
        refused.set()

    work = Working(store, portal, {"build": handle}, grace=timedelta(0))
    with work.at_work():
        seen(began)
    assert statuses(store, id) == ["queued"]
    go_on.set()
    seen(refused)
    assert statuses(store, id) == ["queued"]
    assert ask(store, "get", id).phase_history == []


def test_a_worker_that_was_stopped_before_does_nothing(store: Any, portal: Portal) -> None:
    id = queue(store)
    work = Working(store, portal, {"build": lambda run: None})
    work.stop()
    work.run()
    assert statuses(store, id) == ["queued"]
    work.run_until_idle()
    assert statuses(store, id) == ["succeeded"]


def test_a_worker_ends_with_its_store(open_store: Any, portal: Portal) -> None:
    store = open_store()
    work = Working(store, portal, {"build": lambda run: None}, poll=timedelta(hours=1))
    with work.at_work() as thread:
        while not work.worker.is_running:
            pass
        while thread.is_alive():
            with suppress(StoreInUse):  # the worker asks in this moment whether there is work
                store.close()
                thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_worker_fires_what_is_scheduled(store: Any, portal: Portal, clock: Any) -> None:
    store.workflows.schedules.set("report", workflow_name="build", cron="0 * * * *", context={"a": 1})
    clock.advance(delta=timedelta(hours=1))
    calls: list[WorkflowRun] = []
    work = Working(store, portal, {"build": calls.append})
    work.run_until_idle()
    assert [(run.trigger_id, (run.context or {})["a"]) for run in calls] == [("schedule/report", 1)]
    work.run_until_idle()
    assert len(calls) == 1
