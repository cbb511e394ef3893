"""Any sequence of verbs on a run, beside a model of what a run is: they agree after every step, on SQLite in memory."""

from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from persist import Store
from persist.errors import Conflict, LeaseLost, PersistError, TransitionError
from persist.testing import FrozenClock
from persist.workflows.schemas import ACTIVE, TERMINAL, TRANSITIONS, Lease, RunStatus, WorkflowRun, allowed, check_transition
from tests.cases import each
from tests.examples import examples

SPAN = timedelta(seconds=10)
ENDED = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Model:
    """A run as its rules tell: `until` is when its worker's lease ends, `waits` that any worker may claim it though it runs."""

    status: str = "queued"
    restarts: int = 0
    cap: int = 3
    error: str | None = None
    token: int = 0
    worker: str | None = None
    until: float = 0
    waits: bool = False
    told: int = 0

    def live(self, now: float) -> bool:
        return self.worker is not None and now < self.until

    def free(self, **changes: Any) -> "Model":
        return replace(self, worker=None, waits=False, **changes)

    def ended(self, status: str, error: str | None) -> "Model":
        fenced = self.token + (status == "cancelled" and self.token > 0)
        return self.free(status=status, error=error or self.error, token=fenced, told=self.told + 1)


class Runs(RuleBasedStateMachine):
    """One run, two workers, a person, and boots."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FrozenClock()
        self.store = Store.open("sqlite:///:memory:", clock=self.clock)
        self.told: list[WorkflowRun] = []
        self.store.on_run_finished(self.told.append)
        self.now = 0.0
        self.leases: list[Lease] = []

    def teardown(self) -> None:
        self.store.close()

    def do(self, verb: str, *args: Any, **options: Any) -> Any:
        with self.store.begin() as tx:
            return getattr(tx.workflows.runs, verb)(*args, **options)

    @initialize(cap=st.integers(0, 2), status=st.sampled_from(["queued", "running"]))
    def create(self, cap: int, status: str) -> None:
        options = {"trigger_id": "t", "current_phase": "p", "max_restarts": cap, "status": status}
        self.id = self.do("create", "build", **options).id
        self.model = Model(cap=cap, status=status)

    # -- a person

    def switch(self, verb: str, statuses: tuple[str, ...], after: Model, *args: Any) -> None:
        may = self.model.status in statuses
        assert self.do(verb, self.id, *args) is may
        if may:
            self.model = after

    @rule()
    def admit(self) -> None:
        self.switch("admit", ("queued",), replace(self.model, status="running"))

    @rule()
    def expire(self) -> None:
        self.switch("expire_queued", ("queued",), self.model.ended("cancelled", "late"), "late")

    @rule()
    def cancel(self) -> None:
        self.switch("cancel", ("queued", "running", "paused"), self.model.ended("cancelled", None))

    @rule()
    def resume(self) -> None:
        held = self.model.live(self.now)
        after = replace(self.model, status="running") if held else self.model.free(status="running")
        self.switch("resume", ("paused",), after if held else replace(after, waits=self.model.token > 0))

    @rule()
    def restart(self) -> None:
        count = self.model.restarts + 1
        after = self.model.free(status="running", restarts=count, cap=max(self.model.cap, count), error=None)
        self.switch("restart", ("failed", "cancelled"), replace(after, waits=self.model.token > 0))

    @rule()
    def requeue(self) -> None:
        if self.model.status == "running" and self.model.live(self.now):
            with pytest.raises(LeaseLost):
                self.do("requeue", self.id)
        else:
            self.switch("requeue", ("running", "queued"), self.model.free(status="queued"))

    @rule()
    def increment(self) -> None:
        if self.model.live(self.now):
            expected: type[PersistError] | None = LeaseLost
        else:
            expected = Conflict if self.model.restarts >= self.model.cap else None
        if expected is None:
            assert self.do("increment_restart_count", self.id) == self.model.restarts + 1
            self.model = replace(self.model, restarts=self.model.restarts + 1)
        else:
            with pytest.raises(expected):
                self.do("increment_restart_count", self.id)

    # -- whoever runs it, under one of the leases there ever were, or under none

    def holds(self, lease: Lease | None) -> bool:
        if lease is None:
            return not self.model.live(self.now)
        if lease.token != self.model.token:
            return False
        if self.model.status in ENDED:
            return self.clock() < lease.expires_at
        return self.model.live(self.now)

    def pick(self, data: st.DataObject) -> Lease | None:
        return data.draw(st.sampled_from([None, *self.leases[-3:]]))

    @rule(data=st.data(), status=st.sampled_from(["succeeded", "failed"]))
    def finish(self, data: st.DataObject, status: str) -> None:
        lease = self.pick(data)
        if not self.holds(lease):
            expected: type[PersistError] | None = LeaseLost
        else:
            expected = None if self.model.status in ("running", "paused") else TransitionError
        if expected is None:
            assert self.do("finish", self.id, status, error="boom", lease=lease).status == status
            self.model = self.model.ended(status, "boom")
        else:
            with pytest.raises(expected):
                self.do("finish", self.id, status, lease=lease)

    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        lease = self.pick(data)
        if not self.holds(lease):
            with pytest.raises(LeaseLost):
                self.do("pause", self.id, lease=lease)
            return
        may = self.model.status == "running"
        assert self.do("pause", self.id, lease=lease) is may
        if may:
            self.model = replace(self.model, status="paused")

    # -- workers

    @rule(worker=st.sampled_from(["w1", "w2"]))
    def claim(self, worker: str) -> None:
        dead = self.model.worker is not None and not self.model.live(self.now)
        claimable = self.model.status == "queued" or (self.model.status == "running" and (dead or self.model.waits))
        lease = self.do("claim", worker, lease=SPAN)
        if not claimable:
            assert lease is None
        elif self.model.status == "running" and dead and self.model.restarts >= self.model.cap:
            assert lease is None
            self.model = self.model.ended("failed", "cap")
        else:
            restarts = self.model.restarts + (self.model.status == "running" and dead)
            changes: dict[str, Any] = {"status": "running", "restarts": restarts, "worker": worker, "waits": False}
            self.model = replace(self.model, **changes, token=self.model.token + 1, until=self.now + SPAN.total_seconds())
            self.leases.append(lease)

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        lease = self.pick(data)
        if lease is None:
            return
        if self.holds(lease) and self.model.status not in ENDED:
            self.leases.append(self.do("renew", lease, lease_for=SPAN))
            self.model = replace(self.model, until=self.now + SPAN.total_seconds())
        else:
            with pytest.raises(LeaseLost):
                self.do("renew", lease, lease_for=SPAN)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = self.pick(data)
        if lease is None:
            return
        if self.model.status in ENDED and lease.token == self.model.token:
            self.do("release", lease)
        elif self.holds(lease):
            self.do("release", lease)
            self.model = self.model.free(status="queued" if self.model.status == "running" else self.model.status)
        else:
            with pytest.raises(LeaseLost):
                self.do("release", lease)

    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        lease = self.pick(data)
        if lease is None:
            return
        if self.model.status in (*ENDED, "queued") and lease.token == self.model.token:
            assert self.do("complete", lease).status == self.model.status
        elif self.holds(lease):
            running = self.model.status == "running"
            self.model = self.model.ended("succeeded", None) if running else self.model.free()
            assert self.do("complete", lease).status == self.model.status
        else:
            with pytest.raises(LeaseLost):
                self.do("complete", lease)

    # -- time

    @rule(seconds=st.sampled_from([1, 9, 10]))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.clock.advance(seconds=seconds)

    @rule()
    def boot(self) -> None:
        again, failed = self.do("recover_interrupted")
        interrupted = self.model.status == "running" and not self.model.live(self.now) and not self.model.waits
        capped = interrupted and self.model.restarts >= self.model.cap
        assert ([run.id for run in again], [run.id for run in failed]) == (
            [self.id] * (interrupted and not capped),
            [self.id] * capped,
        )
        if capped:
            self.model = self.model.ended("failed", "cap")
        elif interrupted:
            token = self.model.token + (self.model.worker is not None)
            self.model = self.model.free(restarts=self.model.restarts + 1, token=token)

    # -- what is stored

    @invariant()
    def the_run_is_what_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        with self.store.read() as tx:
            run = tx.workflows.runs.get(self.id)
        model = self.model
        assert (run.status, run.restart_count, run.max_restarts) == (model.status, model.restarts, model.cap)
        assert (run.lease_token, run.lease_owner) == (model.token, model.worker)
        assert (run.lease_expires_at is not None) == (model.worker is not None or model.waits)
        assert (run.finished_at is not None) == (model.status in ENDED)
        error: str | None = (run.context or {}).get("error")
        assert error == model.error or (model.error == "cap" and "restarts" in str(error))
        assert len(self.told) == model.told
        assert run.restart_count <= (run.max_restarts or 0)
        assert isinstance(run.status, RunStatus)


TestRuns = pytest.mark.long(Runs.TestCase)
TestRuns.settings = settings(max_examples=examples(30), stateful_step_count=40)


MAY = {
    "queued": "running cancelled",
    "running": "paused succeeded failed cancelled queued",
    "paused": "running succeeded failed cancelled",
    "succeeded": "",
    "failed": "running",
    "cancelled": "running",
}
PAIRS = list(product(RunStatus, RunStatus))


@each(("current", "requested"), PAIRS, ids=lambda status: str(status))
def test_a_status_follows_another_or_is_refused(current: RunStatus, requested: RunStatus) -> None:
    may = requested in MAY[current].split()
    assert allowed(current, requested) is may
    if may:
        check_transition("run_1", current, requested)
        return
    with pytest.raises(TransitionError) as refused:
        check_transition("run_1", current, requested)
    assert (refused.value.current, refused.value.requested) == (current.value, requested.value)
    assert "run_1" in refused.value.subject


def test_every_status_has_its_row() -> None:
    assert {status.value for status in TRANSITIONS} == set(MAY) == {status.value for status in RunStatus}


def test_nothing_follows_a_word_that_this_version_does_not_know() -> None:
    for status in RunStatus:
        assert not allowed("dreaming", status)
    with pytest.raises(TransitionError) as refused:
        check_transition("run_1", "dreaming", RunStatus.FAILED)
    assert refused.value.current == "dreaming"


def test_the_words_for_the_end_and_for_work_at_hand() -> None:
    assert {"succeeded", "failed", "cancelled"} == TERMINAL
    assert set(ACTIVE) == {"running", "paused"}


def test_an_end_is_left_by_a_restart_alone() -> None:
    assert {following for status in TERMINAL for following in TRANSITIONS[status]} == {RunStatus.RUNNING}
