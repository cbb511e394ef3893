"""Values and vocabularies of programs. Shapes: OpenProse's SQLite state document; instants have whole seconds."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from persist.db.values import Value


class RunStatus(StrEnum):
    """Where a program's run is. A raw writer may have written any other word, which is read as it is."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class ExecutionStatus(StrEnum):
    """Where a statement is."""

    PENDING = "pending"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


SETTLED = frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.SKIPPED})
"""Statuses after which a statement is over."""


class BindingKind(StrEnum):
    """How a value was named; const and input are named once."""

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
    """A row of run."""

    id: str
    program_path: str | None
    status: RunStatus
    state_mode: str | None
    started_at: datetime | None
    updated_at: datetime | None
    program_source: str | None


class ProgramExecution(Value):
    """A row of execution: one statement, in the frame of its parent. Its id is the id of the frame it opens."""

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
    """Where a large value is, relative to the run's directory; `value` is then a summary, or nothing."""
    source_statement: str | None
    created_at: datetime | None
    updated_at: datetime | None
    value: str | None


class Agent(Value):
    """A row of agents: what a persistent agent remembers."""

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
    """A row of imports: a program that is used under an alias."""

    run_id: str
    alias: str
    source_url: str | None
    fetched_at: datetime | None
    inputs_schema: Any
    outputs_schema: Any


FIXED = frozenset({BindingKind.CONST, BindingKind.INPUT})
"""Kinds of values that are named once."""


class ParallelBlock(Value):
    """A parallel block that is not over, as its rows show it: branch name -> status, what `join` wants to know."""

    parallel_id: str
    execution_id: int | None
    strategy: str | None
    count: int | None
    on_fail: str | None
    branches: dict[str, str]


class Loop(Value):
    """A loop that is not over, as its row shows it."""

    loop_id: str
    execution_id: int
    current_iteration: int | None
    max_iterations: int | None
    condition: str | None


class ResumePoint(Value):
    """What a virtual machine needs to go on with a run."""

    run: ProgramRun
    executing: list[ProgramExecution]
    """Statements that were under way, the latest first."""
    bindings: list[Binding]
    agents: list[Agent]
    parallel: list[ParallelBlock]
    loops: list[Loop]


class AuditFinding(Value):
    """Something in a run that this library did not put there, or that does not fit together."""

    code: str
    """orphan, circle, unknown_word, status_not_ours, attachment_(missing, escapes, unused), unexpected_table, unreadable."""
    subject: str
    message: str

    @classmethod
    def of(cls, code: str, subject: str, message: str) -> "AuditFinding":
        """One finding."""
        return cls(code=code, subject=subject, message=message)
