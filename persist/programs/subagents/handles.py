"""Handles for subagents in this process: they reach the subagent's values and memory, and nothing else of the run."""

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, TypeVar, overload

from persist.programs.schemas import Agent, AgentSegment, AuditFinding, Binding
from persist.programs.storage.run_rows import outlives_runs
from persist.programs.subagents.stores import AnyStore, AsyncProgramStore, ProgramStore, Question, ask, is_async, transactions

P = ParamSpec("P")
R = TypeVar("R")
Run = Callable[[Question], Any]


class SubagentBindings:
    """The values of the subagent's frame."""

    __slots__ = ("bind", "bind_file", "get", "open_file", "resolve")

    def __init__(self, write: Run, read: Run, run_id: str, execution_id: int | None) -> None:
        frame = {"execution_id": execution_id}

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
            bound: Binding = write(lambda programs: programs.bindings.bind(run_id, name, value, **frame, **options))
            return bound

        def bind_file(
            name: str,
            path: str | Path,
            *,
            kind: str = "let",
            source_statement: str | None = None,
            summary: str | None = None,
        ) -> Binding:
            """See Bindings.bind_file."""
            options: dict[str, Any] = {"kind": kind, "source_statement": source_statement, "summary": summary}
            bound: Binding = write(lambda programs: programs.bindings.bind_file(run_id, name, path, **frame, **options))
            return bound

        def get(name: str) -> Binding | None:
            """See Bindings.get."""
            found: Binding | None = read(lambda programs: programs.bindings.get(run_id, name, **frame))
            return found

        def resolve(name: str) -> Binding:
            """See Bindings.resolve."""
            found: Binding = read(lambda programs: programs.bindings.resolve(run_id, name, **frame))
            return found

        def open_file(name: str) -> BinaryIO:
            """See Bindings.open_file."""
            stream: BinaryIO = read(lambda programs: programs.bindings.open_file(run_id, name, **frame))
            return stream

        self.bind, self.bind_file, self.get, self.resolve, self.open_file = bind, bind_file, get, resolve, open_file


class SubagentAgents:
    """The memory of agents, and their segments."""

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
    """What a subagent may do: bind and read values, and remember and recall as an agent.

    `.bindings.bind(…) .bind_file(…) .get(…) .resolve(…) .open_file(…)`, `.agents.remember(…) .recall(…) .add_segment(…)
    .segments(…)`. Run and frame are fixed, every call is a transaction of its own, and no attribute exposes the store.
    """

    __slots__ = ("agents", "bindings")

    def __init__(self, store: AnyStore, run_id: str, execution_id: int | None) -> None:
        write, read = transactions(store)
        self.bindings = SubagentBindings(write, read, run_id, execution_id)
        self.agents = SubagentAgents(write, read, run_id)


def _awaited(method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Type a handle's method as the coroutine function that it is over an AsyncStore."""

    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await method(*args, **kwargs)  # type: ignore[misc]  # its transactions give coroutines
        return result

    return call


class AsyncSubagentBindings:
    """See SubagentBindings."""

    __slots__ = ("bind", "bind_file", "get", "open_file", "resolve")

    def __init__(self, bindings: SubagentBindings) -> None:
        self.bind = _awaited(bindings.bind)
        self.bind_file = _awaited(bindings.bind_file)
        self.get = _awaited(bindings.get)
        self.resolve = _awaited(bindings.resolve)
        self.open_file = _awaited(bindings.open_file)


class AsyncSubagentAgents:
    """See SubagentAgents."""

    __slots__ = ("add_segment", "recall", "remember", "segments")

    def __init__(self, agents: SubagentAgents) -> None:
        self.remember = _awaited(agents.remember)
        self.recall = _awaited(agents.recall)
        self.add_segment = _awaited(agents.add_segment)
        self.segments = _awaited(agents.segments)


class AsyncSubagentHandle:
    """See SubagentHandle. Its methods are coroutines. Awaiting the handle checks run and frame, and returns the handle."""

    __slots__ = ("_checked", "agents", "bindings")

    def __init__(self, store: AsyncProgramStore, run_id: str, execution_id: int | None) -> None:
        handle = SubagentHandle(store, run_id, execution_id)
        self.bindings = AsyncSubagentBindings(handle.bindings)
        self.agents = AsyncSubagentAgents(handle.agents)
        self._checked: Callable[[], Any] = lambda: check_frame(store, run_id, execution_id, self)

    def __await__(self) -> Generator[Any, None, "AsyncSubagentHandle"]:
        checked: Coroutine[Any, Any, AsyncSubagentHandle] = self._checked()
        return checked.__await__()


@overload
def subagent(store: ProgramStore, run_id: str, execution_id: int | None = None) -> SubagentHandle:
    """Over a Store."""


@overload
def subagent(store: AsyncProgramStore, run_id: str, execution_id: int | None = None) -> AsyncSubagentHandle:
    """Over an AsyncStore."""


def subagent(store: AnyStore, run_id: str, execution_id: int | None = None) -> SubagentHandle | AsyncSubagentHandle:
    """A handle for a subagent of the run, in the frame of an execution or in the root. Raises NotFound for run or execution.

    Over an AsyncStore its methods are coroutines, and the handle itself is awaited: `await subagent(store, run_id)`.
    On a file of a project's or a user's agents the run is "project" or "user": the handle has memory, and no values to bind.
    """
    if is_async(store):
        return AsyncSubagentHandle(store, run_id, execution_id)  # type: ignore[arg-type]  # checked by is_async
    handle: SubagentHandle = check_frame(store, run_id, execution_id, SubagentHandle(store, run_id, execution_id))
    return handle


def frame_questions(store: AnyStore, run_id: str, execution_id: int | None) -> list[Question]:
    """The verb calls that check the frame. They raise NotFound for the run or the execution."""
    questions: list[Question] = [lambda programs: programs.runs.get(run_id)]
    if execution_id is not None:
        questions.append(lambda programs: programs.executions.get(run_id, execution_id))
    return questions


def check_frame(store: AnyStore, run_id: str, execution_id: int | None, then: R) -> Any:
    """Check run and execution, then return `then`, or a coroutine of it. Raises NotFound. "project" and "user" need no run."""
    if execution_id is None and outlives_runs(run_id, store.run_id):
        return ask(store, [], lambda _: then)
    return ask(store, frame_questions(store, run_id, execution_id), lambda _: then)


@overload
def audit(store: ProgramStore, run_id: str) -> list[AuditFinding]:
    """Over a Store."""


@overload
def audit(store: AsyncProgramStore, run_id: str) -> Coroutine[Any, Any, list[AuditFinding]]:
    """Over an AsyncStore."""


def audit(store: AnyStore, run_id: str) -> list[AuditFinding] | Coroutine[Any, Any, list[AuditFinding]]:
    """What a raw writer wrote into the run against the rules; awaited over an AsyncStore. See `tx.programs.runs.audit`."""
    found: list[AuditFinding] | Coroutine[Any, Any, list[AuditFinding]] = ask(
        store, [lambda programs: programs.runs.audit(run_id)], lambda answers: answers[0]
    )
    return found
