"""Runs of programs, their statements, and what names mean in which frame."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.statemachines.machine import UNSAID, Each, Machine, Refused

RUNS, NAMES, PICKS = st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), st.integers(0, 3)
AFTER = {
    "start": ({"pending"}, "executing"),
    "complete": ({"executing"}, "completed"),
    "skip": ({"pending", "executing"}, "skipped"),
    "fail": ({"pending", "executing"}, "failed"),
}


@dataclass
class Statement:
    run: str
    id: Each
    status: str
    parent: int | None


class Programs(Machine):
    domain = "programs"

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, str] = {}
        self.last_seen: dict[str, datetime | None] = {}
        self.statements: list[Statement] = []
        self.bound: dict[tuple[str, str, int | None], tuple[str, str]] = {}

    def second(self) -> datetime:
        return self.clock().replace(microsecond=0)

    def pick(self, number: int | None) -> int | None:
        """The place of a statement; None where there is none."""
        return None if number is None or not self.statements else number % len(self.statements)

    def id_of(self, place: int | None) -> Any:
        return None if place is None else self.statements[place].id

    @rule(id=RUNS)
    def create(self, id: str) -> None:
        def expect(got: Any) -> Any:
            if id in self.runs:
                raise Refused("Conflict")
            self.runs[id], self.last_seen[id] = "running", self.second()
            return UNSAID

        self.do("programs.runs.create", id=id, expect=expect)

    @rule(id=RUNS, status=st.sampled_from(["completed", "interrupted", "running", "failed"]))
    def end(self, id: str, status: str) -> None:
        """`running` goes on again."""

        def expect(got: Any) -> Any:
            if id not in self.runs:
                raise Refused("NotFound")
            allowed = {"running"} if status != "running" else {"interrupted", "failed"}
            if self.runs[id] not in allowed:
                raise Refused("RunHeld" if self.runs[id] == status == "running" else "TransitionError")
            self.runs[id] = status
            self.last_seen[id] = self.second() if status == "running" else None
            return UNSAID

        if status == "running":
            self.do("programs.runs.resume", id, expect=expect)
        else:
            self.do("programs.runs.finish", id, status, expect=expect)

    @rule(id=RUNS)
    def say_seen(self, id: str) -> None:
        """By the process that runs all of them; one that ended is nobody's."""

        def expect(got: Any) -> Any:
            if id not in self.runs:
                raise Refused("NotFound")
            if self.runs[id] != "running":
                raise Refused("LeaseLost")
            self.last_seen[id] = self.second()
            return UNSAID

        self.do("programs.runs.seen", id, expect=expect)

    @rule(run=RUNS, parent=st.none() | PICKS, status=st.sampled_from(["pending", "executing", "completed"]))
    def begin(self, run: str, parent: int | None, status: str) -> None:
        above = self.pick(parent)

        def expect(got: Any) -> Any:
            if status == "completed":
                raise Refused("InvalidValue")
            if run not in self.runs or (above is not None and self.statements[above].run != run):
                raise Refused("NotFound")
            return UNSAID

        fields = {"statement_index": 1, "statement_text": "do", "parent_id": self.id_of(above), "status": status}
        if self.do("programs.executions.begin", run, **fields, expect=expect) is not None:
            self.statements.append(Statement(run, Each(*(one.id for one in self.values)), status, above))

    @rule(run=RUNS, at=PICKS, verb=st.sampled_from(sorted(AFTER)))
    def step(self, run: str, at: int, verb: str) -> None:
        place = self.pick(at)
        if place is None:
            return
        one = self.statements[place]

        def expect(got: Any) -> Any:
            if one.run != run:
                raise Refused("NotFound")
            before, after = AFTER[verb]
            if one.status not in before:
                raise Refused("TransitionError")
            one.status = after
            return UNSAID

        self.do(f"programs.executions.{verb}", run, one.id, *(["no"] if verb == "fail" else []), expect=expect)

    @rule(
        run=RUNS,
        name=NAMES,
        frame=st.none() | PICKS,
        value=st.sampled_from(["1", "\x00\ud83d", ""]),
        kind=st.sampled_from(["let", "const"]),
    )
    def bind(self, run: str, name: str, frame: int | None, value: str, kind: str) -> None:
        place = self.pick(frame)

        def expect(got: Any) -> Any:
            if run not in self.runs or (place is not None and self.statements[place].run != run):
                raise Refused("NotFound")
            if self.bound.get((run, name, place), ("", "let"))[1] == "const":
                raise Refused("Conflict")
            self.bound[run, name, place] = (value, kind)
            return UNSAID

        self.do("programs.bindings.bind", run, name, value, kind=kind, execution_id=self.id_of(place), expect=expect)

    @rule(run=RUNS, name=NAMES, frame=st.none() | PICKS)
    def resolve(self, run: str, name: str, frame: int | None) -> None:
        place = self.pick(frame)

        def expect(got: Any) -> Any:
            if place is not None and self.statements[place].run != run:
                raise Refused("NotFound")
            at = place
            while at is not None and (run, name, at) not in self.bound:
                at = self.statements[at].parent
            if (run, name, at) not in self.bound:
                raise Refused("NotFound")
            assert got.value == self.bound[run, name, at][0]
            return UNSAID

        self.do("programs.bindings.resolve", run, name, execution_id=self.id_of(place), expect=expect)

    def seen(self, tx: Any) -> Any:
        programs = tx.programs
        runs = sorted(run.id for run in programs.runs.list().items)
        return {
            "runs": {id: programs.runs.get(id).status.value for id in runs},
            "seen": {id: programs.runs.get(id).seen_at for id in runs},
            "held": {id: programs.runs.get(id).held_by is not None for id in runs},
            "statements": {run: [one.status.value for one in programs.executions.list(run)] for run in runs},
            "bound": {run: sorted((one.name, one.value, one.kind.value) for one in programs.bindings.list(run)) for run in runs},
        }

    def expected(self) -> Any:
        return {
            "runs": self.runs,
            "seen": self.last_seen,
            "held": {id: status == "running" for id, status in self.runs.items()},
            "statements": {run: [one.status for one in self.statements if one.run == run] for run in self.runs},
            "bound": {run: sorted((key[1], *found) for key, found in self.bound.items() if key[0] == run) for run in self.runs},
        }
