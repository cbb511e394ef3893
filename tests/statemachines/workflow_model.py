"""A plain model of runs: who holds them, their limits and gates, and how the end of a child lets its parent go on."""

from dataclasses import dataclass
from datetime import datetime

from persist.workflows.schemas import Lease
from tests.statemachines.machine import Each, Machine

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
    parent: str | None = None
    join: str | None = None
    """What it waits for, if it is paused until its children have ended."""


class WorkflowModel(Machine):
    domain = "workflows"

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, Run] = {}
        self.gates: dict[str, tuple[str, str, str]] = {}
        """Status, kind, and whose it is."""
        self.expiring: dict[str, tuple[datetime, str]] = {}
        """When a gate expires, and what becomes of it then."""
        self.leases: list[tuple[Each, Lease]] = []
        self.limits: dict[str, int] = {}
        """How many may run at once, by key."""

    def held(self, run: Run) -> bool:
        return run.owner is not None and run.until is not None and run.until > self.clock()

    def has_room(self, run: Run) -> bool:
        """Whether the limits let a run start that has no place yet."""
        for key, most in self.limits.items():
            of_it = [one for one in self.runs.values() if key in ("workflow:w", one.key)]
            placed = [one for one in of_it if one.status == "running" and (one.owner is not None or one.until is None)]
            if key in ("workflow:w", run.key) and len(placed) >= most:
                return False
        return True

    def waits(self, id: str) -> bool:
        return any(status == "pending" and run == id for status, _, run in self.gates.values())

    def end(self, id: str, status: str) -> None:
        """With the gates that still wait."""
        run = self.runs[id]
        run.status, run.owner, run.until = status, None, None
        for gate, (answer, kind, of) in self.gates.items():
            if of == id and answer == "pending":
                self.gates[gate] = ("rejected", kind, of)
        parent = self.runs.get(run.parent or "")
        if parent is None or run.parent is None or parent.status != "paused" or parent.join is None:
            return
        failed = parent.join == "first_failure" and status in ("failed", "cancelled")
        if (failed or not self.unfinished(run.parent)) and not self.waits(run.parent):
            self.go_on(parent)

    def children(self, id: str) -> list[Run]:
        return [run for run in self.runs.values() if run.parent == id]

    def unfinished(self, id: str) -> bool:
        return any(run.status not in ENDED for run in self.children(id))

    def family(self, id: str) -> list[str]:
        """The run and its descendants."""
        found = [id] if id in self.runs else []
        for above in found:
            found += [one for one, run in self.runs.items() if run.parent == above]
        return found

    def go_on(self, run: Run) -> None:
        """A paused run is resumed."""
        run.status, run.join = "running", None
        if not self.held(run):
            run.owner, run.until = None, self.clock() if run.token else None
