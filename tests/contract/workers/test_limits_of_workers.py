"""What a worker is told before it runs, and what it tells: limits, the worker of a handler, why it does no work."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from persist.errors import InvalidValue, Unavailable
from persist.workers.worker import may_run
from persist.workflows import AsyncWorker, Worker
from persist.workflows.schemas import WorkflowRun
from tests.async_portal import Portal
from tests.cases import each
from tests.contract.faces import every_way
from tests.contract.workers.working import PATIENCE, Working, seen, statuses
from tests.contract.workflows.scenes import queue

pytestmark = every_way


@pytest.fixture
def store(open_store: Any) -> Any:
    return open_store()


def test_a_limited_worker_leaves_other_workflows_alone(store: Any, portal: Portal) -> None:
    ids = [queue(store, workflow_name=name) for name in ("a", "b", "c")]
    work = Working(store, portal, dict.fromkeys("abc", lambda run: None))
    assert work.worker.workflows == ["a", "b", "c"]
    work.worker.limit(workflows=["c", "a", "c"])
    assert work.worker.workflows == ["a", "c"]
    work.run_until_idle()
    assert statuses(store, *ids) == ["succeeded", "queued", "succeeded"]


def test_a_concurrency_replaces_that_of_the_worker(store: Any, portal: Portal) -> None:
    ids = [queue(store) for _ in range(4)]
    together = threading.Barrier(2)
    work = Working(store, portal, {"build": lambda run: together.wait(PATIENCE)}, concurrency=1)
    work.worker.limit(concurrency=2)
    assert (work.worker.concurrency, work.worker.workflows) == (2, ["build"])
    work.run_until_idle()
    assert statuses(store, *ids) == ["succeeded"] * 4


@each(
    ("path", "limits"),
    [
        ("concurrency", {"concurrency": 0}),
        ("concurrency", {"concurrency": True}),
        ("concurrency", {"concurrency": "2"}),
        ("workflows", {"workflows": []}),
        ("workflows", {"workflows": "build"}),
        ("workflows", {"workflows": 7}),
        ("workflows", {"workflows": ["build", "Build"]}),
        ("workflows", {"workflows": ["build", 7], "concurrency": 3}),
    ],
)
def test_a_wrong_limit_changes_nothing(store: Any, portal: Portal, path: str, limits: dict[str, Any]) -> None:
    worker = Working(store, portal, {"build": repr, "test": repr}).worker
    with pytest.raises(InvalidValue) as refused:
        worker.limit(**limits)
    assert refused.value.path == path
    assert (worker.workflows, worker.concurrency) == (["build", "test"], 1)


def test_a_name_without_a_handler_is_told_which_there_are(store: Any, portal: Portal) -> None:
    worker = Working(store, portal, {f"w{number:02}": repr for number in range(30)}).worker
    with pytest.raises(InvalidValue, match=r"no handler of 'nobody', only of 'w00', 'w01', .*'w19' and 10 others\.$"):
        worker.limit(workflows=["nobody"])


def test_a_worker_that_runs_is_not_limited(store: Any, portal: Portal) -> None:
    began, go_on = threading.Event(), threading.Event()
    queue(store)

    def handle(run: WorkflowRun) -> None:
        began.set()
        seen(go_on)

    work = Working(store, portal, {"build": handle})
    with work.at_work():
        seen(began)
        with pytest.raises(InvalidValue, match="it runs already"):
            work.worker.limit(concurrency=2)
        go_on.set()


def test_a_handler_finds_its_worker_and_the_store(store: Any, portal: Portal) -> None:
    ids = [queue(store, workflow_name=name) for name in ("build", "test")]
    found: list[Any] = []
    face = Worker if getattr(store, "_target", store) is store else AsyncWorker
    other = AsyncWorker if face is Worker else Worker

    def handle(run: WorkflowRun) -> None:
        found.append(face.current())
        with pytest.raises(InvalidValue, match=f"it is of the class {face.__name__}"):
            other.current()

    work = Working(store, portal, {"build": handle, "test": handle}, concurrency=2)
    work.run_until_idle()
    assert (found, statuses(store, *ids)) == ([work.worker] * 2, ["succeeded"] * 2)
    assert work.worker.store is getattr(store, "_target", store)
    with pytest.raises(InvalidValue, match="no worker called what runs here"):
        face.current()


def test_a_worker_does_not_run_while_its_module_is_imported(store: Any, portal: Portal) -> None:
    id = queue(store)
    work = Working(store, portal, {"build": lambda run: None})
    worker: Any = work.worker

    def imported() -> None:
        said = may_run.set(False)
        try:
            worker.run()
        finally:
            may_run.reset(said)

    async def imported_by_a_coroutine() -> None:
        said = may_run.set(False)
        try:
            await worker.run()
        finally:
            may_run.reset(said)

    with pytest.raises(InvalidValue, match="while its module is imported"):
        portal.call(imported_by_a_coroutine) if isinstance(worker, AsyncWorker) else imported()
    assert (statuses(store, id), work.worker.is_running) == (["queued"], False)
    work.run_until_idle()
    assert statuses(store, id) == ["succeeded"]


def test_a_worker_tells_why_it_does_no_work(store: Any, portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()
    queue(store)

    def handle(run: WorkflowRun) -> None:
        began.set()
        seen(go_on)

    work = Working(store, portal, {"build": handle}, poll=timedelta(minutes=5))
    assert work.worker.trouble() == "the worker does not run"
    with work.at_work():
        seen(began)
        assert work.worker.trouble() is None
        runtime = work.worker._claims_from.runtime
        with monkeypatch.context() as patch:
            patch.setattr(runtime.connections, "lend", _refuse)
            assert "the server is away" in str(work.worker.trouble())
        assert work.worker.trouble() is None
        if (path := work.worker.store.path) is not None:
            aside = path.rename(Path(f"{path}.aside"))
            assert work.worker.trouble() == f"there is no file {str(path)!r} any more"
            aside.rename(path)
        work.stop()
        assert work.worker.trouble() == "the worker stops"
        go_on.set()


def _refuse(*, write: bool) -> Any:
    raise Unavailable("the server is away")
