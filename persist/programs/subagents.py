"""What a subagent is given when it runs in this process: its values and its memory, and nothing else of the run."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from persist.programs.repository import Programs
from persist.programs.run_rows import outlives_runs
from persist.programs.schemas import Agent, AgentSegment, AuditFinding, Binding


class _ProgramTransaction(Protocol):
    programs: Programs


class ProgramStore(Protocol):
    """What this module needs of a Store."""

    path: Path | None

    @property
    def run_id(self) -> str | None: ...

    def begin(self) -> AbstractContextManager[_ProgramTransaction]: ...

    def read(self) -> AbstractContextManager[_ProgramTransaction]: ...


Run = Callable[[Callable[[Programs], Any]], Any]


class SubagentBindings:
    """The values of the subagent's frame."""

    __slots__ = ("bind", "get", "resolve")

    def __init__(self, write: Run, read: Run, run_id: str, execution_id: int | None) -> None:
        def bind(
            name: str,
            value: str | None,
            *,
            kind: str = "let",
            source_statement: str | None = None,
            summary: str | None = None,
        ) -> Binding:
            """See Bindings.bind."""
            options: dict[str, Any] = {"kind": kind, "source_statement": source_statement, "summary": summary}
            bound: Binding = write(
                lambda programs: programs.bindings.bind(run_id, name, value, execution_id=execution_id, **options)
            )
            return bound

        def get(name: str) -> Binding | None:
            """See Bindings.get."""
            found: Binding | None = read(lambda programs: programs.bindings.get(run_id, name, execution_id=execution_id))
            return found

        def resolve(name: str) -> Binding:
            """See Bindings.resolve."""
            found: Binding = read(lambda programs: programs.bindings.resolve(run_id, name, execution_id=execution_id))
            return found

        self.bind, self.get, self.resolve = bind, get, resolve


class SubagentAgents:
    """What agents remember, and their segments."""

    __slots__ = ("add_segment", "recall", "remember", "segments")

    def __init__(self, write: Run, read: Run, run_id: str) -> None:
        def remember(name: str, memory: str, *, scope: str = "execution") -> Agent:
            """See Agents.remember."""
            agent: Agent = write(lambda programs: programs.agents.remember(run_id, name, memory, scope=scope))
            return agent

        def recall(name: str) -> Agent | None:
            """See Agents.recall."""
            agent: Agent | None = read(lambda programs: programs.agents.recall(run_id, name))
            return agent

        def add_segment(agent_name: str, *, prompt: str, summary: str) -> AgentSegment:
            """See Agents.add_segment."""
            added: AgentSegment = write(
                lambda programs: programs.agents.add_segment(run_id, agent_name, prompt=prompt, summary=summary)
            )
            return added

        def segments(agent_name: str) -> list[AgentSegment]:
            """See Agents.segments."""
            found: list[AgentSegment] = read(lambda programs: programs.agents.segments(run_id, agent_name))
            return found

        self.remember, self.recall, self.add_segment, self.segments = remember, recall, add_segment, segments


class SubagentHandle:
    """`.bindings.bind(…) .get(…) .resolve(…)`, `.agents.remember(…) .recall(…) .add_segment(…) .segments(…)`.

    Run and frame are fixed, every call is a transaction of its own, and no attribute leads to the store.
    """

    __slots__ = ("agents", "bindings")

    def __init__(self, store: ProgramStore, run_id: str, execution_id: int | None) -> None:
        def write(call: Callable[[Programs], Any]) -> Any:
            with store.begin() as tx:
                return call(tx.programs)

        def read(call: Callable[[Programs], Any]) -> Any:
            with store.read() as tx:
                return call(tx.programs)

        self.bindings = SubagentBindings(write, read, run_id, execution_id)
        self.agents = SubagentAgents(write, read, run_id)


def subagent(store: ProgramStore, run_id: str, execution_id: int | None = None) -> SubagentHandle:
    """A handle for a subagent of the run, in the frame of an execution or in the root; NotFound for either.

    On a file of a project's or a user's agents the run is "project" or "user": the handle remembers, and has no values to bind.
    """
    if execution_id is not None or not outlives_runs(run_id, store.run_id):
        check_frame(store, run_id, execution_id)
    return SubagentHandle(store, run_id, execution_id)


def check_frame(store: ProgramStore, run_id: str, execution_id: int | None) -> None:
    """NotFound for the run or the execution."""
    with store.read() as tx:
        tx.programs.runs.get(run_id)
        if execution_id is not None:
            tx.programs.executions.get(run_id, execution_id)


def audit(store: ProgramStore, run_id: str) -> list[AuditFinding]:
    """What a raw writer left in the run that was not its to write. See `tx.programs.runs.audit`."""
    with store.read() as tx:
        return tx.programs.runs.audit(run_id)
