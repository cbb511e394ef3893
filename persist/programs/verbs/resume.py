"""The state from which an interrupted run continues: executing statements, bindings, agents, open blocks and loops."""

from collections.abc import Iterable
from typing import Any

from persist.db.transactions.own_scope import stored_scope
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.programs.schemas import (
    SETTLED,
    ExecutionStatus,
    Loop,
    ParallelBlock,
    ProgramExecution,
    ProgramRun,
    ResumePoint,
)
from persist.programs.storage.execution_rows import EXECUTION, facts_of
from persist.programs.storage.scopes import BINDING
from persist.programs.verbs.agents import AGENT, ALL_AGENTS
from persist.programs.verbs.bindings import ALL_BINDINGS
from persist.programs.verbs.executions import ALL_EXECUTIONS


def resume_point(work: UnitOfWork, run: ProgramRun) -> ResumePoint:
    """See ProgramRuns.resume_point."""
    stored = stored_scope(work, "run_id", run.id)
    with work.batch() as batch:
        found = batch.rows(ALL_EXECUTIONS, run=stored)
        bindings = batch.rows(ALL_BINDINGS, run=stored)
        agents = batch.rows(ALL_AGENTS, run=stored)
    executions = [EXECUTION.public(work, row) for row in found.result]
    executing = [one for one in executions if one.status == ExecutionStatus.EXECUTING]
    return ResumePoint(
        run=run,
        executing=executing[::-1],
        bindings=[BINDING.public(work, row) for row in bindings.result],
        agents=[AGENT.public(work, row) for row in agents.result],
        parallel=list(parallel_blocks(executions)),
        loops=list(loops(executions)),
    )


def parallel_blocks(executions: list[ProgramExecution]) -> Iterable[ParallelBlock]:
    """The unfinished parallel blocks, with every branch that is declared or has begun; the last attempt of each."""
    facts = {one.id: facts_of(one) for one in executions}
    for block in executions:
        found = facts[block.id]
        if "parallel_id" not in found or "branch" in found or block.status in SETTLED:
            continue
        declared = found.get("branches")
        branches = {str(name): ExecutionStatus.PENDING.value for name in (declared if isinstance(declared, list) else [])}
        for one in executions:
            below = facts[one.id]
            same = below.get("parallel_id") == found["parallel_id"] and below.get("branch") is not None
            if same and one.parent_id in (block.id, None):
                branches[str(below["branch"])] = str(one.status or "")
        yield ParallelBlock(
            parallel_id=str(found["parallel_id"]),
            execution_id=block.id,
            strategy=_text(found.get("strategy")),
            count=_whole(found.get("count")),
            on_fail=_text(found.get("on_fail")),
            branches=branches,
        )


def loops(executions: list[ProgramExecution]) -> Iterable[Loop]:
    """The unfinished loops."""
    for one in executions:
        found = facts_of(one)
        if "loop_id" in found and one.status not in SETTLED:
            yield Loop(
                loop_id=str(found["loop_id"]),
                execution_id=one.id,
                current_iteration=_whole(found.get("current_iteration")),
                max_iterations=_whole(found.get("max_iterations")),
                condition=_text(found.get("condition")),
            )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None
