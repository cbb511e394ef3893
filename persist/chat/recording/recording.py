"""Recording one stream: what each chunk changes, when it is written, and what happens if the write fails.

Sync and async recorders share this code: its generators yield the database work they need (`FunctionTask`) and are sent the
result. `Recorder` runs each task in place, `AsyncRecorder` awaits it. A chunk whose write fails is undone, so that it can be
fed again; state changes only when a task has succeeded.
"""

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from persist.chat.recording.deadlines import Deadlines
from persist.chat.recording.delta_insert import DeltaInsert
from persist.chat.recording.draft import FlushPlan
from persist.chat.recording.flush import Flush
from persist.chat.recording.options import RecordOptions, digest_of
from persist.chat.recording.pending import Entry, UnwrittenChanges
from persist.chat.recording.stop_requests import StopRequests
from persist.chat.recording.stream import AppliedChunks, DatabaseSteps, Stream
from persist.chat.recording.unfolded_parts import Unfolded
from persist.chat.reducer.chunks import ChunkType
from persist.chat.schemas import StepUsage
from persist.chat.storage import turns, usage
from persist.chat.storage.liveness import HEARTBEAT
from persist.db.changes.driver_statements import StatementRunner
from persist.db.concurrency import process_owners
from persist.db.group_commit.tasks import FunctionTask
from persist.db.observation.counters import Counters, RecorderTally
from persist.db.observation.tracing import TurnTrace
from persist.db.transactions.runtime import Runtime
from persist.db.values.clock import epoch_ms
from persist.db.values.escaping import utf8_size
from persist.errors import Conflict, NotFound, PersistError, StreamProtocolError, Unavailable
from persist.settings import SaveOn
from persist.usage.spending import budget_keys, refuse
from persist.usage.writing import window_of

_HEARTBEAT_SECONDS = HEARTBEAT.total_seconds()
# a tuple, not a set: a chunk's `type` may be anything, also unhashable
_GROWING = (ChunkType.TEXT_DELTA.value, ChunkType.REASONING_DELTA.value, ChunkType.TOOL_INPUT_DELTA.value)


class Recording:
    """One recorder's state. Not thread-safe: the recorder serialises calls."""

    def __init__(
        self, runtime: Runtime, session_id: str, options: RecordOptions, announce: Callable[[str], None] | None = None
    ) -> None:
        self._runtime = runtime
        self._session_id = session_id
        self._options = options
        self._owner = process_owners.new_owner()
        self._announce = announce
        self.stop_requests = StopRequests(runtime, session_id, self._owner)
        self._tally = RecorderTally()
        self._turn = None if runtime.tracer is None else runtime.tracer.turn(session_id, options.traced)
        retire = partial(_retire, runtime.counters, self._tally, self._turn, self._owner)
        weakref.finalize(self, retire)  # one dropped without close() leaves no turn
        self._immediate = options.save_on == SaveOn.CHUNK and not options.buffered
        self._maximum = runtime.limits.max_bytes
        self._takeover = options.takeover
        self._stream = Stream(runtime, session_id, options.ai_sdk)
        self._pending = UnwrittenChanges()
        self._unfolded = Unfolded(runtime.settings)
        self._owned: dict[str, Any] = {}
        self._running = False
        self._turn_message_id: str | None = None  # the message id in the turn's row
        self._errored = False
        self.ignored = 0
        self.opened = False
        self.closed = False
        self._due = Deadlines()

    @property
    def message_id(self) -> str | None:
        """The id of the message being recorded; None until there is one."""
        return self._stream.current.id

    @property
    def applied(self) -> int:
        """The number of chunks applied."""
        return self._stream.accumulator.index

    @property
    def due(self) -> float | None:
        """The next deadline, in monotonic seconds."""
        return self._due.next

    # -- the steps of a recording: generators that yield database work

    def opening(self) -> DatabaseSteps:
        """Check the session.

        Raises NotFound if there is none, Conflict while another recorder's turn runs in it, unless taking over, and with
        `Settings.record_within_budget` BudgetExceeded if a budget of the session's owner or the agent is used up.
        """
        options, now = self._options, self._runtime.clock()

        def check_session(db: StatementRunner) -> str:
            within_budget = self._runtime.settings.record_within_budget
            agent, owner, turn = turns.session_agent(db, self._session_id, last=not within_budget)
            if within_budget:
                refuse(db, budget_keys(owner=owner, agent=options.agent or agent), now)
            if not options.takeover:
                turns.refuse(turn, self._session_id, now, "Recording")
            return agent

        session_agent = yield FunctionTask(check_session)
        if options.model is not None:
            self._owned["model"] = options.model
        if options.agent is not None and options.agent != session_agent:
            self._owned["agent"] = options.agent
        if options.system_prompt is not None:
            self._owned["system_prompt_digest"] = digest_of(options.system_prompt)
        self.opened = True
        self._runtime.counters.recorder_began(self._tally)

    def reset(self) -> None:
        """Be as before `opening`: its caller was cancelled, and will not close what it does not know to be open."""
        self.opened = False
        self._runtime.counters.recorder_withdrawn(self._tally)

    def delta_insert(self, chunk: Mapping[str, Any]) -> DeltaInsert | None:
        """Fast path for a chunk that only adds text to a growing part, as nearly every chunk does: one delta row to insert.

        Run the returned insert, then call `keep` or `undo`. None: nothing was changed, use `feeding`.
        """
        if not (self._running and self._immediate and chunk.__class__ is dict and chunk.get("type") in _GROWING) or self._pending:
            return None
        accumulator = self._stream.accumulator
        part, change = accumulator.extend(chunk), None
        if part is None:
            try:
                change = accumulator.apply(chunk)
            except PersistError:
                return None  # `feeding` raises the same error and handles it
            part = change.part
        delta = chunk["delta"] if change is None else change.delta
        size = 0 if delta is None else len(delta) if delta.isascii() else utf8_size(delta)
        if part is None or delta is None or self._unfolded.should_fold(part, size) or part.base + size > self._maximum:
            self._stream.undo_delta(part, change)
            return None
        delta_insert = DeltaInsert(self._session_id, self._owner, self._runtime.clock_ms(), part.id or "", part.seq + 1, delta)
        delta_insert.change, delta_insert.part, delta_insert.size = change, part, size
        return delta_insert

    def keep(self, delta_insert: DeltaInsert) -> bool:
        """The delta row is durable; whether a deadline was set."""
        delta_insert.part.base += delta_insert.size
        self._tally.chunks += 1
        self._tally.bytes += delta_insert.size
        self._unfolded.delta_stored(delta_insert.part, delta_insert.size)
        if self._announce is not None:
            self._announce(self._session_id)
        if self._due.fold is not None:
            return False
        self._arm_fold()
        return True

    def undo(self, delta_insert: DeltaInsert, error: BaseException) -> None:
        """The delta row was not written: undo the chunk, which may be fed again."""
        self._stream.undo_delta(delta_insert.part, delta_insert.change)
        self._close_if_lost(error)

    def feeding(self, chunks: Iterable[Mapping[str, Any]]) -> DatabaseSteps:
        """Apply chunks, then write what the save policy requires, in one transaction."""
        batch, position = AppliedChunks(), self._stream.position()
        try:
            yield from self._stream.applying(chunks, batch, self._pending)
            yield from self._keep(batch.entries)
        except BaseException as error:
            self._stream.undo_batch(batch, position)
            self._close_if_lost(error)
            raise
        self.ignored += batch.ignored
        self._tally.chunks += len(batch.entries) + batch.ignored
        self._tally.bytes += sum(entry.size for entry in batch.entries)
        if isinstance(batch.problem, StreamProtocolError):
            yield from self.closing()
        if batch.problem is not None:
            raise batch.problem

    def flushing(self) -> DatabaseSteps:
        """Write everything pending."""
        plan = FlushPlan.of(self._pending)
        if plan.has_writes():
            yield from self._write_plan(plan)

    def closing(self) -> DatabaseSteps:
        """Flush, fold and end the turn. The message is not marked as finished."""
        if self.closed:
            return
        plan = FlushPlan.of(self._pending)
        for unit in plan.pending.units.values():
            unit.create = unit.create or bool(unit.usage)
        if self._running or self._unfolded or plan.has_writes():
            plan.fold_all = True
            plan.end = not (self._errored or plan.pending.failed)
            try:
                yield from self._write_plan(plan)
            except PersistError as error:
                if self._runtime.errors.is_outage(error) and (plan.has_writes() or not isinstance(error, Unavailable)):
                    raise  # still open: another close() can write what is pending
                self.abandon()
                if not isinstance(error, Conflict | NotFound) or plan.has_writes():
                    raise  # else everything was written, and the turn's new owner continues from there
            except BaseException:
                self.abandon()
                raise
        self.abandon()

    def timed(self, now: float) -> DatabaseSteps:
        """Do what is due: flush the buffer after buffer_ms, fold deltas, write a heartbeat."""
        if self._due.buffer is not None and self._due.buffer <= now:
            yield from self.flushing()
        if self._due.fold is not None and self._due.fold <= now and self._unfolded:
            self._due.fold = self._unfolded.due()  # later text may have moved it, as a long part is folded less often
            if self._due.fold <= now:
                yield from self._fold()
        if self._due.heartbeat is not None and self._due.heartbeat <= now:
            at = self._runtime.clock()
            yield FunctionTask(lambda db: turns.heartbeat(db, self._session_id, self._owner, at), turn=self._turn)
            self._due.heartbeat = now + _HEARTBEAT_SECONDS

    def using(self, step: int, counts: StepUsage) -> DatabaseSteps:
        """Record a step's token usage: at once if the message is stored, otherwise together with its row."""
        current, at, window = self._stream.current, self._runtime.clock(), window_of(self._runtime.settings)
        if current.stored and current.id is not None:
            id = current.id
            yield FunctionTask(lambda db: usage.record_step(db, self._session_id, id, step, counts, at, window), turn=self._turn)
        else:
            self._pending.unit(current).usage.append((step, counts))

    # -- writing

    def _keep(self, entries: list[Entry]) -> DatabaseSteps:
        """Write the entries now, or keep them pending, by the save policy."""
        if not entries:
            return
        if self._options.due_now(entries, self._pending.bytes):
            plan = FlushPlan.of(self._pending, entries)
            last = entries[-1].change.boundary
            plan.end = last in ("finish", "abort") and not (self._errored or plan.pending.failed)
            plan.stop = last in ("finish", "abort")
            yield from self._write_plan(plan)
            return
        if not self._running:
            yield from self._write_plan(FlushPlan(UnwrittenChanges()), keep=self._pending)
        for entry in entries:
            self._pending.add(entry)
        if self._options.buffer_ms and self._options.save_on == SaveOn.CHUNK and self._due.buffer is None:
            self._due.buffer = time.monotonic() + self._options.buffer_ms / 1000

    def _write_plan(self, plan: FlushPlan, *, keep: UnwrittenChanges | None = None) -> DatabaseSteps:
        """Write the plan in one transaction, then update the recorder's state. `keep`, else the plan's rest, stays pending."""
        now = self._runtime.clock()
        flush = Flush(self._session_id, self._owner, now, epoch_ms(now), window_of(self._runtime.settings))
        current = self._stream.current
        if current.id != self._turn_message_id or not self._running:
            flush.message_id, flush.resumed = current.id, current.id if current.stored else None
        if not self._running:
            flush.begin, flush.takeover = True, self._takeover
            flush.model = self._options.model_text
            if self._options.system_prompt is not None:
                flush.prompt = (digest_of(self._options.system_prompt), self._options.system_prompt)
        flush.held_back = bool(self._pending)
        plan.plan_into(flush, self._unfolded, self._owned, self._options.metadata, self._runtime)
        task = FunctionTask(flush.run, single=flush.delta_only(), refusal=flush.refusal, turn=self._turn)
        yield from self._run_task(task)
        self._takeover = False
        self._pending = keep if keep is not None else plan.remaining
        self._settle(plan, flush)

    def _fold(self) -> DatabaseSteps:
        """Fold the delta rows of all unfolded parts in one transaction."""

        def fold(db: StatementRunner) -> None:
            self._unfolded.fold(db, lambda batch: turns.guard(batch, self._session_id, self._owner))

        refusal = partial(turns.lost_turn_error, session_id=self._session_id)
        yield from self._run_task(FunctionTask(fold, refusal=refusal, turn=self._turn))
        self._unfolded.folded()
        self._tally.folds = self._unfolded.folds
        self._due.fold = None

    def _run_task(self, job: FunctionTask[None]) -> DatabaseSteps:
        try:
            yield job
        except PersistError as error:
            self._close_if_lost(error)
            raise

    def _settle(self, plan: FlushPlan, flush: Flush) -> None:
        now = time.monotonic()
        if flush.begin or flush.message_id is not None:
            self._turn_message_id = flush.message_id
        if flush.begin:
            self._running, self._errored = True, False
            self.stop_requests.begin_turn()
            self._due.heartbeat = now + _HEARTBEAT_SECONDS
        self._errored = self._errored or flush.failed
        if plan.end or plan.stop:
            self._running = False
            self._due.heartbeat = None
        if self._announce is not None:
            self._announce(self._session_id)
        plan.acknowledge(self._unfolded)
        self._tally.folds = self._unfolded.folds
        if not self._pending.bytes:
            self._due.buffer = None
        if not self._unfolded:
            self._due.fold = None
        elif self._due.fold is None:
            self._arm_fold()

    def _arm_fold(self) -> None:
        self._due.fold = self._unfolded.due()

    def _close_if_lost(self, error: BaseException) -> None:
        """Close after an error that makes this state useless: the turn or session is lost, or a commit's outcome is unknown."""
        lost = isinstance(error, Conflict) and error.constraint == "chat_turns"
        deleted = isinstance(error, NotFound) and error.kind == "session"
        if (self._running and (lost or deleted)) or (isinstance(error, Unavailable) and error.outcome == "unknown"):
            self.abandon(error)

    def postpone(self) -> None:
        """A timed flush failed: retry it in one second."""
        self._due.postpone()

    def abandon(self, error: BaseException | None = None) -> None:
        """Close without writing anything."""
        self.closed = True
        self.stop_requests.close()
        self._due.clear()
        _retire(self._runtime.counters, self._tally, self._turn, self._owner, error)


def _retire(
    counters: Counters, tally: RecorderTally, turn: TurnTrace | None, owner: str, error: BaseException | None = None
) -> None:
    process_owners.retire_owner(owner)
    counters.recorder_ended(tally)
    if turn is not None:
        turn.ended(tally, error)
