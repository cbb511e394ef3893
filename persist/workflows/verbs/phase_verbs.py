"""Phases: what a worker writes when it begins one, and when it is done or has failed, each in one transaction."""

from collections.abc import Mapping
from typing import Any

from persist.db.transactions.repository import F, Repository, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.json import Json, plain_object
from persist.errors import Conflict, InvalidValue, NotFound
from persist.workflows.schemas import Lease, Phase, WorkflowRun
from persist.workflows.storage.execution_ends import FINISH, SET_OUTPUT, count_usage, end_values
from persist.workflows.storage.execution_inserts import insert_execution
from persist.workflows.storage.execution_rows import hold_run_of
from persist.workflows.storage.payloads import small_label
from persist.workflows.storage.run_rows import check_hold
from persist.workflows.verbs import phases, progress


class Phases(Repository[F]):
    """`tx.workflows.phases`. A phase of a run is an execution with the skill `workflow:phase`; it succeeds once in a run."""

    @writes
    def begin(self, run_id: str, name: str, *, trigger_type: str = "worker", lease: Lease | None = None) -> Phase:
        """Begin a phase, unless it is done: then what it left. Raises Conflict while an execution of it runs.

        Raises NotFound for an unknown run, and LeaseLost as every write to a run does.
        """
        work = self._work
        phase, kind = small_label(work, "name", name), work.label("trigger_type", trigger_type)
        run, (running, done), output = phases.locked_phase(work, run_id, phase)
        check_hold(run, lease, work.now())
        if running:
            raise Conflict(f"The phase {phase!r} of the run {run.id!r} is running already.", constraint="executions")
        if done:
            return Phase(run_id=run.id, name=phase, execution_id=None, output=output)
        fields = {
            "trigger_type": kind,
            "trigger_id": run.trigger_id,
            "skill": work.label("name", f"{run.workflow_name}:{phase}"),
            "repo": run.repo,
            "issue_number": run.issue_number,
            "workflow_run_id": run.id,
            "started_at": work.now(),
        }
        execution = insert_execution(work, work.runtime.ids.mint("exe"), fields)
        return Phase(run_id=run.id, name=phase, execution_id=execution.id, output=None)

    @writes
    def finish(
        self,
        phase: Phase,
        *,
        output: str | None = None,
        entry: Mapping[str, Json] | None = None,
        turns: int | None = None,
        duration_ms: int | None = None,
        cost_usd: float | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cache_creation_input_tokens: int | None = None,
        cache_read_input_tokens: int | None = None,
        api_duration_ms: int | None = None,
        session_id: str | None = None,
        stop_reason: str | None = None,
        extension_status: Json = None,
        lease: Lease | None = None,
        model: str | None = None,
        provider: str | None = None,
    ) -> WorkflowRun:
        """Store that the phase is done: its text, what it used, and an entry in the run's history. It becomes the current phase.

        `model`, `provider`: as for `executions.finish`. Raises NotFound if its execution or its run is gone, InvalidValue for a
        phase that was done before.
        """
        work = self._work
        execution_id = _begun(phase)
        text = None if output is None else work.body("output", output)
        values = end_values(
            work,
            success=True,
            error=None,
            turns=turns,
            duration_ms=duration_ms,
            cost_usd=cost_usd,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_creation_input_tokens=cache_creation_input_tokens,
            cache_read_input_tokens=cache_read_input_tokens,
            api_duration_ms=api_duration_ms,
            session_id=session_id,
            stop_reason=stop_reason,
            extension_status=extension_status,
        )
        item: Json = {**plain_object(entry, "entry"), "execution": execution_id}
        run = progress.append_phase(work, phase.run_id, phase.name, item, lease)
        if model is not None:
            count_usage(work, execution_id, model, values, provider=provider)
        _end(work, execution_id, values, text)
        return run

    @writes
    def fail(self, phase: Phase, error: str, *, output: str | None = None, lease: Lease | None = None) -> None:
        """Store that the phase failed, and what text it had made: it is due when it is begun again. Raises as `finish` does."""
        work = self._work
        execution_id = _begun(phase)
        text = None if output is None else work.body("output", output)
        values = end_values(work, success=False, error=work.body("error", error))
        _check_found(hold_run_of(work, phase.run_id, lease), execution_id)
        _end(work, execution_id, values, text)


def _end(work: UnitOfWork, execution_id: str, values: dict[str, Any], text: str | None) -> None:
    with work.batch(last=True) as batch:
        ended = batch.run(FINISH, row_id=execution_id, **values)
        if text is not None:
            batch.run(SET_OUTPUT, row_id=execution_id, value=text)
    _check_found(ended.result, execution_id)


def _begun(phase: object) -> str:
    if not isinstance(phase, Phase):
        raise InvalidValue("phase", f"expected a Phase, which `phases.begin` returns, got {type(phase).__name__}.")
    if phase.execution_id is None:
        raise InvalidValue("phase", f"the phase {phase.name!r} was done before it was begun; there is nothing to end.")
    return phase.execution_id


def _check_found(found: int, execution_id: str) -> None:
    if not found:
        raise NotFound("execution", execution_id)
