"""`store.step`: a block of code around one side effect of a run, which is done once.

with store.step(run, "comment") as step: if step.due: step.result = post_comment()
"""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_body
from persist.db.values.json import encode
from persist.errors import EffectUnknown, InvalidValue, PayloadTooLarge
from persist.workflows.schemas import Effect, EffectState, Lease, Phase, WorkflowRun
from persist.workflows.storage.executions import Totals, check_total

if TYPE_CHECKING:
    from persist.db.transactions.repository import Async
    from persist.db.values.json import Json
    from persist.workflows.verbs.effects import Effects
    from persist.workflows.verbs.phases import Phases


_LONGEST = 4000
"""Characters of an exception's message that are stored."""


class _Step:
    """What both faces share.

    Entering the block raises EffectUnknown for an effect that began before and did not end, unless `retry` is given. It raises
    Conflict, LeaseLost and NotFound as `effects.begin` does.
    """

    def __init__(self, runtime: Runtime, run: "WorkflowRun | Lease | str", key: str, input: "Json", retry: bool) -> None:
        self._runtime = runtime
        self._lease = run if isinstance(run, Lease) else None
        self.run_id: str = run.run_id if isinstance(run, Lease) else run.id if isinstance(run, WorkflowRun) else run
        self.key, self._input = key, input
        self._retry: Literal["failed", "unknown"] = "unknown" if retry else "failed"
        self.due = False
        """Whether the effect is to be done now; otherwise `result` is what it returned before."""
        self._result: Any = None
        self._refused: Exception | None = None
        self._attempt = 0

    @property
    def result(self) -> Any:
        """What the effect returns, any JSON value: set it inside the block. It is stored when the block ends.

        Setting what is no JSON raises InvalidValue, and too much PayloadTooLarge. If the block ends with an exception then, the
        effect is unknown and not failed: it may have happened.
        """
        return self._result

    @result.setter
    def result(self, value: Any) -> None:
        try:
            encode(value, "result", self._runtime.limits)
        except (InvalidValue, PayloadTooLarge) as refused:
            self._refused = refused
            raise
        self._result, self._refused = value, None

    def _begun(self, effect: Effect) -> None:
        if effect.state not in (EffectState.BEGUN, EffectState.DONE):  # another program may have left any word
            raise EffectUnknown(effect.run_id, effect.key, effect.attempts)
        self.due = effect.state == EffectState.BEGUN
        self._attempt = effect.attempts
        self._result = effect.result


class Step(_Step):
    """See `Store.step`. An exception of the block is stored as the effect's failure.

    A process that dies inside of the block, an exception that is no Exception, and a refused result leave the effect unknown.
    """

    def __init__(
        self, runtime: Runtime, effects: "Effects", run: "WorkflowRun | Lease | str", key: str, input: "Json", retry: bool
    ) -> None:
        super().__init__(runtime, run, key, input, retry)
        self._effects = effects

    def __enter__(self) -> "Step":
        self._begun(self._effects.begin(self.run_id, self.key, self._input, retry=self._retry, lease=self._lease))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.due:
            return
        if error is None:
            self._effects.complete(self.run_id, self.key, self.result)
        elif isinstance(error, Exception) and self._refused is None:
            self._effects.fail(self.run_id, self.key, error_text(error), attempt=self._attempt)


class AsyncStep(_Step):
    """See Step."""

    def __init__(
        self, runtime: Runtime, effects: "Effects[Async]", run: "WorkflowRun | Lease | str", key: str, input: "Json", retry: bool
    ) -> None:
        super().__init__(runtime, run, key, input, retry)
        self._effects = effects

    async def __aenter__(self) -> "AsyncStep":
        self._begun(await self._effects.begin(self.run_id, self.key, self._input, retry=self._retry, lease=self._lease))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.due:
            return
        if error is None:
            await self._effects.complete(self.run_id, self.key, self.result)
        elif isinstance(error, Exception) and self._refused is None:
            await self._effects.fail(self.run_id, self.key, error_text(error), attempt=self._attempt)


def error_text(error: BaseException) -> str:
    """The type and the message of an exception, cut where it is no message any more."""
    try:
        message = str(error)
    except Exception:  # of the caller's class
        message = "its message cannot be read"
    return f"{type(error).__name__}: {message[:_LONGEST]}"


# `store.phase`: a block of code that is one phase of a run, done once however often the run is claimed.
#
# with store.phase(lease, "plan") as phase: if phase.due: phase.output = make_a_plan()

_REFUSALS = (InvalidValue, PayloadTooLarge)


class _Block:
    """What both faces share. Entering and leaving the block raise as `phases.begin` and `phases.finish` do."""

    def __init__(self, runtime: Runtime, run: "WorkflowRun | Lease | str", name: str, trigger_type: str) -> None:
        self._runtime = runtime
        self._lease = run if isinstance(run, Lease) else None
        self.run_id: str = run.run_id if isinstance(run, Lease) else run.id if isinstance(run, WorkflowRun) else run
        self.name, self._trigger_type = name, trigger_type
        self.due = False
        """Whether the phase is to be done now; otherwise `output` is what it left when it was done."""
        self._output: str | None = None
        self.entry: dict[str, Json] = {}
        """The entry of the run's history for the phase, beside name, instant and execution."""
        self._totals: Totals = {}
        self._phase: Phase | None = None

    @property
    def output(self) -> str | None:
        """The text for later phases, set inside the block and stored at its end. Raises InvalidValue, or PayloadTooLarge."""
        return self._output

    @output.setter
    def output(self, text: str | None) -> None:
        self._output = None if text is None else check_body("output", text, self._runtime.settings.max_text_bytes)

    @property
    def execution_id(self) -> str | None:
        """The execution of the phase, if it is due."""
        return None if self._phase is None else self._phase.execution_id

    def use(self, **totals: Unpack[Totals]) -> None:
        """Say what the phase used: `input_tokens`, `output_tokens`, `cost_usd` and what else `phases.finish` takes.

        Raises InvalidValue for another name, and for a value of another kind; what was said before stays.
        """
        for name, value in totals.items():
            if value is not None:
                check_total(self._runtime, name, value)
        self._totals.update(totals)

    def _begun(self, phase: Phase) -> None:
        self._phase, self.due, self._output = phase, phase.due, phase.output

    @property
    def _end(self) -> dict[str, Any]:
        return {"output": self.output, "entry": self.entry, "lease": self._lease, **self._totals}


class PhaseBlock(_Block):
    """See `Store.phase`. An exception of the block is the failure of its execution, and is raised on.

    A refused result of the block, such as an entry that is no JSON, fails the phase, too: the failed execution keeps the output
    then.

    A process that dies inside of the block, and an exception that is no Exception, leave the execution unfinished: the next
    worker that claims the run fails it as stale, and the phase is due again.
    """

    def __init__(
        self, runtime: Runtime, phases: "Phases", run: "WorkflowRun | Lease | str", name: str, trigger_type: str
    ) -> None:
        super().__init__(runtime, run, name, trigger_type)
        self._phases = phases

    def __enter__(self) -> "PhaseBlock":
        self._begun(self._phases.begin(self.run_id, self.name, trigger_type=self._trigger_type, lease=self._lease))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._phase is None or not self.due:
            return
        if error is None:
            try:
                self._phases.finish(self._phase, **self._end)
            except _REFUSALS as refused:
                self._phases.fail(self._phase, error_text(refused), output=self._output, lease=self._lease)
                raise
        elif isinstance(error, Exception):
            self._phases.fail(self._phase, error_text(error), lease=self._lease)


class AsyncPhaseBlock(_Block):
    """See PhaseBlock."""

    def __init__(
        self, runtime: Runtime, phases: "Phases[Async]", run: "WorkflowRun | Lease | str", name: str, trigger_type: str
    ) -> None:
        super().__init__(runtime, run, name, trigger_type)
        self._phases = phases

    async def __aenter__(self) -> "AsyncPhaseBlock":
        self._begun(await self._phases.begin(self.run_id, self.name, trigger_type=self._trigger_type, lease=self._lease))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._phase is None or not self.due:
            return
        if error is None:
            try:
                await self._phases.finish(self._phase, **self._end)
            except _REFUSALS as refused:
                await self._phases.fail(self._phase, error_text(refused), output=self._output, lease=self._lease)
                raise
        elif isinstance(error, Exception):
            await self._phases.fail(self._phase, error_text(error), lease=self._lease)
