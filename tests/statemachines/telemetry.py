"""What instances report, and the queue of a workspace."""

from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.statemachines.machine import UNSAID, Machine, Refused

INSTANCES = st.sampled_from(["a", "b"])
TASKS = st.sampled_from(["s", "t", "u"])
LEASES = st.sampled_from([None, timedelta(seconds=30), timedelta(hours=1), timedelta(0)])
METADATA = st.sampled_from([None, {"k": 1}, {"k": 1.0}, {"j": "\x00", "k": 1}])


class Telemetry(Machine):
    domain = "telemetry"

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[str, list[tuple[str, datetime, Any]]] = {"a": [], "b": []}
        self.tags: dict[tuple[str, str], tuple[datetime, datetime]] = {}
        self.calls: list[tuple[str, int | None]] = []
        self.used: dict[datetime, int | None] = {}
        self.tasks: dict[str, tuple[str, datetime, datetime | None]] = {}
        self.claims: dict[str, tuple[int, datetime | None]] = {}
        """The number of the latest claim of a task, and when it expires."""

    def second(self) -> datetime:
        return self.clock().replace(microsecond=0)

    @rule(instance=INSTANCES, status=st.sampled_from(["idle", "busy", "question"]), metadata=METADATA)
    def change(self, instance: str, status: str, metadata: Any) -> None:
        def expect(got: Any) -> Any:
            log = self.log[instance]
            if log and log[-1][0] == status and (status != "question" or repr(log[-1][2]) == repr(metadata)):
                return None
            log.append((status, self.second(), metadata))
            assert got.is_oldest == (len(log) == 1)
            return UNSAID

        self.do("telemetry.status.record", status, metadata=metadata, instance_id=instance, expect=expect)

    @rule(instance=INSTANCES, back=st.sampled_from([-5, 0, 1, 60, 100_000]))
    def look_back(self, instance: str, back: int) -> None:
        when = self.clock() - timedelta(seconds=back)

        def expect(got: Any) -> Any:
            return next((status for status, at, _ in reversed(self.log[instance]) if at <= when), None)

        self.do("telemetry.status.at", when, instance_id=instance, expect=expect)

    @rule(value=st.sampled_from(["x", "y"]), kind=st.sampled_from(["issue", "pr", "none"]))
    def tag(self, value: str, kind: str) -> None:
        def expect(got: Any) -> Any:
            if kind == "none":
                raise Refused("InvalidValue")
            first, last = self.tags.get((kind, value), (self.second(), self.second()))
            self.tags[kind, value] = min(first, self.second()), max(last, self.second())
            return UNSAID

        self.do("telemetry.tags.record", kind, value, instance_id="a", expect=expect)

    @rule(tool=st.sampled_from(["bash", "read"]), code=st.sampled_from([None, 0, 1, -9]))
    def call(self, tool: str, code: int | None) -> None:
        def expect(got: Any) -> Any:
            self.calls.append((tool, code))
            return UNSAID

        self.do("telemetry.tools.record", tool, exit_code=code, instance_id="a", expect=expect)

    @rule(tokens=st.sampled_from([None, 0, 5, 2**62, -1]))
    def use(self, tokens: int | None) -> None:
        def expect(got: Any) -> Any:
            at = self.second()
            before = self.used.get(at)
            total = tokens if before is None else before if tokens is None else before + tokens
            if (tokens is not None and tokens < 0) or (total is not None and total >= 2**63):
                raise Refused("InvalidValue")
            self.used[at] = total
            return UNSAID

        self.do("telemetry.usage.sample", at=self.clock(), token_input=tokens, instance_id="a", expect=expect)

    @rule(ids=st.lists(TASKS, max_size=3))
    def discover(self, ids: list[str]) -> None:
        def expect(got: Any) -> Any:
            new = [id for id in dict.fromkeys(ids) if id not in self.tasks]
            self.tasks |= {id: ("queued", self.second(), None) for id in new}
            self.claims |= dict.fromkeys(new, (0, None))
            return len(new)

        found = [{"id": id, "source_id": "s", "kind": "issue", "title": id} for id in ids]
        self.do("telemetry.tasks.poll", found, workspace_id="w", expect=expect)

    def of_tasks(self, state: str) -> list[tuple[datetime, str]]:
        """The tasks in a state, in the order of the queue."""
        return sorted((task[1], id) for id, task in self.tasks.items() if task[0] == state)

    def has_expired(self, id: str) -> bool:
        expires_at = self.claims[id][1]
        return expires_at is not None and expires_at <= self.clock()

    @rule(maximum=st.integers(0, 2), lease=LEASES)
    def claim(self, maximum: int, lease: timedelta | None) -> None:
        def expect(got: Any) -> Any:
            if maximum == 0 or lease == timedelta(0):
                raise Refused("InvalidValue")
            expired = [task for task in self.of_tasks("in_progress") if self.has_expired(task[1])]
            waiting = expired or self.of_tasks("queued")
            if len(self.of_tasks("in_progress")) - len(expired) >= maximum or not waiting:
                return None
            found, id = waiting[0]
            self.tasks[id] = ("in_progress", found, None)
            self.claims[id] = (self.claims[id][0] + 1, None if lease is None else self.clock() + lease)
            assert (got.id, got.claim_token, got.claim_expires_at) == (id, *self.claims[id])
            return UNSAID

        self.do("telemetry.tasks.claim", "a", max_parallel=maximum, lease=lease, workspace_id="w", expect=expect)

    def is_held(self, id: str, token: int | None) -> bool:
        """Whether a caller with that token may end a task in progress, or renew its claim; says why not."""
        current, expires_at = self.claims.get(id, (0, None))
        if id not in self.tasks:
            return False
        if token is not None and token != current:
            raise Refused("LeaseLost")
        if self.tasks[id][0] != "in_progress":
            return False
        if self.has_expired(id) or (token is None and expires_at is not None):
            raise Refused("LeaseLost")
        return True

    @rule(id=TASKS, lease=LEASES, token=st.integers(1, 3))
    def renew(self, id: str, lease: timedelta | None, token: int) -> None:
        def expect(got: Any) -> Any:
            if not lease:
                raise Refused("InvalidValue")
            if not self.is_held(id, token):
                raise Refused("LeaseLost")
            self.claims[id] = (token, self.clock() + lease)
            assert got.claim_expires_at == self.clock() + lease
            return UNSAID

        self.do("telemetry.tasks.renew", id, lease, token=token, workspace_id="w", expect=expect)

    @rule(id=TASKS, verb=st.sampled_from(["complete", "fail"]), token=st.none() | st.integers(1, 3))
    def finish(self, id: str, verb: str, token: int | None) -> None:
        def expect(got: Any) -> Any:
            if not self.is_held(id, token):
                return False
            self.tasks[id] = ("completed" if verb == "complete" else "failed", self.tasks[id][1], self.second())
            self.claims[id] = (self.claims[id][0], None)
            return True

        self.do(f"telemetry.tasks.{verb}", id, token=token, workspace_id="w", expect=expect)

    @rule(id=TASKS, verb=st.sampled_from(["cancel", "retry"]))
    def requeue(self, id: str, verb: str) -> None:
        before, after = {"cancel": ("queued", "cancelled"), "retry": ("failed", "queued")}[verb]

        def expect(got: Any) -> Any:
            state, found, _ = self.tasks.get(id, ("", None, None))
            if state != before or found is None:
                return False
            self.tasks[id] = (after, found, None if verb == "retry" else self.second())
            return True

        self.do(f"telemetry.tasks.{verb}", id, workspace_id="w", expect=expect)

    @rule(days=st.sampled_from([0, 1]))
    def purge(self, days: int) -> None:
        def expect(got: Any) -> Any:
            before = self.second() - timedelta(days=days)
            gone = [id for id, task in self.tasks.items() if task[0] == "completed" and task[2] is not None and task[2] < before]
            for id in gone:
                del self.tasks[id]
            return len(gone)

        self.do("telemetry.tasks.purge", timedelta(days=days), workspace_id="w", expect=expect)

    def seen(self, tx: Any) -> Any:
        telemetry, me = tx.telemetry, {"instance_id": "a"}
        totals = telemetry.usage.totals(**me)
        return {
            "log": {
                name: [(one.new_status, one.occurred_at, one.metadata) for one in telemetry.status.history(instance_id=name)]
                for name in self.log
            },
            "tags": {(tag.kind.value, tag.value): (tag.first_seen, tag.last_seen) for tag in telemetry.tags.list(**me)},
            "calls": [(call.tool_key, call.exit_code) for call in telemetry.tools.last(100, **me)],
            "failures": len(telemetry.tools.last(100, failures_only=True, **me)),
            "used": (totals.samples, totals.token_input),
            "tasks": [
                (task.id, task.state.value, task.claim_token, task.claim_expires_at)
                for task in telemetry.tasks.list(workspace_id="w")
            ],
        }

    def expected(self) -> Any:
        known = [tokens for tokens in self.used.values() if tokens is not None]
        return {
            "log": self.log,
            "tags": self.tags,
            "calls": self.calls[::-1],
            "failures": len([code for _, code in self.calls if code]),
            "used": (len(self.used), min(sum(known), 2**63 - 1) if known else None),
            "tasks": [
                (id, task[0], *self.claims[id]) for id, task in sorted(self.tasks.items(), key=lambda item: (item[1][1], item[0]))
            ],
        }
