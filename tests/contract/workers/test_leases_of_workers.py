"""`persist.workflows.Worker`: leases that are renewed, lost, left over, and claimed again."""

import inspect
import threading
from collections.abc import Awaitable, Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from persist.errors import LeaseLost, StoreBusy, StoreFull, Unavailable
from persist.workers import claim_loop
from persist.workflows.schemas import RunStatus, WorkflowRun
from persist.workflows.verbs import effects, phases
from persist.workflows.verbs.runs import Runs
from tests.async_portal import Portal
from tests.cases import each
from tests.contract.faces import every_way
from tests.contract.workers.working import Working, seen, statuses
from tests.contract.workflows.scenes import claim, do, queue, stored

pytestmark = every_way


@pytest.fixture
def store(open_store: Any) -> Any:
    return open_store()


def test_a_lease_is_renewed_while_its_handler_works(
    store: Any, portal: Portal, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_loop, "_RENEWALS", 3000)  # often, and a slow machine loses nothing
    id = queue(store)
    first = threading.Event()

    def handle(run: WorkflowRun) -> None:
        until = run.lease_expires_at
        assert until is not None
        clock.advance(seconds=0.2)
        while (now := stored(store, run.id)).lease_expires_at == until:
            assert now.lease_token == 1
        assert now.lease_expires_at is not None
        assert now.lease_expires_at > until
        first.set()

    Working(store, portal, {"build": handle}).run_until_idle()
    assert first.is_set()
    assert stored(store, id).lease_token == 1


def test_whose_lease_is_lost_writes_nothing_more(store: Any, portal: Portal) -> None:
    id = queue(store)
    began, lost = threading.Event(), threading.Event()

    def handle(run: WorkflowRun) -> None:
        began.set()
        try:
            while True:
                with work.phase(run, "plan"):
                    pass
        except LeaseLost:
            lost.set()
            raise

    work = Working(store, portal, {"build": handle}, lease=timedelta(seconds=0.3))
    with work.at_work():
        seen(began)
        do(store, "cancel", id)
        seen(lost)
    assert statuses(store, id) == ["cancelled"]


def test_a_call_whose_run_its_own_worker_claimed_again_writes_nothing_more(store: Any, portal: Portal, clock: Any) -> None:
    id = queue(store)
    again, refused = threading.Event(), threading.Event()

    def handle(run: WorkflowRun) -> None:
        if run.lease_token == 1:
            clock.advance(seconds=3600)  # nobody renewed the lease in time
            seen(again)
            with pytest.raises(LeaseLost):
                work.worker.lease(run)
            with pytest.raises(LeaseLost), work.phase(run, "late"):
                pass
            with pytest.raises(LeaseLost), work.step(run, "late"):
                pass
            assert work.worker.lease(run.id).token == 2
            refused.set()
        else:
            again.set()
            seen(refused)
            with work.phase(run, "plan"):
                pass

    work = Working(store, portal, {"build": handle}, concurrency=2)
    work.run_until_idle()
    run = stored(store, id)
    assert (run.status, run.lease_token, run.restart_count) == (RunStatus.SUCCEEDED, 2, 1)
    assert [entry["phase"] for entry in run.phase_history] == ["plan"]


def test_what_an_earlier_process_held_may_end_before_it_is_released(
    store: Any, portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, other = queue(store), queue(store)
    for _ in range(2):
        assert claim(store, "w1") is not None
    held_by: Any = Runs.held_by

    def then_it_ends(runs: Runs, worker: str) -> Any:
        leases = held_by(runs, worker)
        if leases:
            runs.cancel(over)
        return leases

    monkeypatch.setattr(Runs, "held_by", then_it_ends)
    calls: list[str] = []
    Working(store, portal, {"build": lambda run: calls.append(run.id)}, name="w1").run_until_idle()
    assert calls == [other]
    assert statuses(store, other) == ["succeeded"]


def test_the_first_run_that_is_claimed_after_an_outage_is_kept(
    store: Any, portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = queue(store)
    claim_runs, asked = Runs.claim, []

    def first_away(runs: Runs, *args: Any, **options: Any) -> Any:
        asked.append(args)
        if len(asked) == 1:
            raise Unavailable("the database is away")
        return claim_runs(runs, *args, **options)

    monkeypatch.setattr(Runs, "claim", first_away)
    Working(store, portal, {"build": lambda run: None}, poll=timedelta(hours=1)).run_until_idle()
    run = stored(store, id)
    assert (run.status, run.lease_token) == (RunStatus.SUCCEEDED, 1)


def test_a_lease_of_a_run_that_it_does_not_hold(store: Any, portal: Portal) -> None:
    work = Working(store, portal, {"build": lambda run: None})
    for run in ("run_nowhere", queue(store)):
        with pytest.raises(LeaseLost):
            work.worker.lease(run)


OUTAGES = (Unavailable("away"), StoreFull("/the/disk"), StoreBusy(5.0), Unavailable("The server takes no writes now"))


def failing(verb: Any, ways: Iterator[Exception], over: threading.Event) -> Any:
    """The verb, which meets each of these errors first, and sets the event before the call that goes through."""

    def call(*args: Any, **options: Any) -> Any:
        for error in ways:
            raise error
        over.set()
        return verb(*args, **options)

    return call


def test_a_worker_outlives_every_kind_of_outage_and_says_so_once(
    store: Any, portal: Portal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    id, over, called = queue(store), threading.Event(), []
    monkeypatch.setattr(Runs, "claim", failing(Runs.claim, iter(OUTAGES), over))
    poll = timedelta(milliseconds=1)  # sweeps find nothing to write, and say nothing of an outage
    Working(store, portal, {"build": lambda run: called.append(run.id)}, poll=poll).run_until_idle()
    assert (called, statuses(store, id)) == ([id], ["succeeded"])
    told = [record.getMessage() for record in caplog.records if "cannot use the database" in record.getMessage()]
    assert len(told) == 1


def test_a_result_that_could_not_be_stored_is_stored_after_the_outage(
    store: Any, portal: Portal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    id, over, called = queue(store), threading.Event(), []
    monkeypatch.setattr(Runs, "complete", failing(Runs.complete, iter(OUTAGES), over))
    Working(store, portal, {"build": lambda run: called.append(run.id)}).run_until_idle()
    run = stored(store, id)
    assert (called, run.status, run.lease_token) == ([id], RunStatus.SUCCEEDED, 1)
    assert len([record for record in caplog.records if "how handlers ended cannot be stored" in record.getMessage()]) == 1


@pytest.mark.parametrize("kind", ["phase", "step"])
def test_what_a_block_of_a_handler_did_is_stored_after_the_outage(
    store: Any, portal: Portal, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    id, over, called = queue(store), threading.Event(), list[bool]()
    for where, part in ((phases, "locked_phase"), (phases, "append_phase"), (effects, "held_run"), (effects.Effects, "_end")):
        monkeypatch.setattr(where, part, failing(getattr(where, part), iter(OUTAGES), over))

    def build(run: WorkflowRun) -> None:
        with work.phase(run, "plan") if kind == "phase" else work.step(run, "plan") as block:
            called.append(block.due)
            if kind == "phase":
                block.output = "the work of an hour"
            else:
                block.result = "the work of an hour"

    work = Working(store, portal, {"build": build})
    work.run_until_idle()
    assert (called, statuses(store, id)) == ([True], ["succeeded"])
    with store.begin() as tx:
        if kind == "phase":
            assert tx.workflows.phases.begin(id, "plan").output == "the work of an hour"
        else:
            assert tx.workflows.effects.begin(id, "plan").result == "the work of an hour"


class LostAnswer:
    """Verbs of either face, the first call of one of which is not answered, whether it was done or not."""

    def __init__(self, verbs: Any, name: str, *, done: bool) -> None:
        self._verbs, self._name, self._done, self._asked = verbs, name, done, 0

    def __getattr__(self, name: str) -> Any:
        return self._call if name == self._name else getattr(self._verbs, name)

    def _call(self, *args: Any, **options: Any) -> Any:
        self._asked += 1
        verb = getattr(self._verbs, self._name)
        if self._asked > 1:
            return verb(*args, **options)
        done = verb(*args, **options) if self._done else None
        if inspect.isawaitable(done):
            return self._await(done)
        raise Unavailable("the connection is lost", outcome="unknown")

    async def _await(self, done: Awaitable[Any]) -> None:
        await done
        raise Unavailable("the connection is lost", outcome="unknown")


@each("done, verb", product([True, False], ["begin", "finish"]))
def test_a_phase_whose_write_may_have_been_stored_is_done_once(store: Any, portal: Portal, done: bool, verb: str) -> None:
    id = queue(store)

    def build(run: WorkflowRun) -> None:
        around = work.phase(run, "plan")
        around.block._phases = LostAnswer(around.block._phases, verb, done=done)
        with around as block:
            assert block.due
            block.output = "the plan"

    work = Working(store, portal, {"build": build})
    work.run_until_idle()
    run = stored(store, id)
    assert (run.status, [item["phase"] for item in run.phase_history]) == (RunStatus.SUCCEEDED, ["plan"])
    assert [one.success for one in store.workflows.executions.for_run(id)] == [True]


@each("done, verb", product([True, False], ["begin", "complete"]))
def test_a_step_whose_write_may_have_been_stored_is_done_once(store: Any, portal: Portal, done: bool, verb: str) -> None:
    id, made = queue(store), list[bool]()

    def build(run: WorkflowRun) -> None:
        around = work.step(run, "mail")
        around.block._effects = LostAnswer(around.block._effects, verb, done=done)
        with around as block:
            made.append(block.due)
            block.result = "sent"

    work = Working(store, portal, {"build": build})
    work.run_until_idle()
    assert (made, store.workflows.effects.begin(id, "mail").result) == ([True], "sent")
    assert statuses(store, id) == ["succeeded"]


def test_a_worker_that_is_stopped_in_an_outage_ends_and_its_run_is_claimed_again(
    store: Any, portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, met = queue(store), threading.Event()

    def away(*args: Any, **options: Any) -> Any:
        met.set()
        raise StoreFull("/the/disk")

    with monkeypatch.context() as outage:
        for verb in ("complete", "release"):
            outage.setattr(Runs, verb, away)
        with Working(store, portal, {"build": lambda run: None}, name="w1", grace=timedelta(0)).at_work():
            seen(met)
    assert statuses(store, id) == ["running"]
    Working(store, portal, {"build": lambda run: None}, name="w1").run_until_idle()  # of the same name: it need not wait
    assert statuses(store, id) == ["succeeded"]
