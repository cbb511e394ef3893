"""`store.step` and `store.phase`: a block of code around one side effect, or one phase, of a run, which is done once.

The code looks at `due` first: a block whose effect was done before has its result already.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

from persist.db.transactions.notifier import Outage
from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_body
from persist.db.values.json import encode
from persist.errors import EffectUnknown, InvalidValue, PayloadTooLarge, PersistError, Unavailable
from persist.workflows.schemas import Effect, EffectState, Lease, Phase, WorkflowRun
from persist.workflows.storage.executions import ExecutionTotals, check_totals

if TYPE_CHECKING:
    from persist.db.transactions.repository import Async
    from persist.db.values.json import Json
    from persist.workflows.repository import Workflows
    from persist.workflows.schemas import Execution
    from persist.workflows.verbs.effects import Effects


_LONGEST = 4000
"""Characters of an exception's message that are stored."""

R = TypeVar("R")


class _Writes:
    """The writes of one block: where a worker holds the run, an outage of the database is waited for.

    Without a worker nobody renews the lease, and the first error is raised. A misspelt attribute is an AttributeError.
    """

    __slots__ = ("_is_held", "_is_unknown", "_outage")

    def __init__(self, runtime: Runtime) -> None:
        self._is_held: Callable[[], bool] | None = None
        """Whether the worker holds the run, and waits; None without a worker."""
        self._outage = Outage(runtime.errors, "what a handler did cannot be stored", permitted=True)
        self._is_unknown = False
        """Whether a commit of this write was not answered, so that it may have been done."""

    def outlasting(self, is_held: Callable[[], bool]) -> Self:
        """Wait for the end of an outage as long as that is so. Returns the block."""
        self._is_held = is_held
        return self

    def _run(self, call: Callable[[], R]) -> R:
        """Call until the database answers."""
        self._is_unknown = False
        while True:
            try:
                return call()
            except PersistError as error:
                pause = self._pause(error)
            time.sleep(pause)

    async def _run_async(self, call: Callable[[], Awaitable[R]]) -> R:
        """See `_run`."""
        self._is_unknown = False
        while True:
            try:
                return await call()
            except PersistError as error:
                pause = self._pause(error)
            await asyncio.sleep(pause)

    def _pause(self, error: PersistError) -> float:
        """Seconds until the next try. Raises the error where there is none."""
        if self._is_held is None or not self._outage.met(error) or not self._is_held():
            raise error
        self._is_unknown = self._is_unknown or (isinstance(error, Unavailable) and error.outcome == "unknown")
        return self._outage.pause()


class _Step(_Writes):
    """What both faces share.

    Entering the block raises EffectUnknown for an effect that began before and did not end, unless `retry` is given. It raises
    Conflict, LeaseLost and NotFound as `effects.begin` does.
    """

    __slots__ = ("_attempt", "_input", "_lease", "_refused", "_result", "_retry", "_runtime", "due", "key", "run_id")

    def __init__(self, runtime: Runtime, run: "WorkflowRun | Lease | str", key: str, input: "Json", retry: bool) -> None:
        super().__init__(runtime)
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

    def _begin(self, effects: Any) -> Any:
        """What begins the effect. One that is begun already where a commit was not answered is the block's own."""
        retry = "unknown" if self._is_unknown else self._retry
        return effects.begin(self.run_id, self.key, self._input, retry=retry, lease=self._lease)

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

    __slots__ = ("_effects",)

    def __init__(
        self, runtime: Runtime, effects: "Effects", run: "WorkflowRun | Lease | str", key: str, input: "Json", retry: bool
    ) -> None:
        super().__init__(runtime, run, key, input, retry)
        self._effects = effects

    def __enter__(self) -> "Step":
        self._begun(self._run(partial(self._begin, self._effects)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.due:
            return
        if error is None:
            self._run(partial(self._effects.complete, self.run_id, self.key, self.result))
        elif isinstance(error, Exception) and self._refused is None:
            self._run(partial(self._effects.fail, self.run_id, self.key, error_text(error), attempt=self._attempt))


class AsyncStep(_Step):
    """See Step."""

    __slots__ = ("_effects",)

    def __init__(
        self, runtime: Runtime, effects: "Effects[Async]", run: "WorkflowRun | Lease | str", key: str, input: "Json", retry: bool
    ) -> None:
        super().__init__(runtime, run, key, input, retry)
        self._effects = effects

    async def __aenter__(self) -> "AsyncStep":
        self._begun(await self._run_async(partial(self._begin, self._effects)))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.due:
            return
        if error is None:
            await self._run_async(partial(self._effects.complete, self.run_id, self.key, self.result))
        elif isinstance(error, Exception) and self._refused is None:
            fail = partial(self._effects.fail, self.run_id, self.key, error_text(error), attempt=self._attempt)
            await self._run_async(fail)


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


class _Block(_Writes):
    """What both faces share. Entering and leaving the block raise as `phases.begin` and `phases.finish` do."""

    __slots__ = ("_lease", "_output", "_phase", "_runtime", "_totals", "_trigger_type", "due", "entry", "name", "run_id")

    def __init__(self, runtime: Runtime, run: "WorkflowRun | Lease | str", name: str, trigger_type: str) -> None:
        super().__init__(runtime)
        self._runtime = runtime
        self._lease = run if isinstance(run, Lease) else None
        self.run_id: str = run.run_id if isinstance(run, Lease) else run.id if isinstance(run, WorkflowRun) else run
        self.name, self._trigger_type = name, trigger_type
        self.due = False
        """Whether the phase is to be done now; otherwise `output` is what it left when it was done."""
        self._output: str | None = None
        self.entry: dict[str, Json] = {}
        """The entry of the run's history for the phase, beside name, instant and execution."""
        self._totals: ExecutionTotals = {}
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

    def use(self, **totals: Unpack[ExecutionTotals]) -> None:
        """Say what the phase used: `input_tokens`, `output_tokens`, `cost_usd` and what else `phases.finish` takes.

        Raises InvalidValue for another name, and for a value of another kind; what was said before stays.
        """
        check_totals(self._runtime, totals)
        self._totals.update(totals)

    def _own(self, found: "list[Execution]") -> Phase | None:
        """The phase that a begin of this block began whose commit was not answered: who holds the lease alone may begin one."""
        running = [one for one in found if one.finished_at is None and one.skill.endswith(f":{self.name}")]
        newest = max(running, key=lambda one: (one.started_at, one.id), default=None)
        return None if newest is None else Phase(run_id=self.run_id, name=self.name, execution_id=newest.id, output=None)

    def _begun(self, phase: Phase) -> None:
        self._phase, self.due, self._output = phase, phase.due, phase.output

    @property
    def _left(self) -> dict[str, Any]:
        return {"output": self.output, "entry": self.entry, "lease": self._lease, **self._totals}


class PhaseBlock(_Block):
    """See `Store.phase`. An exception of the block is the failure of its execution, and is raised on.

    A refused result of the block, such as an entry that is no JSON, fails the phase, too: the failed execution keeps the output
    then.

    A process that dies inside of the block, and an exception that is no Exception, leave the execution unfinished: the next
    worker that claims the run fails it as stale, and the phase is due again.
    """

    __slots__ = ("_executions", "_phases")

    def __init__(
        self, runtime: Runtime, workflows: "Workflows", run: "WorkflowRun | Lease | str", name: str, trigger_type: str
    ) -> None:
        super().__init__(runtime, run, name, trigger_type)
        self._phases, self._executions = workflows.phases, workflows.executions

    def __enter__(self) -> "PhaseBlock":
        self._begun(self._run(self._begin))
        return self

    def _begin(self) -> Phase:
        own = self._own(self._executions.for_run(self.run_id)) if self._is_unknown else None
        return own or self._phases.begin(self.run_id, self.name, trigger_type=self._trigger_type, lease=self._lease)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        phase = self._phase
        if phase is None or not self.due:
            return
        if error is None:
            try:
                self._end(phase, partial(self._phases.finish, phase, **self._left))
            except _REFUSALS as refused:
                self._end(phase, partial(self._phases.fail, phase, error_text(refused), output=self._output, lease=self._lease))
                raise
        elif isinstance(error, Exception):
            self._end(phase, partial(self._phases.fail, phase, error_text(error), lease=self._lease))

    def _end(self, phase: Phase, store: Callable[[], object]) -> None:
        def end() -> None:
            if not (self._is_unknown and _has_ended(self._executions.get(phase.execution_id or ""))):
                store()

        self._run(end)


def _has_ended(execution: "Execution") -> bool:
    return execution.finished_at is not None


class AsyncPhaseBlock(_Block):
    """See PhaseBlock."""

    __slots__ = ("_executions", "_phases")

    def __init__(
        self, runtime: Runtime, workflows: "Workflows[Async]", run: "WorkflowRun | Lease | str", name: str, trigger_type: str
    ) -> None:
        super().__init__(runtime, run, name, trigger_type)
        self._phases, self._executions = workflows.phases, workflows.executions

    async def __aenter__(self) -> "AsyncPhaseBlock":
        self._begun(await self._run_async(self._begin))
        return self

    async def _begin(self) -> Phase:
        own = self._own(await self._executions.for_run(self.run_id)) if self._is_unknown else None
        return own or await self._phases.begin(self.run_id, self.name, trigger_type=self._trigger_type, lease=self._lease)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        phase = self._phase
        if phase is None or not self.due:
            return
        if error is None:
            try:
                await self._end(phase, partial(self._phases.finish, phase, **self._left))
            except _REFUSALS as refused:
                fail = partial(self._phases.fail, phase, error_text(refused), output=self._output, lease=self._lease)
                await self._end(phase, fail)
                raise
        elif isinstance(error, Exception):
            await self._end(phase, partial(self._phases.fail, phase, error_text(error), lease=self._lease))

    async def _end(self, phase: Phase, store: Callable[[], Awaitable[object]]) -> None:
        async def end() -> None:
            if not (self._is_unknown and _has_ended(await self._executions.get(phase.execution_id or ""))):
                await store()

        await self._run_async(end)
