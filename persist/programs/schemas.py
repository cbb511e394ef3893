"""Values and vocabularies of programs, with the fields of OpenProse's SQLite state (docs/designs.md), in whole seconds."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from persist.db.values.frozen import Value
from persist.errors import TransitionError


class RunStatus(StrEnum):
    """The status of a program's run. Any other word that a raw writer wrote is returned as text."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class ExecutionStatus(StrEnum):
    """The status of a statement."""

    PENDING = "pending"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


SETTLED = frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.SKIPPED})
"""Statuses after which a statement is over."""


class BindingKind(StrEnum):
    """How a value was bound; const and input can be bound once only."""

    INPUT = "input"
    OUTPUT = "output"
    LET = "let"
    CONST = "const"


class AgentScope(StrEnum):
    """How long an agent's memory lives."""

    EXECUTION = "execution"
    PROJECT = "project"
    USER = "user"
    CUSTOM = "custom"


class ProgramRun(Value):
    """A row of run.

    held_by     the process that runs it: `host/boot/pid namespace/time namespace/pid/start/nonce`, with `-` for what its system
                does not tell; None: no process of this library does, as far as is known
    held_since  when that process began or resumed it
    seen_at     when that process last said so
    """

    id: str
    program_path: str | None
    status: RunStatus
    state_mode: str | None
    started_at: datetime | None
    updated_at: datetime | None
    held_by: str | None
    held_since: datetime | None
    seen_at: datetime | None
    program_source: str | None


class ProgramExecution(Value):
    """A row of execution: one statement, in the frame of its parent. Its id is also the id of the frame it opens."""

    id: int
    run_id: str
    statement_index: int | None
    status: ExecutionStatus | None
    started_at: datetime | None
    completed_at: datetime | None
    updated_at: datetime | None
    parent_id: int | None
    statement_text: str | None
    error_message: str | None
    metadata: Any


class Binding(Value):
    """A row of bindings: a named value of one frame (`execution_id`), or of the root (None)."""

    run_id: str
    name: str
    execution_id: int | None
    kind: BindingKind | None
    attachment_path: str | None
    """The file of a large value, relative to the run's directory; `value` is then a summary or None."""
    source_statement: str | None
    created_at: datetime | None
    updated_at: datetime | None
    value: str | None


class Agent(Value):
    """A row of agents: the memory of a persistent agent."""

    run_id: str
    name: str
    scope: AgentScope | None
    created_at: datetime | None
    updated_at: datetime | None
    memory: str | None


class AgentSegment(Value):
    """A row of agent_segments: one invocation of a persistent agent."""

    id: int
    run_id: str
    agent_name: str | None
    segment_number: int | None
    timestamp: datetime | None
    prompt: str | None
    summary: str | None


class Import(Value):
    """A row of imports: a program that a run imports under an alias."""

    run_id: str
    alias: str
    source_url: str | None
    fetched_at: datetime | None
    inputs_schema: Any
    outputs_schema: Any


FIXED = frozenset({BindingKind.CONST, BindingKind.INPUT})
"""Kinds of values that can be bound once only."""


class Isolation(StrEnum):
    """What keeps a subagent that is not trusted from everything but its own frame and its own memory."""

    FILE = "file"
    ROLE = "role"


class Subagent(Value):
    """A row of program_subagents: a subagent that is not trusted.

    isolation    "file": it writes a separate file, which is taken in later. "role": it connects to the server with a token
    agent_name   the agent whose memory it has; None: it has no memory
    expires_at   when its token ends; None for a file
    ended_at     when its file was taken in or its token was revoked; None before
    """

    id: str
    run_id: str
    execution_id: int | None
    isolation: Isolation
    agent_name: str | None
    created_at: datetime
    expires_at: datetime | None
    ended_at: datetime | None


class ServerAccess(Value):
    """How a subagent connects to the server. No `repr` and no later call shows the secrets again.

    server   how it connects, without the token
    token    the secret, of which the store keeps the hash alone
    options  the connection's options, the token included (PGOPTIONS)
    dsn      `server` and `options` in one
    """

    server: str
    token: str = Field(repr=False)
    options: str = Field(repr=False)
    dsn: str = Field(repr=False)


class StartedSubagent(Value):
    """A new subagent, and what its file begins with, or how it connects.

    bindings  the values of its frame; of one with an attachment the file gets the summary. Empty for isolation="role"
    memory    its agent; None for isolation="role"
    access    None for isolation="file"
    """

    subagent: Subagent
    bindings: list[Binding]
    memory: Agent | None
    access: ServerAccess | None


class TakenRow(Value):
    """A row of a subagent's file that was bound, remembered or added. `name`: of the value, or of the agent."""

    subagent_id: str
    table: str
    name: str


class RefusedRow(Value):
    """A row of a subagent's file that was left alone; `table` and `name` None: all of the file."""

    subagent_id: str
    table: str | None
    name: str | None
    reason: str


class TakenIn(Value):
    """What the files of a frame's subagents were good for, those of earlier calls included.

    taken     what was bound, remembered and added
    refused   what was not, and why
    """

    taken: list[TakenRow]
    refused: list[RefusedRow]


class ParallelBlock(Value):
    """An unfinished parallel block as its rows show it: branch name -> status, and the other arguments of `join`."""

    parallel_id: str
    execution_id: int | None
    strategy: str | None
    count: int | None
    on_fail: str | None
    branches: dict[str, str]


class Loop(Value):
    """An unfinished loop, as its row shows it."""

    loop_id: str
    execution_id: int
    current_iteration: int | None
    max_iterations: int | None
    condition: str | None


class ResumePoint(Value):
    """What a virtual machine needs to continue a run."""

    run: ProgramRun
    executing: list[ProgramExecution]
    """Statements in progress, the latest first."""
    bindings: list[Binding]
    agents: list[Agent]
    parallel: list[ParallelBlock]
    loops: list[Loop]


class AuditFinding(Value):
    """A part of a run that another program wrote, or that is inconsistent."""

    code: str
    """orphan, circle, unknown_word, status_not_ours, attachment_(missing, escapes, unused), unexpected_table, unreadable,
    guard_missing, trigger_unknown, raw_write."""
    subject: str
    message: str
    at: datetime | None = None
    """The instant of a raw_write, by the clock of the database; None for other findings."""
    before: dict[str, Any] | None = None
    """The columns that a raw_write changed, or all of a deleted row, with what they said before.

    Of a text of more than 10,000 characters the first ones. NULL cells of a deleted row are left out.
    """
    writer: dict[str, Any] | None = None
    """The `role`, `application`, `pid` and `address` of the connection of a raw_write on Postgres; a file knows no names."""

    @classmethod
    def of(cls, code: str, subject: str, message: str, **noted: Any) -> "AuditFinding":
        return cls(code=code, subject=subject, message=message, **noted)


# Tables of allowed status transitions. Pure. A status that only raw writers use may become anything.

_RUNS: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.RUNNING: frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.INTERRUPTED}),
    RunStatus.INTERRUPTED: frozenset({RunStatus.RUNNING}),
    RunStatus.FAILED: frozenset({RunStatus.RUNNING}),
    RunStatus.COMPLETED: frozenset(),
}
_EXECUTIONS: dict[ExecutionStatus, frozenset[ExecutionStatus]] = {
    ExecutionStatus.PENDING: frozenset({ExecutionStatus.EXECUTING, ExecutionStatus.FAILED, ExecutionStatus.SKIPPED}),
    ExecutionStatus.EXECUTING: SETTLED,
    ExecutionStatus.COMPLETED: frozenset(),
    ExecutionStatus.FAILED: frozenset({ExecutionStatus.EXECUTING}),
    ExecutionStatus.SKIPPED: frozenset(),
}
"""failed -> executing is a retry."""


def check_run(id: str, current: str | None, to: RunStatus) -> None:
    """Raises TransitionError unless a run may change to that status."""
    allowed = _RUNS.get(current) if isinstance(current, RunStatus) else None
    if allowed is not None and to not in allowed:
        raise TransitionError(f"program run {id}", str(current), to.value)


def check_execution(id: int, current: str | None, to: ExecutionStatus) -> None:
    """Raises TransitionError unless an execution may change to that status."""
    allowed = _EXECUTIONS.get(current) if isinstance(current, ExecutionStatus) else None
    if allowed is not None and to not in allowed:
        raise TransitionError(f"execution {id}", str(current), to.value)
