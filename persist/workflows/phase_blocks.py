"""`store.phase`: a block of code that is one phase of a run, done once however often the run is claimed.

with store.phase(lease, "plan") as phase:
if phase.due:
phase.output = make_a_plan()
"""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_body
from persist.errors import InvalidValue, PayloadTooLarge
from persist.workflows.schemas import Lease, Phase, WorkflowRun
from persist.workflows.steps import told
from persist.workflows.storage.execution_ends import Totals, check_total

if TYPE_CHECKING:
    from persist.db.transactions.repository import Async
    from persist.db.values.json import Json
    from persist.workflows.verbs.phase_verbs import Phases


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
        """What the run's history keeps of the phase, beside its name, its instant and its execution."""
        self._totals: Totals = {}
        self._phase: Phase | None = None

    @property
    def output(self) -> str | None:
        """The text that the phase leaves to later ones: set it inside the block. It is stored when the block ends.

        Setting it raises InvalidValue for what is no text, and PayloadTooLarge.
        """
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

    So is a refusal of what the block leaves, such as an entry that is no JSON: the failed execution keeps the output then.

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
                self._phases.fail(self._phase, told(refused), output=self._output, lease=self._lease)
                raise
        elif isinstance(error, Exception):
            self._phases.fail(self._phase, told(error), lease=self._lease)


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
                await self._phases.fail(self._phase, told(refused), output=self._output, lease=self._lease)
                raise
        elif isinstance(error, Exception):
            await self._phases.fail(self._phase, told(error), lease=self._lease)
