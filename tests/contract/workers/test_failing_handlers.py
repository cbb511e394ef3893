"""`persist.workflows.Worker`: handlers that fail, policies of retries, and what is stored of an error."""

import warnings
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from persist import AsyncStore, Settings
from persist.errors import InvalidValue
from persist.workflows import Worker
from persist.workflows.schemas import RunStatus, WorkflowRun
from tests.async_portal import Portal
from tests.cases import each
from tests.contract.faces import every_way
from tests.contract.workers.working import Working, statuses
from tests.contract.workflows.scenes import queue, stored

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


def test_a_retry_policy_that_fails_fails_the_run(store: Any, portal: Portal) -> None:
    id = queue(store)

    def handle(run: WorkflowRun) -> None:
        raise ValueError("boom")

    Working(store, portal, {"build": handle}, retry=lambda run, error: 1 // 0).run_until_idle()
    assert statuses(store, id) == ["failed"]


@each("answer", [5, 0.5, "soon", timedelta.max, SystemExit(1)], ids=repr)
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
