"""`persist.workflows.Worker`: claiming, handlers, how they end, and stopping."""

import os
import queue as queues
import threading
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue
from persist.workflows import Worker
from persist.workflows.schemas import Outcome, RunStatus, WorkflowRun
from persist.workflows.verbs.approvals import Approvals
from persist.workflows.verbs.schedules import Schedules
from persist.workflows.verbs.signals import Signals
from tests.async_portal import Portal
from tests.cases import each
from tests.contract.faces import every_way
from tests.contract.workers.working import PATIENCE, Handler, Working, seen, statuses
from tests.contract.workflows.scenes import do, queue, stored

pytestmark = every_way


@pytest.fixture
def store(open_store: Any) -> Any:
    return open_store()


def test_the_handler_of_each_queued_run_is_called_once(store: Any, portal: Portal) -> None:
    ids = [queue(store, workflow_name=name) for name in ("build", "deploy", "build")]
    other = queue(store, workflow_name="other")
    calls: list[tuple[str, WorkflowRun]] = []

    def named(name: str) -> Handler:
        return lambda run: calls.append((name, run))

    work = Working(store, portal, {name: named(name) for name in ("build", "deploy")})
    work.run_until_idle()
    assert sorted(run.id for _, run in calls) == sorted(ids)
    assert all(name == run.workflow_name and run.status == RunStatus.RUNNING for name, run in calls)
    assert statuses(store, *ids, other) == ["succeeded"] * 3 + ["queued"]
    work.run_until_idle()  # a worker may run again
    assert len(calls) == 3


def test_a_success_is_stored_by_the_transaction_of_the_next_claim(store: Any, portal: Portal) -> None:
    ids = [queue(store) for _ in range(20)]
    before = store.metrics(database=False).transactions.get("committed", 0)
    Working(store, portal, {"build": lambda run: None}, poll=timedelta(minutes=5)).run_until_idle()
    assert statuses(store, *ids) == ["succeeded"] * 20
    assert store.metrics(database=False).transactions["committed"] - before < 30  # what was due at first is few


def test_a_success_that_is_refused_keeps_no_other_one(store: Any, portal: Portal) -> None:
    gone, *ids = [queue(store) for _ in range(3)]
    together = threading.Barrier(2)

    def handle(run: WorkflowRun) -> None:
        if run.id == gone:
            do(store, "cancel", gone)  # so that its end is refused
        if run.id in (gone, ids[0]):
            together.wait(PATIENCE)

    work = Working(store, portal, {"build": handle}, concurrency=2, poll=timedelta(minutes=5))
    work.run_until_idle()
    assert statuses(store, gone, *ids) == ["cancelled", "succeeded", "succeeded"]


def test_handlers_run_at_once_up_to_the_limit(store: Any, portal: Portal) -> None:
    ids = [queue(store) for _ in range(6)]
    together = threading.Barrier(3)
    running: list[int] = []
    now, lock = [0], threading.Lock()

    def handle(run: WorkflowRun) -> None:
        with lock:
            now[0] += 1
            running.append(now[0])
        together.wait(PATIENCE)  # three at a time, else nobody goes on
        with lock:
            now[0] -= 1

    Working(store, portal, {"build": handle}, concurrency=3).run_until_idle()
    assert statuses(store, *ids) == ["succeeded"] * 6
    assert max(running) == 3


def test_many_workers_work_in_one_process(store: Any, portal: Portal) -> None:
    """Also more of them than an event loop has threads in its executor."""
    names = [f"build-{number}" for number in range(min(32, (os.cpu_count() or 1) + 4) + 1)]
    ids = [queue(store, workflow_name=name) for name in names]
    calls: queues.Queue[str] = queues.Queue()
    with ExitStack() as at_work:
        for name in names:
            handlers = {name: lambda run: calls.put(run.id)}
            at_work.enter_context(Working(store, portal, handlers).at_work())
        called = [calls.get(timeout=PATIENCE) for _ in names]
    assert sorted(called) == sorted(ids)
    assert statuses(store, *ids) == ["succeeded"] * len(ids)


def test_a_run_is_tried_as_often_as_it_may(store: Any, portal: Portal) -> None:
    id = queue(store, max_attempts=3)
    attempts: list[int] = []

    def handle(run: WorkflowRun) -> None:
        attempts.append(run.attempt)
        raise ValueError(f"attempt {run.attempt}")

    Working(store, portal, {"build": handle}, retry=lambda run, error: timedelta(0)).run_until_idle()
    assert attempts == [1, 2, 3]
    run = stored(store, id)
    assert (run.status, run.failure_kind, run.context) == ("failed", "retries", {"error": "ValueError: attempt 3"})


def test_an_attempt_waits_for_its_time(store: Any, portal: Portal, clock: Any) -> None:
    """By default a run with `max_attempts` is tried again after a while, and one without fails."""
    id, once = queue(store, max_attempts=2), queue(store)
    attempts: list[tuple[str, int]] = []

    def handle(run: WorkflowRun) -> None:
        attempts.append((run.id, run.attempt))
        if run.attempt == 1:
            raise ValueError("boom")

    work = Working(store, portal, {"build": handle})
    for _ in range(2):
        work.run_until_idle()
        assert sorted(attempts) == sorted([(id, 1), (once, 1)])
        assert statuses(store, id, once) == ["queued", "failed"]
    waiting = stored(store, id)
    assert waiting.not_before is not None
    assert timedelta(seconds=0.7) < waiting.not_before - clock() <= timedelta(seconds=1)
    clock.set(waiting.not_before)
    work.run_until_idle()
    assert attempts[-1] == (id, 2)
    assert statuses(store, id) == ["succeeded"]


def test_a_handler_lets_its_run_sleep(store: Any, portal: Portal, clock: Any) -> None:
    id = queue(store)
    calls: list[str] = []

    def handle(run: WorkflowRun) -> None:
        calls.append(run.id)
        if len(calls) == 1:
            do(store, "sleep_until", work.worker.lease(run), clock() + timedelta(hours=1))

    work = Working(store, portal, {"build": handle})
    work.run_until_idle()
    work.run_until_idle()
    assert (len(calls), statuses(store, id)) == (1, ["queued"])
    clock.advance(delta=timedelta(hours=1))
    work.run_until_idle()
    assert (calls, statuses(store, id)) == ([id, id], ["succeeded"])


def test_the_most_urgent_run_is_handled_first(store: Any, portal: Portal) -> None:
    ids = [queue(store, workflow_name=name, priority=priority) for name, priority in [("a", 0), ("b", 2), ("a", 3), ("b", 1)]]
    calls: list[str] = []
    handlers = {name: lambda run: calls.append(run.id) for name in ("a", "b")}
    Working(store, portal, handlers).run_until_idle()
    assert calls == [ids[number] for number in (2, 1, 3, 0)]


def test_what_a_handler_ended_itself_stays_ended(store: Any, portal: Portal) -> None:
    ids = [queue(store, context={"as": status}) for status in ("failed", "cancelled")]

    def handle(run: WorkflowRun) -> None:
        if (run.context or {})["as"] == "failed":
            do(store, "finish", run.id, "failed", error="by hand", lease=work.worker.lease(run))
        else:
            do(store, "cancel", run.id)

    work = Working(store, portal, {"build": handle})
    work.run_until_idle()
    assert statuses(store, *ids) == ["failed", "cancelled"]
    assert stored(store, ids[0]).context == {"as": "failed", "error": "by hand"}


def test_phases_and_steps_are_written_under_the_lease(store: Any, portal: Portal) -> None:
    id = queue(store)
    outputs: list[str | None] = []
    effects: list[str] = []

    def handle(run: WorkflowRun) -> None:
        with work.phase(run, "plan") as phase:
            if phase.due:
                phase.output = "the plan"
                phase.use(output_tokens=5)
        outputs.append(phase.output)
        with work.step(run, "comment") as step:
            if step.due:
                effects.append(run.id)
                step.result = {"url": "x"}
        if len(outputs) == 1:
            do(store, "release", work.worker.lease(run))  # as if it was interrupted here

    work = Working(store, portal, {"build": handle})
    work.run_until_idle()
    assert (outputs, effects) == (["the plan"] * 2, [id])
    assert statuses(store, id) == ["succeeded"]
    (execution,) = store.workflows.executions.for_run(id)
    assert (execution.outcome, execution.output_tokens, execution.trigger_type) == (Outcome.SUCCEEDED, 5, "worker")


def test_a_run_that_waits_at_a_gate_goes_on_after_the_answer(store: Any, portal: Portal) -> None:
    id = queue(store)
    plans: list[str] = []

    def handle(run: WorkflowRun) -> None:
        with work.phase(run, "plan") as phase:
            if phase.due:
                plans.append(run.id)
        with store.begin() as tx:
            gates = tx.workflows.approvals.list_for_run(run.id)
            if not gates:
                lease = work.worker.lease(run)
                tx.workflows.approvals.pause_for_approval(run.id, gate="g", summary="?", marker=("g", None), lease=lease)

    work = Working(store, portal, {"build": handle})
    work.run_until_idle()
    paused = stored(store, id)
    assert (paused.status, paused.lease_owner) == (RunStatus.PAUSED, None)
    with store.begin() as tx:
        (gate,) = tx.workflows.approvals.pending(workflow_run_id=id)
        tx.workflows.approvals.resolve_and_resume(gate.id)
    work.run_until_idle()
    assert (statuses(store, id), plans) == (["succeeded"], [id])


def test_a_run_that_waits_for_a_signal_goes_on_when_it_came_or_is_late(store: Any, portal: Portal, clock: Any) -> None:
    told, forgotten = queue(store), queue(store)
    found: dict[str, bool] = {}

    def handle(run: WorkflowRun) -> None:
        lease = work.worker.lease(run)
        signal = store.workflows.signals.wait(lease, "paid", timedelta(hours=1))
        if signal is not None:
            found[run.id] = signal.timed_out

    work = Working(store, portal, {"build": handle})
    work.run_until_idle()
    assert statuses(store, told, forgotten) == ["paused"] * 2
    store.workflows.signals.send(told, "paid")
    work.run_until_idle()
    assert statuses(store, told, forgotten) == ["succeeded", "paused"]
    clock.advance(seconds=3600)
    work.run_until_idle()
    assert statuses(store, told, forgotten) == ["succeeded"] * 2
    assert found == {told: False, forgotten: True}


@pytest.mark.parametrize("kind", [Schedules, Signals, Approvals])
def test_what_is_due_and_cannot_be_done_ends_no_worker(
    store: Any, portal: Portal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type
) -> None:
    def broken(verbs: object) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(kind, "fire_due" if kind is Schedules else "expire_due", broken)
    id = queue(store)
    Working(store, portal, {"build": lambda run: None}).run_until_idle()
    assert statuses(store, id) == ["succeeded"]
    (told,) = [record for record in caplog.records if record.message == "what is due in the store cannot be done"]
    assert told.exc_info is not None
    assert told.exc_info[0] is KeyError


@each(
    ("path", "options"),
    [
        ("handlers", {"handlers": {}}),
        ("handlers", {"handlers": [len]}),
        ("handlers.build", {"handlers": {"build": "no function"}}),
        ("handlers", {"handlers": {7: len}}),
        ("handlers", {"handlers": {f"build-{number}": len for number in range(1001)}}),
        ("name", {"name": 7}),
        ("lease", {"lease": 60}),
        ("lease", {"lease": timedelta(0)}),
        ("concurrency", {"concurrency": 0}),
        ("concurrency", {"concurrency": True}),
        ("retry", {"retry": 3}),
        ("poll", {"poll": timedelta(0)}),
        ("grace", {"grace": timedelta(seconds=-1)}),
    ],
)
def test_bad_arguments_are_refused(store: Any, path: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as refused:
        Worker(getattr(store, "_target", store), **{"handlers": {"build": len}, **options})
    assert refused.value.path == path


@each(
    "options",
    [{"concurrency": 2000}, {"lease": timedelta(days=365 * 3000)}, {"poll": timedelta.max}, {"grace": timedelta.max}],
    ids=lambda options: next(iter(options)),
)
def test_large_arguments_are_taken(store: Any, portal: Portal, options: dict[str, Any]) -> None:
    ids = [queue(store) for _ in range(2)]
    began, go_on = threading.Semaphore(0), threading.Event()

    def handle(run: WorkflowRun) -> None:
        began.release()
        seen(go_on)

    work = Working(store, portal, {"build": handle}, **{"concurrency": 2, **options})
    with work.at_work():
        for _ in ids:
            assert began.acquire(timeout=PATIENCE)
        if "grace" in options:
            work.stop()  # while its handlers are at work
        go_on.set()
    assert statuses(store, *ids) == ["succeeded"] * 2
