"""Runs, who holds them, and the gates at which they wait."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from persist.workflows.schemas import Lease
from tests.statemachines.machine import UNSAID, Each, Machine, Refused

RUNS, GATES = st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"])
ENDED = {"succeeded", "failed", "cancelled"}


@dataclass
class Run:
    status: str
    started: datetime
    queued: datetime
    """Since when it waits in the queue."""
    restarts: int = 0
    maximum: int = 1
    owner: str | None = None
    until: datetime | None = None
    token: int = 0
    key: str | None = None
    """The key whose limit it is under."""


class Workflows(Machine):
    domain = "workflows"

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, Run] = {}
        self.gates: dict[str, tuple[str, str, str]] = {}
        """Status, kind, and whose it is."""
        self.leases: list[tuple[Each, int, str]] = []
        self.limits: dict[str, int] = {}
        """How many may run at once, by key."""

    def has_room(self, run: Run) -> bool:
        """Whether the limits let a run start that has no place yet."""
        for key, most in self.limits.items():
            of_it = [one for one in self.runs.values() if key in ("workflow:w", one.key)]
            placed = [one for one in of_it if one.status == "running" and (one.owner is not None or one.until is None)]
            if key in ("workflow:w", run.key) and len(placed) >= most:
                return False
        return True

    @rule(key=st.sampled_from(["workflow:w", "k"]), most=st.integers(0, 2))
    def limit(self, key: str, most: int) -> None:
        def expect(got: Any) -> Any:
            if most == 0:
                return self.limits.pop(key, None) is not None
            self.limits[key] = most
            return UNSAID

        if most:
            self.do("workflows.limits.set", key, most, expect=expect)
        else:
            self.do("workflows.limits.delete", key, expect=expect)

    def held(self, run: Run) -> bool:
        return run.owner is not None and run.until is not None and run.until > self.clock()

    def waits(self, id: str) -> bool:
        return any(status == "pending" and run == id for status, _, run in self.gates.values())

    def end(self, id: str, status: str) -> None:
        """With the gates that still wait."""
        run = self.runs[id]
        run.status, run.owner, run.until = status, None, None
        for gate, (answer, kind, of) in self.gates.items():
            if of == id and answer == "pending":
                self.gates[gate] = ("rejected", kind, of)

    @rule(id=RUNS, status=st.sampled_from(["running", "queued", "paused", "no"]), key=st.sampled_from([None, "k"]))
    def create(self, id: str, status: str, key: str | None) -> None:
        def expect(got: Any) -> Any:
            if status == "no":
                raise Refused("InvalidValue")
            if id in self.runs:
                raise Refused("Conflict")
            self.runs[id] = Run(status, self.clock(), self.clock(), key=key)
            return UNSAID

        fields = {
            "trigger_id": id,
            "current_phase": "plan",
            "status": status,
            "max_restarts": 1,
            "id": id,
            "concurrency_key": key,
        }
        self.do("workflows.runs.create", "w", **fields, expect=expect)

    @rule(id=RUNS, verb=st.sampled_from(["admit", "pause", "resume", "cancel", "requeue", "restart"]))
    def change(self, id: str, verb: str) -> None:
        before, after = {
            "admit": ({"queued"}, "running"),
            "pause": ({"running"}, "paused"),
            "resume": ({"paused"}, "running"),
            "cancel": ({"queued", "running", "paused"}, "cancelled"),
            "requeue": ({"running", "queued"}, "queued"),
            "restart": ({"failed", "cancelled"}, "running"),
        }[verb]

        def expect(got: Any) -> Any:
            run = self.runs.get(id)
            if run is None:
                return False
            if self.held(run) and (verb == "pause" or (verb == "requeue" and run.status in before)):
                raise Refused("LeaseLost")
            if run.status not in before:
                return False
            if verb == "resume" and self.waits(id):
                raise Refused("Conflict")
            if verb == "requeue":
                run.owner = run.until = None
                run.queued = run.queued if run.status == "queued" else self.clock()
            run.status = after
            if verb == "cancel":
                self.end(id, after)
                run.token += run.token > 0  # its worker is fenced out
            elif verb == "resume" and not self.held(run):
                run.owner, run.until = None, self.clock() if run.token else None
            elif verb == "restart":
                run.restarts += 1
                run.maximum = max(run.maximum, run.restarts)
                run.owner, run.until = None, self.clock() if run.token else None
            return True

        self.do(f"workflows.runs.{verb}", id, expect=expect)

    @rule(id=RUNS, status=st.sampled_from(["succeeded", "failed", "cancelled"]))
    def finish(self, id: str, status: str) -> None:
        def expect(got: Any) -> Any:
            if status == "cancelled":
                raise Refused("InvalidValue")
            run = self.runs.get(id)
            if run is None:
                raise Refused("NotFound")
            if self.held(run):
                raise Refused("LeaseLost")
            if run.status in ENDED or run.status == "queued":
                raise Refused("TransitionError")
            self.end(id, status)
            return UNSAID

        self.do("workflows.runs.finish", id, status, expect=expect)

    @rule(worker=st.sampled_from(["v", "w"]))
    def claim(self, worker: str) -> None:
        def expect(got: Any) -> Any:
            now = self.clock()
            while True:
                let_go = [
                    (run.until, id)
                    for id, run in self.runs.items()
                    if run.status == "running"
                    and run.until
                    and run.until <= now
                    and (run.owner is not None or self.has_room(run))
                ]
                queued = [(run.queued, id) for id, run in self.runs.items() if run.status == "queued" and self.has_room(run)]
                if not let_go and not queued:
                    return None
                id = min(let_go or queued)[1]
                run = self.runs[id]
                if run.owner is not None:
                    if run.restarts >= run.maximum:
                        self.end(id, "failed")
                        continue
                    run.restarts += 1
                run.status, run.owner, run.until, run.token = "running", worker, now + timedelta(minutes=1), run.token + 1
                assert (got.run_id, got.token) == (id, run.token)
                return UNSAID

        if self.do("workflows.runs.claim", worker, lease=timedelta(minutes=1), expect=expect) is not None:
            lease: Lease = self.values[0]
            self.leases.append((Each(*self.values), lease.token, lease.run_id))

    @rule(worker=st.sampled_from(["v", "w"]))
    def held_by(self, worker: str) -> None:
        def expect(got: Any) -> Any:
            mine = [(run.started, id, run.token) for id, run in self.runs.items() if run.owner == worker and self.held(run)]
            assert [(lease.run_id, lease.token) for lease in got] == [(id, token) for _, id, token in sorted(mine)]
            return UNSAID

        self.do("workflows.runs.held_by", worker, expect=expect)

    @rule(at=st.integers(0, 3), verb=st.sampled_from(["renew", "release", "complete"]))
    def hold(self, at: int, verb: str) -> None:
        if not self.leases:
            return
        lease, token, id = self.leases[at % len(self.leases)]
        run = self.runs[id]

        def expect(got: Any) -> Any:
            if verb == "complete" and run.status == "queued" and run.token == token:
                return UNSAID
            if run.status in ENDED and run.token == token and verb != "renew":
                return None if verb == "release" else UNSAID
            if run.status in ENDED or run.token != token or not self.held(run):
                raise Refused("LeaseLost")
            if verb == "renew":
                run.until = self.clock() + timedelta(minutes=2)
                return UNSAID
            if verb == "complete":
                if run.status == "running":
                    self.end(id, "succeeded")
                else:
                    run.owner = run.until = None
                return UNSAID
            run.owner = run.until = None
            if run.status == "running":
                run.status, run.queued = "queued", self.clock()
            return None

        self.do(
            f"workflows.runs.{verb}", lease, **({"lease_for": timedelta(minutes=2)} if verb == "renew" else {}), expect=expect
        )

    @rule(id=RUNS, gate=GATES, kind=st.sampled_from(["approve", "reply"]))
    def ask(self, id: str, gate: str, kind: str) -> None:
        def expect(got: Any) -> Any:
            if id not in self.runs:
                raise Refused("NotFound")
            if self.runs[id].status in ENDED or gate in self.gates:
                raise Refused("Conflict")
            self.gates[gate] = ("pending", kind, id)
            return UNSAID

        self.do("workflows.approvals.request", id, gate="g", summary="?", kind=kind, id=gate, expect=expect)

    @rule(gate=GATES, approved=st.booleans())
    def answer(self, gate: str, approved: bool) -> None:
        def expect(got: Any) -> Any:
            if self.gates.get(gate, ("",))[0] != "pending":
                return False
            self.gates[gate] = ("approved" if approved else "rejected", *self.gates[gate][1:])
            return True

        self.do("workflows.approvals.respond", gate, approved=approved, expect=expect)

    @rule()
    def recover(self) -> None:
        def expect(got: Any) -> Any:
            again, failed = [], []
            waiting = {id for id, run in self.runs.items() if run.owner is None and run.until is not None}
            for id, run in sorted(self.runs.items(), key=lambda item: (item[1].started, item[0])):
                if run.status != "running" or self.held(run) or id in waiting:
                    continue
                if run.restarts >= run.maximum:
                    self.end(id, "failed")
                    failed.append(id)
                    continue
                run.restarts += 1
                run.token += run.owner is not None
                run.owner = run.until = None
                again.append(id)
            assert ([run.id for run in got[0]], [run.id for run in got[1]]) == (again, failed)
            return UNSAID

        self.do("workflows.runs.recover_interrupted", expect=expect)

    def seen(self, tx: Any) -> Any:
        runs, approvals = tx.workflows.runs, tx.workflows.approvals
        listed = [runs.get(one.id) for one in runs.list().items]
        return {
            "runs": [(one.id, one.status.value, one.restart_count, one.max_restarts, one.lease_token) for one in listed],
            "leases": {one.id: (one.lease_owner, one.lease_expires_at) for one in listed if one.status.value not in ENDED},
            "queued": [one.id for one in runs.list_queued()],
            "count": runs.count(status=["running", "paused"]),
            "limits": {limit.key: limit.concurrency for limit in tx.workflows.limits.list()},
            "gates": {one.id: (one.status.value, one.kind.value) for run in listed for one in approvals.list_for_run(run.id)},
        }

    def expected(self) -> Any:
        newest = sorted(self.runs.items(), key=lambda item: (item[1].started, item[0]), reverse=True)
        return {
            "runs": [(id, run.status, run.restarts, run.maximum, run.token) for id, run in newest],
            "leases": {id: (run.owner, run.until) for id, run in newest if run.status not in ENDED},
            "queued": [id for id, run in reversed(newest) if run.status == "queued"],
            "count": len([run for run in self.runs.values() if run.status in ("running", "paused")]),
            "limits": self.limits,
            "gates": {gate: (status, kind) for gate, (status, kind, _) in self.gates.items()},
        }
