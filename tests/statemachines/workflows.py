"""Runs, who holds them, the gates at which they wait, and their families."""

from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.statemachines.machine import UNSAID, Each, Refused
from tests.statemachines.workflow_model import ENDED, Run, WorkflowModel

RUNS, GATES = st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"])


class Workflows(WorkflowModel):
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

    @rule(
        id=RUNS,
        status=st.sampled_from(["running", "queued", "paused", "no"]),
        parent=st.none() | RUNS,
        key=st.sampled_from([None, "k"]),
    )
    def create(self, id: str, status: str, parent: str | None, key: str | None) -> None:
        def expect(got: Any) -> Any:
            if status == "no":
                raise Refused("InvalidValue")
            if parent is not None and parent not in self.runs:
                raise Refused("NotFound")
            if parent is not None and self.runs[parent].status in ENDED:
                raise Refused("Conflict")
            if id in self.runs:
                raise Refused("Conflict")
            self.runs[id] = Run(status, self.clock(), self.clock(), parent=parent, key=key)
            return UNSAID

        fields = {
            "trigger_id": id,
            "current_phase": "plan",
            "status": status,
            "max_restarts": 1,
            "id": id,
            "parent_run_id": parent,
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
            elif verb == "resume":
                self.go_on(run)
            elif verb == "restart":
                run.join = None
                run.restarts += 1
                run.maximum = max(run.maximum, run.restarts)
                run.owner, run.until = None, self.clock() if run.token else None
            return True

        self.do(f"workflows.runs.{verb}", id, expect=expect)

    @rule(id=RUNS)
    def cancel_family(self, id: str) -> None:
        def expect(got: Any) -> Any:
            ending = [one for one in self.family(id) if self.runs[one].status not in ENDED]
            for one in ending:  # before any of them tells its parent
                self.runs[one].status = "cancelled"
            for one in ending:
                self.end(one, "cancelled")
                self.runs[one].token += self.runs[one].token > 0
            return bool(ending)

        self.do("workflows.runs.cancel", id, cascade=True, expect=expect)

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
            self.leases.append((Each(*self.values), self.values[0]))

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
        lease, held = self.leases[at % len(self.leases)]
        token, id = held.token, held.run_id
        run = self.runs[id]

        def expect(got: Any) -> Any:
            released = run.owner is None and held.expires_at > self.clock()
            if verb == "complete" and run.token == token and (run.status == "queued" or released):
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

    @rule(at=st.integers(0, 3), until=st.sampled_from(["all", "first_failure"]))
    def join(self, at: int, until: str) -> None:
        if not self.leases:
            return
        lease, held = self.leases[at % len(self.leases)]
        run = self.runs[held.run_id]

        def expect(got: Any) -> Any:
            over = run.status in ENDED and held.expires_at > self.clock()
            if run.token != held.token or not (over or self.held(run)):
                raise Refused("LeaseLost")
            statuses = Counter(child.status for child in self.children(held.run_id))
            failed = statuses["failed"] + statuses["cancelled"]
            if not self.unfinished(held.run_id) or (until == "first_failure" and failed):
                assert (got.total, got.by_status, got.failed) == (statuses.total(), dict(statuses), failed)
                return UNSAID
            if run.status != "running":
                raise Refused("TransitionError")
            run.status, run.join, run.owner, run.until = "paused", until, None, None
            return None

        self.do("workflows.runs.join", lease, until, expect=expect)

    @rule(
        id=RUNS,
        gate=GATES,
        kind=st.sampled_from(["approve", "reply"]),
        outcome=st.none() | st.sampled_from(["rejected", "approved", "resumed"]),
    )
    def ask(self, id: str, gate: str, kind: str, outcome: str | None) -> None:
        def expect(got: Any) -> Any:
            if id not in self.runs:
                raise Refused("NotFound")
            if self.runs[id].status in ENDED or gate in self.gates:
                raise Refused("Conflict")
            self.gates[gate] = ("pending", kind, id)
            if outcome is not None:
                self.expiring[gate] = (until, outcome)
            return UNSAID

        until = self.clock() + timedelta(minutes=1)
        expires: dict[str, Any] = {} if outcome is None else {"expires_at": until, "on_expiry": outcome}
        self.do("workflows.approvals.request", id, gate="g", summary="?", kind=kind, id=gate, **expires, expect=expect)

    @rule()
    def expire(self) -> None:
        def expect(got: Any) -> Any:
            closed = []
            due = sorted((at, gate) for gate, (at, _) in self.expiring.items() if at <= self.clock())
            for gate in [gate for _, gate in due]:
                status, kind, id = self.gates[gate]
                if status != "pending":
                    continue
                closed.append(gate)
                outcome = self.expiring[gate][1]
                self.gates[gate] = ("approved" if outcome == "approved" else "rejected", kind, id)
                run = self.runs[id]
                if run.status == "paused" and outcome == "rejected":
                    self.end(id, "failed")
                elif run.status == "paused" and not self.waits(id):
                    self.go_on(run)
            assert [gate.id for gate in got] == closed
            return UNSAID

        self.do("workflows.approvals.expire_due", expect=expect)

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
            running = {id for id, run in self.runs.items() if run.status == "running" and not self.held(run)}
            for id, run in sorted(self.runs.items(), key=lambda item: (item[1].started, item[0])):
                if id not in running - waiting:
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
            "parents": {one.id: (one.parent_run_id, one.join_until if one.status.value == "paused" else None) for one in listed},
            "children": {one.id: [child.id for child in runs.list(parent_run_id=one.id).items] for one in listed},
            "families": {one.id: runs.family(one.id).by_status for one in listed},
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
            "parents": {id: (run.parent, run.join if run.status == "paused" else None) for id, run in newest},
            "children": {id: [one for one, run in newest if run.parent == id] for id, _ in newest},
            "families": {id: dict(Counter(self.runs[one].status for one in self.family(id))) for id, _ in newest},
            "gates": {gate: (status, kind) for gate, (status, kind, _) in self.gates.items()},
        }
