"""Executions: the statements of a run as a tree; each is a frame with branch, loop and retries."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import insert, select

from persist.db.changes.batch import Pending
from persist.db.statements.prepared import Row, Statement, among, param
from persist.db.transactions.own_scope import stored_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_choice, check_count, must_exist
from persist.db.values.json import Json, merge_patch
from persist.errors import InvalidValue, RecursionLimitExceeded, TransitionError
from persist.programs.models import executions
from persist.programs.schemas import SETTLED, ExecutionStatus, Loop, ParallelBlock, ProgramExecution, ProgramRun, ResumePoint
from persist.programs.storage import binding_rows, run_rows
from persist.programs.storage.binding_rows import BINDING
from persist.programs.verbs.agents import AGENT, ALL_AGENTS
from persist.programs.verbs.bindings import ALL_BINDINGS

List = list
_E = executions.c
_GIVEN = ("run_id", "statement_index", "started_at", "updated_at", "parent_id", "statement_text")
_ADD = Statement(
    insert(executions)
    .values(**{name: param(name) for name in _GIVEN}, status=param("to"), written_status=param("to"), metadata=param("facts"))
    .returning(*run_rows.EXECUTION.columns)
)
_OF_RUN = select(*run_rows.EXECUTION.columns).where(_E.run_id == param("run")).order_by(_E.id)
ALL_EXECUTIONS = Statement(_OF_RUN)
_WITH_STATUS = Statement(_OF_RUN.where(_E.status == param("word")))
_CHILDREN = Statement(_OF_RUN.where(_E.parent_id == param("parent")))
_FACTS = select(_E.status, _E.metadata).where(_E.run_id == param("run")).order_by(_E.id)
_BRANCHES = Statement(_FACTS)
_UNSETTLED = Statement(_FACTS.where(_E.status.is_(None) | ~among(_E.status, sorted(SETTLED))))


class ProgramExecutions(Repository[F]):
    """`tx.programs.executions`. Ids count up, are never given twice, and name frames: `bind(…, execution_id=id)`."""

    _guarded = True

    @writes
    def begin(
        self,
        run_id: str,
        *,
        statement_index: int,
        statement_text: str,
        parent_id: int | None = None,
        metadata: Json = None,
        status: str = "executing",
    ) -> ProgramExecution:
        """Begin a statement, executing or `pending`, in the frame of its parent.

        Raises NotFound for the run or the parent, RecursionLimitExceeded past `Settings.max_depth` (the outermost is 1 deep).
        """
        work = self._work
        word = check_choice("status", status, ExecutionStatus)
        if word in SETTLED:
            raise InvalidValue("status", "a statement begins as pending or executing.")
        facts = work.json_object("metadata", metadata)
        index, text = check_count("statement_index", statement_index), work.body("statement_text", statement_text)
        stored = stored_scope(work, "run_id", run_id)
        above = None if parent_id is None else check_count("id", parent_id)
        with work.batch() as batch:
            run = batch.row(run_rows.RUN_EXISTS, row_id=work.label("run_id", run_id))
            depth = None if above is None else binding_rows.ask_depth(work, batch, run_id, above)
        run_rows.check_found(run, run_id)
        self._check_depth(above, depth)
        now = run_rows.this_second(work)
        with work.batch(last=True) as batch:
            begun = batch.returned(
                _ADD,
                run_id=stored,
                statement_index=index,
                statement_text=text,
                to=word,
                started_at=now if word is ExecutionStatus.EXECUTING else None,
                updated_at=now,
                parent_id=parent_id,
                facts=facts,
            )
        assert begun.result is not None
        return run_rows.EXECUTION.public(work, begun.result)

    @reads
    def get(self, run_id: str, id: int) -> ProgramExecution:
        """The execution. Raises NotFound."""
        return run_rows.get_execution(self._work, run_id, id)

    @reads
    def list(self, run_id: str, *, status: str | None = None) -> List[ProgramExecution]:
        """Executions of the run in the order they began: all, or those with one status."""
        work = self._work
        stored = stored_scope(work, "run_id", run_id)
        if status is None:
            rows = work.rows(ALL_EXECUTIONS, run=stored)
        else:
            rows = work.rows(_WITH_STATUS, run=stored, word=check_choice("status", status, ExecutionStatus))
        return [run_rows.EXECUTION.public(work, row) for row in rows]

    @writes
    def start(self, run_id: str, id: int) -> ProgramExecution:
        """pending -> executing. Raises TransitionError otherwise."""
        execution = run_rows.get_execution(self._work, run_id, id, lock=True)
        if execution.status == ExecutionStatus.FAILED:  # only a retry executes again
            raise TransitionError(f"execution {id}", execution.status, ExecutionStatus.EXECUTING)
        return run_rows.become(self._work, execution, ExecutionStatus.EXECUTING)

    @writes
    def update(self, run_id: str, id: int, metadata_patch: Mapping[str, Json]) -> ProgramExecution:
        """Merge a patch (RFC 7396) into the metadata: objects merge, null removes."""
        work = self._work
        patch = work.json_object("metadata_patch", metadata_patch)
        execution = run_rows.get_execution(work, run_id, id, lock=True)
        return run_rows.set_metadata(work, execution, merge_patch(run_rows.facts_of(execution), patch))

    @writes
    def complete(self, run_id: str, id: int) -> ProgramExecution:
        """executing -> completed. Raises TransitionError otherwise."""
        return run_rows.become(self._work, run_rows.get_execution(self._work, run_id, id, lock=True), ExecutionStatus.COMPLETED)

    @writes
    def fail(self, run_id: str, id: int, error_message: str) -> ProgramExecution:
        """pending or executing -> failed. Raises TransitionError otherwise."""
        message = self._work.body("error_message", error_message)
        execution = run_rows.get_execution(self._work, run_id, id, lock=True)
        return run_rows.become(self._work, execution, ExecutionStatus.FAILED, error=message)

    @writes
    def skip(self, run_id: str, id: int) -> ProgramExecution:
        """pending or executing -> skipped, as the losing branches of a parallel block are. Raises TransitionError otherwise."""
        return run_rows.become(self._work, run_rows.get_execution(self._work, run_id, id, lock=True), ExecutionStatus.SKIPPED)

    @reads
    def children(self, run_id: str, id: int) -> List[ProgramExecution]:
        """The statements directly below one, in the order they began. Raises NotFound."""
        work, number = self._work, check_count("id", id)
        stored = stored_scope(work, "run_id", run_id)
        with work.batch() as batch:
            above = batch.row(run_rows.GET_EXECUTION, row_run=stored, row_id=number)
            below = batch.rows(_CHILDREN, run=stored, parent=number)
        above.must_exist("execution", str(id))
        return [run_rows.EXECUTION.public(work, row) for row in below.result]

    @reads
    def depth(self, run_id: str, id: int) -> int:
        """How deep the statement is nested; an outermost one has depth 1. Raises NotFound."""
        return must_exist(binding_rows.depth(self._work, run_id, check_count("id", id)), "execution", str(id)) + 1

    @reads
    def pending_branches(self, run_id: str, parallel_id: str) -> int:
        """How many branches of a parallel block are neither completed, failed nor skipped; not counting the block itself."""
        return len(self._branches(run_id, parallel_id, _UNSETTLED))

    @reads
    def branches(self, run_id: str, parallel_id: str) -> dict[str, str]:
        """Branch -> latest status, for `join`. Only branches that have begun: `resume_point` has the declared ones too."""
        return dict(self._branches(run_id, parallel_id, _BRANCHES))

    @writes
    def set_iteration(self, run_id: str, id: int, iteration: int) -> ProgramExecution:
        """Note the current iteration of a loop. Raises InvalidValue past the loop's `max_iterations`: stop before that."""
        number = check_count("iteration", iteration)
        execution = run_rows.get_execution(self._work, run_id, id, lock=True)
        facts = run_rows.facts_of(execution)
        maximum = facts.get("max_iterations")
        if isinstance(maximum, int) and number > maximum:
            raise InvalidValue("iteration", f"the loop has at most {maximum}.")
        return run_rows.set_metadata(self._work, execution, {**facts, "current_iteration": number})

    @writes
    def record_retry(self, run_id: str, id: int, *, attempt: int, max_retries: int) -> ProgramExecution:
        """Note that retry number `attempt` begins, the first one being 1; a failed execution executes again.

        Its error message stays until another failure. Raises InvalidValue past `max_retries`, which do not count the first try.
        """
        work = self._work
        number, maximum = check_count("attempt", attempt), check_count("max_retries", max_retries)
        if not 1 <= number <= maximum:
            raise InvalidValue("attempt", f"retries count from 1 to max_retries, which is {maximum}.")
        execution = run_rows.get_execution(work, run_id, id, lock=True)
        facts = {**run_rows.facts_of(execution), "retry_attempt": number, "max_retries": maximum}
        if execution.status == ExecutionStatus.FAILED:
            return run_rows.become(work, execution, ExecutionStatus.EXECUTING, facts=facts)
        return run_rows.set_metadata(work, execution, facts)

    def _check_depth(self, parent_id: int | None, depth: Pending[Row | None] | None) -> None:
        limit = self._work.runtime.settings.max_depth
        frames_above = must_exist(-1 if depth is None else binding_rows.depth_in(depth.result), "execution", str(parent_id))
        if frames_above + 1 >= limit:
            raise RecursionLimitExceeded(frames_above + 2, limit)

    def _branches(self, run_id: str, parallel_id: str, statement: Statement) -> List[tuple[str, str]]:
        wanted = self._work.label("parallel_id", parallel_id)
        rows = self._work.rows(statement, run=stored_scope(self._work, "run_id", run_id))
        return [
            (str(facts["branch"]), str(status or ""))
            for status, facts in rows
            if isinstance(facts, dict) and facts.get("parallel_id") == wanted and facts.get("branch") is not None
        ]


def resume_point(work: UnitOfWork, run: ProgramRun) -> ResumePoint:
    """See ProgramRuns.resume_point."""
    stored = stored_scope(work, "run_id", run.id)
    with work.batch() as batch:
        found = batch.rows(ALL_EXECUTIONS, run=stored)
        bindings = batch.rows(ALL_BINDINGS, run=stored)
        agents = batch.rows(ALL_AGENTS, run=stored)
    executions = [run_rows.EXECUTION.public(work, row) for row in found.result]
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
    facts = {one.id: run_rows.facts_of(one) for one in executions}
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
            count=_integer_or_none(found.get("count")),
            on_fail=_text(found.get("on_fail")),
            branches=branches,
        )


def loops(executions: list[ProgramExecution]) -> Iterable[Loop]:
    """The unfinished loops."""
    for one in executions:
        found = run_rows.facts_of(one)
        if "loop_id" in found and one.status not in SETTLED:
            yield Loop(
                loop_id=str(found["loop_id"]),
                execution_id=one.id,
                current_iteration=_integer_or_none(found.get("current_iteration")),
                max_iterations=_integer_or_none(found.get("max_iterations")),
                condition=_text(found.get("condition")),
            )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _integer_or_none(value: Any) -> int | None:
    return value if type(value) is int else None
