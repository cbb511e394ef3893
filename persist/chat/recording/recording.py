"""Recording one stream: its options, what each chunk changes, when it is written, and what happens if the write fails."""

import hashlib
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from persist.chat.recording.draft import FlushPlan, Unfolded
from persist.chat.recording.flush import DeltaInsert, Flush
from persist.chat.recording.pending import Entry, UnwrittenChanges
from persist.chat.recording.resume import StopRequests
from persist.chat.recording.stream import AppliedChunks, DatabaseSteps, Stream
from persist.chat.reducer.chunks import ChunkType
from persist.chat.schemas import StepUsage
from persist.chat.storage import turns, usage
from persist.chat.storage.statements import HEARTBEAT
from persist.db.changes.batch import StatementRunner
from persist.db.concurrency import ownership
from persist.db.group_commit.tasks import FunctionTask
from persist.db.observation import Counters, RecorderTally, TurnTrace
from persist.db.transactions.runtime import Runtime
from persist.db.values.arguments import check_body, check_choice, check_label
from persist.db.values.escaping import utf8_size
from persist.db.values.json import Json, JsonText, encode
from persist.errors import Conflict, InvalidValue, NotFound, PersistError, StreamProtocolError, Unavailable
from persist.settings import AiSdk, SaveOn
from persist.usage.spending import budget_keys, refuse
from persist.usage.writing import window_of


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options of one recorder. An option that the caller left None has the value of the store's Settings."""

    model: Json
    model_text: JsonText | None
    agent: str | None
    system_prompt: str | None
    metadata: Mapping[str, Any]
    takeover: bool
    save_on: SaveOn
    buffer_bytes: int
    buffer_ms: int
    ai_sdk: AiSdk

    @classmethod
    def of(
        cls,
        runtime: Runtime,
        *,
        model: Json,
        agent: str | None,
        system_prompt: str | None,
        metadata: Json,
        takeover: bool,
        save_on: str | None,
        buffer_bytes: int | None,
        buffer_ms: int | None,
        ai_sdk: int | None,
    ) -> "RecordOptions":
        """Check the arguments. InvalidValue names the wrong one."""
        settings = runtime.settings
        for path, value in (("metadata", metadata), ("model", model)):
            if value is not None and type(value) is not dict:
                raise InvalidValue(path, "expected an object.")
        if metadata:
            encode(metadata, "metadata", runtime.limits)
        if agent is not None and not check_label("agent", agent):
            raise InvalidValue("agent", "it is empty.")
        if system_prompt is not None:
            check_body("system_prompt", system_prompt, settings.max_text_bytes)
        return cls(
            model=model,
            model_text=None if model is None else encode(model, "model", runtime.limits),
            agent=agent,
            system_prompt=system_prompt,
            metadata=metadata or {},
            takeover=bool(takeover),
            save_on=check_choice("save_on", settings.save_on if save_on is None else save_on, SaveOn),
            buffer_bytes=_not_negative("buffer_bytes", settings.save_buffer_bytes if buffer_bytes is None else buffer_bytes),
            buffer_ms=_not_negative("buffer_ms", settings.save_buffer_ms if buffer_ms is None else buffer_ms),
            ai_sdk=settings.ai_sdk if ai_sdk is None else AiSdk.of(ai_sdk),
        )

    @property
    def buffered(self) -> bool:
        """Whether text may be buffered in memory before it is written."""
        return self.buffer_bytes > 0 or self.buffer_ms > 0

    @property
    def traced(self) -> Mapping[str, Any]:
        """What a tracer is told: who answers, and how it is saved. Nothing of it is content."""
        model = self.model if isinstance(self.model, dict) else {}
        return {
            "agent": self.agent,
            "provider": model.get("provider_id"),
            "model": model.get("model_id"),
            "save_on": self.save_on.value,
        }

    def due_now(self, entries: Sequence[Entry], waiting: int) -> bool:
        """Whether to write these chunks at once; `waiting` is the bytes of text that would be buffered."""
        boundaries = {entry.change.boundary for entry in entries}
        if "finish" in boundaries or "abort" in boundaries or any(entry.change.error_text is not None for entry in entries):
            return True
        if self.save_on == SaveOn.STEP:
            return "step" in boundaries
        if self.save_on == SaveOn.TURN:
            return False
        if not self.buffered or any(entry.change.delta is None for entry in entries):
            return True
        return 0 < self.buffer_bytes <= waiting


def _not_negative(path: str, value: object) -> int:
    if type(value) is not int or value < 0:
        raise InvalidValue(path, "expected a whole number, 0 or more.")
    return value


def digest_of(prompt: str) -> str:
    """sha256 of the prompt's UTF-8 text, in hex."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


class Deadlines:
    """When to flush the buffer, to fold deltas and to write a heartbeat, in monotonic seconds; None if not scheduled."""

    __slots__ = ("buffer", "fold", "heartbeat")

    def __init__(self) -> None:
        self.buffer: float | None = None
        self.fold: float | None = None
        self.heartbeat: float | None = None

    @property
    def next(self) -> float | None:
        """The earliest deadline; None if none is scheduled."""
        due = self.fold
        for other in (self.buffer, self.heartbeat):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def postpone(self) -> None:
        """Move every scheduled deadline to one second from now, to retry what failed."""
        later = time.monotonic() + 1.0
        self.buffer = later if self.buffer is not None else None
        self.fold = later if self.fold is not None else None
        self.heartbeat = later if self.heartbeat is not None else None


# Sync and async recorders share this code: its generators yield the database work they need (`FunctionTask`) and are sent the
# result. `Recorder` runs each task in place, `AsyncRecorder` awaits it. A chunk whose write fails is undone, so that it can be
# fed again; state changes only when a task has succeeded.

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
        self._owner = ownership.new_owner()
        self._announce = announce
        self.stop_requests = StopRequests(runtime, session_id, self._owner)
        self._tally = RecorderTally()
        self._turn = None if runtime.tracer is None else runtime.tracer.turn(session_id, options.traced)
        retire = partial(_retire, runtime.counters, self._tally, self._turn, self._owner)
        weakref.finalize(self, retire)  # one dropped without close() leaves no turn
        self._immediate = options.save_on == SaveOn.CHUNK and not options.buffered
        self._maximum, self._window = runtime.limits.max_bytes, window_of(runtime.settings)
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
        self.deadlines = Deadlines()

    @property
    def message_id(self) -> str | None:
        """The id of the message being recorded; None until there is one."""
        return self._stream.current.id

    @property
    def applied(self) -> int:
        """The number of chunks applied."""
        return self._stream.accumulator.index

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
        if self.deadlines.fold is not None:
            return False
        self.deadlines.fold = self._unfolded.due()
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
            if batch.entries:
                yield from self._keep(batch.entries, batch.size)
        except BaseException as error:
            self._stream.undo_batch(batch, position)
            self._close_if_lost(error)
            raise
        self.ignored += batch.ignored
        self._tally.chunks += len(batch.entries) + batch.ignored
        self._tally.bytes += batch.size
        if batch.problem is not None:
            if isinstance(batch.problem, StreamProtocolError):
                yield from self.closing()
            raise batch.problem

    def flushing(self) -> DatabaseSteps:
        """Write everything pending."""
        plan = FlushPlan.of(self._pending)
        if plan.has_writes():
            yield from self._write_plan(plan)

    def closing(self) -> DatabaseSteps:
        """Flush, fold and end the turn. The message is not marked as finished."""
        if self.closed or not (self._running or self._unfolded or self._pending):
            return self.abandon()
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
        if self.deadlines.buffer is not None and self.deadlines.buffer <= now:
            yield from self.flushing()
        if self.deadlines.fold is not None and self.deadlines.fold <= now and self._unfolded:
            self.deadlines.fold = self._unfolded.due()  # later text may have moved it, as a long part is folded less often
            if self.deadlines.fold <= now:
                yield from self._fold()
        if self.deadlines.heartbeat is not None and self.deadlines.heartbeat <= now:
            at = self._runtime.clock()
            yield FunctionTask(lambda db: turns.heartbeat(db, self._session_id, self._owner, at), turn=self._turn)
            self.deadlines.heartbeat = now + _HEARTBEAT_SECONDS

    def using(self, step: int, counts: StepUsage) -> DatabaseSteps:
        """Record a step's token usage: at once if the message is stored, otherwise together with its row."""
        current, at, window = self._stream.current, self._runtime.clock(), self._window
        if current.stored and current.id is not None:
            id = current.id
            yield FunctionTask(lambda db: usage.record_step(db, self._session_id, id, step, counts, at, window), turn=self._turn)
        else:
            self._pending.unit(current).usage.append((step, counts))

    # -- writing

    def _keep(self, entries: list[Entry], size: int) -> DatabaseSteps:
        """Write the entries, with so many bytes of text, now or keep them pending, by the save policy."""
        if self._immediate or self._options.due_now(entries, self._pending.bytes + size):
            plan = FlushPlan.of(self._pending, entries)
            plan.stop = entries[-1].change.boundary in ("finish", "abort")
            plan.end = plan.stop and not (self._errored or plan.pending.failed)
            yield from self._write_plan(plan)
            return
        if not self._running:
            yield from self._write_plan(FlushPlan(UnwrittenChanges()), keep=self._pending)
        for entry in entries:
            self._pending.add(entry)
        if self._options.buffer_ms and self._options.save_on == SaveOn.CHUNK and self.deadlines.buffer is None:
            self.deadlines.buffer = time.monotonic() + self._options.buffer_ms / 1000

    def _write_plan(self, plan: FlushPlan, *, keep: UnwrittenChanges | None = None) -> DatabaseSteps:
        """Write the plan in one transaction, then update the recorder's state. `keep`, else the plan's rest, stays pending."""
        flush = Flush(self._session_id, self._owner, self._runtime.clock(), self._window)
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
        try:
            yield FunctionTask(flush.run, flush.delta_only(), flush.refusal, self._turn)
        except PersistError as error:
            self._close_if_lost(error)
            raise
        self._takeover = False
        self._pending = keep if keep is not None else plan.remaining
        self._settle(plan, flush)

    def _fold(self) -> DatabaseSteps:
        def fold(db: StatementRunner) -> None:
            self._unfolded.fold(db, lambda batch: turns.guard(batch, self._session_id, self._owner))

        refusal = partial(turns.lost_turn_error, session_id=self._session_id)
        try:
            yield FunctionTask(fold, refusal=refusal, turn=self._turn)
        except PersistError as error:
            self._close_if_lost(error)
            raise
        self._unfolded.folded()
        self._tally.folds = self._unfolded.folds
        self.deadlines.fold = None

    def _settle(self, plan: FlushPlan, flush: Flush) -> None:
        now = time.monotonic()
        if flush.begin or flush.message_id is not None:
            self._turn_message_id = flush.message_id
        if flush.begin:
            self._running, self._errored = True, False
            self.stop_requests.requested = False
            self.deadlines.heartbeat = now + _HEARTBEAT_SECONDS
        self._errored = self._errored or flush.failed
        if plan.end or plan.stop:
            self._running = False
            self.deadlines.heartbeat = None
        if self._announce is not None:
            self._announce(self._session_id)
        plan.acknowledge(self._unfolded)
        self._tally.folds = self._unfolded.folds
        if not self._pending.bytes:
            self.deadlines.buffer = None
        if not self._unfolded:
            self.deadlines.fold = None
        elif self.deadlines.fold is None:
            self.deadlines.fold = self._unfolded.due()

    def _close_if_lost(self, error: BaseException) -> None:
        """Close after an error that makes this state useless: the turn or session is lost, or a commit's outcome is unknown."""
        lost = isinstance(error, Conflict) and error.constraint == "chat_turns"
        deleted = isinstance(error, NotFound) and error.kind == "session"
        if (self._running and (lost or deleted)) or (isinstance(error, Unavailable) and error.outcome == "unknown"):
            self.abandon(error)

    def abandon(self, error: BaseException | None = None) -> None:
        """Close without writing anything, once."""
        if self.closed:
            return
        self.closed = True
        self.stop_requests.close()
        self.deadlines = Deadlines()
        _retire(self._runtime.counters, self._tally, self._turn, self._owner, error)


def _retire(
    counters: Counters, tally: RecorderTally, turn: TurnTrace | None, owner: str, error: BaseException | None = None
) -> None:
    ownership.retire_owner(owner)
    counters.recorder_ended(tally)
    if turn is not None:
        turn.ended(tally, error)
