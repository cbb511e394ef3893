"""`store.step` and `store.phase`: a block of code around one side effect, or one phase, of a run, which is done once.

The code looks at `due` first: a block whose effect was done before has its result already.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from persist.db.transactions.notifier import Outage
from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_body, spells_keywords
from persist.db.values.json import encode
from persist.errors import EffectUnknown, InvalidValue, PayloadTooLarge, PersistError, Unavailable
from persist.workflows.schemas import Effect, EffectState, Lease, Phase, WorkflowRun
from persist.workflows.storage.execution_rows import ExecutionTotals, check_totals

if TYPE_CHECKING:
    from persist.db.values.json import Json
    from persist.workflows.repository import Workflows
    from persist.workflows.verbs.effects import Effects


_LONGEST = 4000
"""Characters of an exception's message that are stored."""
Call = Callable[[], Any]
Body = Generator[Call | float, Any, Any]
"""What a block does, for both faces: it yields the calls of verbs, which are awaited on AsyncStore, and seconds to wait."""


def _done(body: Body) -> Any:
    """Do what the body of a block yields, and return what it returns."""
    try:
        asked = next(body)
        while True:
            try:
                answer = (partial(time.sleep, asked) if isinstance(asked, float) else asked)()
            except BaseException as error:
                asked = body.throw(error)
            else:
                asked = body.send(answer)
    except StopIteration as end:
        return end.value


async def _done_async(body: Body) -> Any:
    """See `_done`."""
    try:
        asked = next(body)
        while True:
            try:
                answer = await (partial(asyncio.sleep, asked) if isinstance(asked, float) else asked)()
            except BaseException as error:
                asked = body.throw(error)
            else:
                asked = body.send(answer)
    except StopIteration as end:
        return end.value


class _Writes(ABC):
    """The writes of one block: where a worker holds the run, an outage of the database is waited for.

    Without a worker nobody renews the lease, and the first error is raised. A misspelt attribute is an AttributeError.
    """

    __slots__ = ("_is_held", "_outage")

    def __init__(self, runtime: Runtime) -> None:
        self._is_held: Callable[[], bool] | None = None
        """Whether the worker holds the run, and waits; None without a worker."""
        self._outage = Outage(runtime.errors, "what a handler did cannot be stored", permitted=True)

    def outlasting(self, is_held: Callable[[], bool]) -> Self:
        """Wait for the end of an outage as long as that is so. Returns the block."""
        self._is_held = is_held
        return self

    @abstractmethod
    def _enter(self) -> Body:
        """What the beginning of the block does."""

    @abstractmethod
    def _leave(self, error: BaseException | None) -> Body:
        """What its end does."""

    def _stored(self, call: Call, look: Call | None = None, own: Callable[[Any], Any] = lambda found: None) -> Body:
        """What the call returns once the database answers, or the block's own row where a commit was not answered.

        `look`: reads what `own` finds the row in, or nothing.
        """
        is_unknown = False
        while True:
            try:
                if is_unknown and look is not None and (found := own((yield look))) is not None:
                    return found
                return (yield call)
            except PersistError as error:
                if self._is_held is None or not self._outage.met(error) or not self._is_held():
                    raise
                is_unknown = is_unknown or (isinstance(error, Unavailable) and error.outcome == "unknown")
            yield self._outage.pause()


class _Sync(_Writes):
    """A block of a with statement."""

    __slots__ = ()

    def __enter__(self) -> Self:
        _done(self._enter())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _done(self._leave(error))


class _Async(_Writes):
    """A block of an `async with` statement."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        await _done_async(self._enter())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await _done_async(self._leave(error))


class _Step(_Writes):
    """What both faces share.

    Entering the block raises EffectUnknown for an effect that began before and did not end, unless `retry` is given. It raises
    Conflict, LeaseLost and NotFound as `effects.begin` does.
    """

    __slots__ = ("_attempt", "_effects", "_input", "_lease", "_refused", "_result", "_retry", "_runtime", "due", "key", "run_id")

    def __init__(
        self, runtime: Runtime, effects: "Effects[Any]", run: "WorkflowRun | Lease | str", key: str, input: "Json", retry: bool
    ) -> None:
        super().__init__(runtime)
        self._runtime, self._effects = runtime, effects
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

    def _enter(self) -> Body:
        begin = partial(self._effects.begin, self.run_id, self.key, self._input, lease=self._lease)
        # an effect of the run's holder that is begun where the commit was not answered is the block's own
        own = partial(begin, retry="unknown")
        effect: Effect = yield from self._stored(partial(begin, retry=self._retry), own, lambda found: found)
        if effect.state not in (EffectState.BEGUN, EffectState.DONE):  # another program may have left any word
            raise EffectUnknown(effect.run_id, effect.key, effect.attempts)
        self.due = effect.state == EffectState.BEGUN
        self._attempt = effect.attempts
        self._result = effect.result

    def _leave(self, error: BaseException | None) -> Body:
        if not self.due:
            return
        if error is None:
            yield from self._stored(partial(self._effects.complete, self.run_id, self.key, self.result))
        elif isinstance(error, Exception) and self._refused is None:
            fail = partial(self._effects.fail, self.run_id, self.key, error_text(error), attempt=self._attempt)
            yield from self._stored(fail)


class Step(_Sync, _Step):
    """See `Store.step`. An exception of the block is stored as the effect's failure.

    A process that dies inside of the block, an exception that is no Exception, and a refused result leave the effect unknown.
    """

    __slots__ = ()


class AsyncStep(_Async, _Step):
    """See Step."""

    __slots__ = ()


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


class _Block(_Writes):
    """What both faces share. Entering and leaving the block raise as `phases.begin` and `phases.finish` do."""

    __slots__ = (
        "_executions",
        "_lease",
        "_output",
        "_phase",
        "_phases",
        "_runtime",
        "_totals",
        "_trigger_type",
        "due",
        "entry",
        "name",
        "run_id",
    )

    def __init__(
        self, runtime: Runtime, workflows: "Workflows[Any]", run: "WorkflowRun | Lease | str", name: str, trigger_type: str
    ) -> None:
        super().__init__(runtime)
        self._runtime, self._phases, self._executions = runtime, workflows.phases, workflows.executions
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

    @spells_keywords
    def use(self, **totals: Unpack[ExecutionTotals]) -> None:
        """Say what the phase used: `input_tokens`, `output_tokens`, `cost_usd` and what else `phases.finish` takes.

        Raises InvalidValue for another name, and for a value of another kind; what was said before stays.
        """
        check_totals(self._runtime, totals)
        self._totals.update(totals)

    def _enter(self) -> Body:
        begin = partial(self._phases.begin, self.run_id, self.name, trigger_type=self._trigger_type, lease=self._lease)
        phase: Phase = yield from self._stored(begin, partial(self._executions.for_run, self.run_id), self._own)
        self._phase, self.due, self._output = phase, phase.due, phase.output

    def _own(self, found: list[Any]) -> Phase | None:
        """The phase that was begun though its commit was not answered: who holds the lease alone may begin one."""
        running = [one for one in found if one.finished_at is None and one.skill.endswith(f":{self.name}")]
        newest = max(running, key=lambda one: (one.started_at, one.id), default=None)
        return None if newest is None else Phase(run_id=self.run_id, name=self.name, execution_id=newest.id, output=None)

    def _leave(self, error: BaseException | None) -> Body:
        phase = self._phase
        if phase is None or not self.due:
            return
        if error is None:
            left = {"output": self.output, "entry": self.entry, "lease": self._lease, **self._totals}
            try:
                yield from self._end(phase, partial(self._phases.finish, phase, **left))
            except (InvalidValue, PayloadTooLarge) as refused:
                kept = {"output": self._output, "lease": self._lease, **self._totals}
                fail = partial(self._phases.fail, phase, error_text(refused), **kept)
                yield from self._end(phase, fail)
                raise
        elif isinstance(error, Exception):
            yield from self._end(phase, partial(self._phases.fail, phase, error_text(error), lease=self._lease, **self._totals))

    def _end(self, phase: Phase, store: Call) -> Body:
        yield from self._stored(store, partial(self._executions.get, phase.execution_id), lambda found: found.finished_at)


class PhaseBlock(_Sync, _Block):
    """See `Store.phase`. An exception of the block is the failure of its execution, and is raised on. What was used is stored.

    A refused result of the block, such as an entry that is no JSON, fails the phase, too: the failed execution keeps the output
    then.

    A process that dies inside of the block, and an exception that is no Exception, leave the execution unfinished: the next
    worker that claims the run fails it as stale, and the phase is due again.
    """

    __slots__ = ()


class AsyncPhaseBlock(_Async, _Block):
    """See PhaseBlock."""

    __slots__ = ()
