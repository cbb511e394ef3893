"""Handles for subagents in this process: they reach the subagent's values and memory, and nothing else of the run."""

import logging
import sys
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, Literal, ParamSpec, TypeVar, overload

from persist.db.values.arguments import check_amount, check_choice, optional_label
from persist.errors import InvalidValue, NotPermitted, named
from persist.programs.schemas import SETTLED, Agent, AgentSegment, AuditFinding, Binding, ExecutionStatus, Isolation
from persist.programs.subagents import stores
from persist.programs.subagents.isolation import SubagentFile, SubagentRole, isolated


class Backoff(StrEnum):
    """How the waits between attempts grow."""

    NONE = "none"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


def retry_delay(backoff: str | None, attempt: int, *, base: float = 1.0) -> float:
    """Seconds before retry number `attempt`, the first one being 1: none at all, `base` each time, or base · 1, 2, 4, 8 …"""
    kind = check_choice("backoff", Backoff.NONE if backoff is None else backoff, Backoff)
    if type(attempt) is not int or attempt < 1:
        raise InvalidValue("attempt", "expected a whole number, 1 or more.")
    base = check_amount("base", base)
    if kind is Backoff.NONE:
        return 0.0
    return base if kind is Backoff.LINEAR else min(base * 2.0 ** min(attempt - 1, 30), sys.float_info.max)


log = logging.getLogger("persist")


class Strategy(StrEnum):
    """What a parallel block waits for: every branch, the first one to end, or `count` successes."""

    ALL = "all"
    FIRST = "first"
    ANY = "any"


class OnFail(StrEnum):
    """What a failed branch does to its block: fail it at once, fail it when all branches have ended, or nothing."""

    FAIL_FAST = "fail-fast"
    CONTINUE = "continue"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Joined:
    """The state of a block: still waiting, or its outcome, the branches to cancel, and the branches that failed."""

    outcome: Literal["wait", "success", "failure"]
    cancel: list[str]
    failed: list[str]


def join(strategy: str | None, count: int | None, on_fail: str | None, branch_states: Mapping[str, str]) -> Joined:
    """Decide whether a parallel block is over. `branch_states`: branch -> status of its execution, for every branch.

    None means all, one success, and fail-fast. A branch has ended when it is completed, failed or skipped; other statuses are
    waited for. `all`: no branch failed. `first`: the first to end decides, so under fail-fast a failure does too. `any`:
    `count` branches completed; fail-fast then fails as soon as that cannot be reached any more. `continue` decides on failure
    only when every branch has ended, `ignore` never. A block without branches succeeds. A larger count than there are
    branches is lowered to them, with a warning. Raises InvalidValue for other words, and for a count without `any` or below 1.
    """
    kind = check_choice("strategy", Strategy.ALL if strategy is None else strategy, Strategy)
    mode = check_choice("on_fail", OnFail.FAIL_FAST if on_fail is None else on_fail, OnFail)
    wanted = _wanted(kind, count, len(branch_states))
    failed = [name for name, state in branch_states.items() if state == ExecutionStatus.FAILED]
    waiting = [name for name, state in branch_states.items() if state not in SETTLED]
    completed = sum(state == ExecutionStatus.COMPLETED for state in branch_states.values())
    if kind is Strategy.ALL:
        ended, good = not waiting, not failed
        hopeless = bool(failed)
    else:
        ended = good = completed >= wanted
        hopeless = completed + len(waiting) < wanted or (kind is Strategy.FIRST and bool(failed))
    if ended and good:
        return Joined("success", waiting, failed)
    if mode is OnFail.FAIL_FAST and hopeless:
        return Joined("failure", waiting, failed)
    if waiting:
        return Joined("wait", [], failed)
    return Joined("success" if mode is OnFail.IGNORE else "failure", [], failed)


def _wanted(strategy: Strategy, count: int | None, branches: int) -> int:
    if count is None:
        return min(1, branches)
    if strategy is not Strategy.ANY:
        raise InvalidValue("count", f"only 'any' counts, and the strategy is {strategy.value!r}.")
    if type(count) is not int or count < 1:
        raise InvalidValue("count", "expected a whole number, 1 or more.")
    if count > branches:
        log.warning("a parallel block waits for %d of its %d branches; all of them will do", count, branches)
    return min(count, branches)


P = ParamSpec("P")
R = TypeVar("R")
Run = Callable[[stores.Question], Any]


class SubagentBindings:
    """The values of the subagent's frame."""

    __slots__ = ("bind", "bind_file", "get", "open_file", "resolve")

    def __init__(self, write: Run, read: Run, run_id: str, execution_id: int | None) -> None:
        frame = {"execution_id": execution_id}

        def bind(
            name: str, value: str | None, *, kind: str = "let", source_statement: str | None = None, summary: str | None = None
        ) -> Binding:
            """See Bindings.bind."""
            options: dict[str, Any] = {"kind": kind, "source_statement": source_statement, "summary": summary}
            bound: Binding = write(lambda programs: programs.bindings.bind(run_id, name, value, **frame, **options))
            return bound

        def bind_file(
            name: str, path: str | Path, *, kind: str = "let", source_statement: str | None = None, summary: str | None = None
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
    """The memory of agents, and their segments: of one agent alone, if the handle is one's."""

    __slots__ = ("add_segment", "recall", "remember", "segments")

    def __init__(self, write: Run, read: Run, run_id: str, agent: str | None = None) -> None:
        def own(call: Callable[[Any, str], Any], name: str) -> stores.Question:
            """The call, which raises NotPermitted for any other agent than the handle's."""

            def question(programs: Any) -> Any:
                if agent is not None and (type(name) is not str or name != agent):
                    raise NotPermitted(f"This handle is the agent {named(agent)}'s, and has no memory of another one.")
                return call(programs.agents, name)

            return question

        def remember(name: str, memory: str, *, scope: str = "execution") -> Agent:
            """See Agents.remember."""
            agent: Agent = write(own(lambda agents, name: agents.remember(run_id, name, memory, scope=scope), name))
            return agent

        def recall(name: str) -> Agent | None:
            """See Agents.recall."""
            agent: Agent | None = read(own(lambda agents, name: agents.recall(run_id, name), name))
            return agent

        def add_segment(agent_name: str, *, prompt: str, summary: str) -> AgentSegment:
            """See Agents.add_segment."""
            added: AgentSegment = write(
                own(lambda agents, name: agents.add_segment(run_id, name, prompt=prompt, summary=summary), agent_name)
            )
            return added

        def segments(agent_name: str) -> list[AgentSegment]:
            """See Agents.segments."""
            found: list[AgentSegment] = read(own(lambda agents, name: agents.segments(run_id, name), agent_name))
            return found

        self.remember, self.recall, self.add_segment, self.segments = remember, recall, add_segment, segments


class SubagentHandle:
    """What a subagent may do: bind and read values, and remember and recall as an agent.

    `.bindings.bind(…) .bind_file(…) .get(…) .resolve(…) .open_file(…)`, `.agents.remember(…) .recall(…) .add_segment(…)
    .segments(…)`. Run and frame are fixed, every call is a transaction of its own, and no attribute exposes the store.
    """

    __slots__ = ("agents", "bindings")

    def __init__(self, store: stores.AnyStore, run_id: str, execution_id: int | None, agent: str | None = None) -> None:
        write, read = stores.transactions(store)
        self.bindings = SubagentBindings(write, read, run_id, execution_id)
        self.agents = SubagentAgents(write, read, run_id, agent)


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

    def __init__(self, store: stores.AsyncProgramStore, run_id: str, execution_id: int | None, agent: str | None = None) -> None:
        handle = SubagentHandle(store, run_id, execution_id, agent)
        self.bindings = AsyncSubagentBindings(handle.bindings)
        self.agents = AsyncSubagentAgents(handle.agents)
        self._checked: Callable[[], Any] = lambda: stores.check_frame(store, run_id, execution_id, self)

    def __await__(self) -> Generator[Any, None, "AsyncSubagentHandle"]:
        checked: Coroutine[Any, Any, AsyncSubagentHandle] = self._checked()
        return checked.__await__()


@overload
def subagent(
    store: stores.ProgramStore, run_id: str, execution_id: int | None = None, *, agent: str | None = None
) -> SubagentHandle:
    """Over a Store."""


@overload
def subagent(
    store: stores.AsyncProgramStore, run_id: str, execution_id: int | None = None, *, agent: str | None = None
) -> AsyncSubagentHandle:
    """Over an AsyncStore."""


@overload
def subagent(
    store: stores.ProgramStore,
    run_id: str,
    execution_id: int | None = None,
    *,
    isolation: Literal["file"],
    agent: str | None = None,
    folder: str | Path | None = None,
) -> SubagentFile:
    """With a file of its own."""


@overload
def subagent(
    store: stores.AsyncProgramStore,
    run_id: str,
    execution_id: int | None = None,
    *,
    isolation: Literal["file"],
    agent: str | None = None,
    folder: str | Path | None = None,
) -> Coroutine[Any, Any, SubagentFile]:
    """With a file of its own, over an AsyncStore."""


@overload
def subagent(
    store: stores.ProgramStore,
    run_id: str,
    execution_id: int | None = None,
    *,
    isolation: Literal["role"],
    agent: str | None = None,
    expires_in: timedelta | None = None,
    role: str | None = None,
) -> SubagentRole:
    """With a token for the server."""


@overload
def subagent(
    store: stores.AsyncProgramStore,
    run_id: str,
    execution_id: int | None = None,
    *,
    isolation: Literal["role"],
    agent: str | None = None,
    expires_in: timedelta | None = None,
    role: str | None = None,
) -> Coroutine[Any, Any, SubagentRole]:
    """With a token for the server, over an AsyncStore."""


def subagent(
    store: stores.AnyStore,
    run_id: str,
    execution_id: int | None = None,
    *,
    isolation: str | None = None,
    agent: str | None = None,
    folder: str | Path | None = None,
    expires_in: timedelta | None = None,
    role: str | None = None,
) -> Any:
    """A handle for a subagent of the run, in the frame of an execution or in the root. Raises NotFound for run or execution.

    Over an AsyncStore its methods are coroutines, and the handle itself is awaited: `await subagent(store, run_id)`. On a file of
    a project's or a user's agents the run is "project" or "user": the handle has memory, and no values to bind.

    agent       the agent of the handle: another agent's memory raises NotPermitted. None: all agents' memory
    isolation   for a subagent that is not trusted, which reaches its frame's values and the memory of `agent` alone; without
                `agent` no memory. "file": a SubagentFile, whose file `take_in` reads later. "role", on a server: a SubagentRole,
                with a token. See `tx.programs.subagents.start`
    folder      with "file": an existing folder in which `subagents/` is made; by default that of the run's own file
    expires_in  with "role": how long the token is good for; an hour by default
    role        with "role": the role that `persist grants --role subagent` has made; persist_subagent by default
    """
    if isolation is not None:
        given: dict[str, Any] = {"agent": agent, "folder": folder, "expires_in": expires_in, "role": role}
        return isolated(store, run_id, execution_id, check_choice("isolation", isolation, Isolation), **given)
    name = optional_label("agent", agent)
    if stores.is_async(store):
        return AsyncSubagentHandle(store, run_id, execution_id, name)  # type: ignore[arg-type]  # checked by is_async
    return stores.check_frame(store, run_id, execution_id, SubagentHandle(store, run_id, execution_id, name))


@overload
def audit(store: stores.ProgramStore, run_id: str) -> list[AuditFinding]:
    """Over a Store."""


@overload
def audit(store: stores.AsyncProgramStore, run_id: str) -> Coroutine[Any, Any, list[AuditFinding]]:
    """Over an AsyncStore."""


def audit(store: stores.AnyStore, run_id: str) -> list[AuditFinding] | Coroutine[Any, Any, list[AuditFinding]]:
    """What a raw writer wrote into the run against the rules; awaited over an AsyncStore. See `tx.programs.runs.audit`."""
    found: list[AuditFinding] | Coroutine[Any, Any, list[AuditFinding]] = stores.ask(
        store, [lambda programs: programs.runs.audit(run_id)], lambda answers: answers[0]
    )
    return found
