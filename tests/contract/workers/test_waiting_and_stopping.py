"""`persist.workflows.Worker`: waiting for work, and stopping."""

import queue as queues
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from persist import Settings
from persist.errors import LeaseLost, StoreInUse
from persist.workflows.schemas import RunStatus, WorkflowRun
from tests.async_portal import Portal
from tests.contract.faces import every_way
from tests.contract.workers.working import PATIENCE, Working, seen, statuses
from tests.contract.workflows.scenes import ask, do, queue, stored

pytestmark = every_way


@pytest.fixture
def store(open_store: Any) -> Any:
    return open_store()


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
    with store.begin() as tx:
        tx.workflows.schedules.set("report", workflow_name="build", cron="0 * * * *", context={"a": 1})
    clock.advance(delta=timedelta(hours=1))
    calls: list[WorkflowRun] = []
    work = Working(store, portal, {"build": calls.append})
    work.run_until_idle()
    assert [(run.trigger_id, (run.context or {})["a"]) for run in calls] == [("schedule/report", 1)]
    work.run_until_idle()
    assert len(calls) == 1
