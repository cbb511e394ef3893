"""Recording one stream: what each chunk changes, when it is written, and what becomes of it if that fails.

The rules are written once, as generators that yield the database work they need (`Job`) and are sent its result; the sync
recorder runs each job in place, the async one awaits it. A chunk whose write fails is taken back, so that feeding it again
is right; state moves on only when a job is acknowledged.
"""

import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from persist.chat import owners, turns, usage
from persist.chat.chunks import ChunkType
from persist.chat.deadlines import Deadlines
from persist.chat.drafting import Draft
from persist.chat.flush import Flush
from persist.chat.growth import Growth
from persist.chat.options import RecordOptions, digest_of
from persist.chat.pending import Entry, Pending
from persist.chat.schemas import StepUsage
from persist.chat.stream import Batch, Steps, Stream
from persist.chat.unfolded import Unfolded
from persist.db.clock import epoch_ms
from persist.db.escape import utf8_size
from persist.db.hot import Statements
from persist.db.jobs import Job
from persist.db.runtime import Runtime
from persist.errors import Conflict, NotFound, PersistError, StoreBusy, StoreFull, StreamProtocolError, Unavailable
from persist.settings import SaveOn

# a tuple: what is looked up may be anything, and a set would want its hash
_GROWING = (ChunkType.TEXT_DELTA.value, ChunkType.REASONING_DELTA.value, ChunkType.TOOL_INPUT_DELTA.value)


class Recording:
    """One recorder's state. Its face serialises the calls."""

    def __init__(self, runtime: Runtime, session_id: str, options: RecordOptions) -> None:
        self._runtime = runtime
        self._session_id = session_id
        self._options = options
        self._owner = owners.new_owner()
        weakref.finalize(self, owners.retire_owner, self._owner)  # a recorder that was dropped without close() is nobody's turn
        self._immediate = options.save_on == SaveOn.CHUNK and not options.buffered
        self._most = runtime.limits.max_bytes
        self._takeover = options.takeover
        self._stream = Stream(runtime, session_id)
        self._pending = Pending()
        self._unfolded = Unfolded(runtime.settings)
        self._owned: dict[str, Any] = {}
        self._running = False
        self._about: str | None = None  # the message that the turn is about
        self._errored = False
        self.ignored = 0
        self.opened = False
        self.closed = False
        self._due = Deadlines()

    @property
    def message_id(self) -> str | None:
        """The message being recorded; None before there is one."""
        return self._stream.current.id

    @property
    def applied(self) -> int:
        """How many chunks the recording holds."""
        return self._stream.accumulator.index

    @property
    def due(self) -> float | None:
        """The next deadline, in monotonic seconds."""
        return self._due.next

    # -- the life of a recording: generators of database work

    def opening(self) -> Steps:
        """NotFound without the session; Conflict while somebody alive records in it."""
        options, now = self._options, self._runtime.clock()

        def look(db: Statements) -> str:
            agent = turns.session_agent(db, self._session_id)
            if not options.takeover:
                turns.refuse_running(db, self._session_id, now, "Recording")
            return agent

        session_agent = yield Job(look)
        if options.model is not None:
            self._owned["model"] = options.model
        if options.agent is not None and options.agent != session_agent:
            self._owned["agent"] = options.agent
        if options.system_prompt is not None:
            self._owned["system_prompt_digest"] = digest_of(options.system_prompt)
        self.opened = True

    def growth(self, chunk: Mapping[str, Any]) -> Growth | None:
        """The short way of a piece of text that only extends a growing part, which nearly every chunk is: one row.

        None: the chunk takes the long way, `feeding`, and nothing has changed. A growth is run, then kept or undone.
        """
        if not (self._running and self._immediate and chunk.__class__ is dict and chunk.get("type") in _GROWING) or self._pending:
            return None
        accumulator = self._stream.accumulator
        part, change = accumulator.extend(chunk), None
        if part is None:
            try:
                change = accumulator.apply(chunk)
            except PersistError:
                return None  # refused on the long way in the same words, with what follows from it
            part = change.part
        delta = chunk["delta"] if change is None else change.delta
        size = 0 if delta is None else utf8_size(delta)
        if part is None or delta is None or self._unfolded.full(part, size) or part.base + size > self._most:
            self._stream.take_back_one(part, change)
            return None
        growth = Growth(self._session_id, self._owner, self._runtime.clock_ms(), part.id or "", part.seq + 1, delta)
        growth.change, growth.part, growth.size = change, part, size
        return growth

    def keep(self, growth: Growth) -> bool:
        """It is durable. Whether that set a deadline."""
        growth.part.base += growth.size
        self._unfolded.grew(growth.part, growth.size)
        if self._due.fold is not None:
            return False
        self._arm_fold()
        return True

    def undo(self, growth: Growth, error: BaseException) -> None:
        """It was not written; the chunk may be fed again."""
        self._stream.take_back_one(growth.part, growth.change)
        self._gone(error)

    def feeding(self, chunks: Iterable[Mapping[str, Any]]) -> Steps:
        """Apply chunks, then write in one transaction what the save policy wants written."""
        batch, place = Batch(), self._stream.place()
        try:
            yield from self._stream.applying(chunks, batch, self._pending)
            yield from self._keep(batch.entries)
        except BaseException as error:
            self._stream.take_back(batch, place)
            self._gone(error)
            raise
        self.ignored += batch.ignored
        if isinstance(batch.problem, StreamProtocolError):
            yield from self.closing()
        if batch.problem is not None:
            raise batch.problem

    def flushing(self) -> Steps:
        """Write what waits in memory."""
        draft = Draft.of(self._pending)
        if draft.writes():
            yield from self._write(draft)

    def closing(self) -> Steps:
        """Flush, fold and give up the turn; marks nothing finished."""
        if self.closed:
            return
        draft = Draft.of(self._pending)
        for unit in draft.pending.units.values():
            unit.create = unit.create or bool(unit.usage)
        if self._running or self._unfolded or draft.writes():
            draft.fold_all = True
            draft.end = not (self._errored or draft.pending.failed)
            try:
                yield from self._write(draft)
            except (StoreBusy, StoreFull, Unavailable) as error:
                if isinstance(error, Unavailable) and not draft.writes():
                    self._end()  # all of it was written
                raise  # still open: what waits can be written by another close()
            except (Conflict, NotFound):
                self._end()
                if draft.writes():
                    raise  # else all of it was written, and whoever has the turn now goes on from there
            except BaseException:
                self._end()
                raise
        self._end()

    def timed(self, now: float) -> Steps:
        """What a stream owes: the buffer after buffer_ms, the fold when it is due, a sign of life every 20 s."""
        if self._due.buffer is not None and self._due.buffer <= now:
            yield from self.flushing()
        if self._due.fold is not None and self._due.fold <= now and self._unfolded:
            self._due.fold = self._unfolded.due()  # more may have come since it was set, and then a long part waits
            if self._due.fold <= now:
                yield from self._fold()
        if self._due.beat is not None and self._due.beat <= now:
            at = self._runtime.clock()
            yield Job(lambda db: turns.beat(db, self._session_id, self._owner, at))
            self._due.beat = now + turns.BEAT_SECONDS

    def using(self, step: int, counts: StepUsage) -> Steps:
        """A step's token usage: at once for a stored message, with the message's row otherwise."""
        current, at = self._stream.current, self._runtime.clock()
        if current.stored and current.id is not None:
            id = current.id
            yield Job(lambda db: usage.record_step(db, self._session_id, id, step, counts, at))
        else:
            self._pending.unit(current).usage.append((step, counts))

    # -- writing

    def _keep(self, entries: list[Entry]) -> Steps:
        """Write now, or remember for later."""
        if not entries:
            return
        if self._options.due_now(entries, self._pending.bytes):
            draft = Draft.of(self._pending, entries)
            last = entries[-1].change.boundary
            draft.end = last in ("finish", "abort") and not (self._errored or draft.pending.failed)
            draft.stop = last in ("finish", "abort")
            yield from self._write(draft)
            return
        if not self._running:
            yield from self._write(Draft(Pending()), keep=self._pending)
        for entry in entries:
            self._pending.add(entry)
        if self._options.buffer_ms and self._options.save_on == SaveOn.CHUNK and self._due.buffer is None:
            self._due.buffer = time.monotonic() + self._options.buffer_ms / 1000

    def _write(self, draft: Draft, *, keep: Pending | None = None) -> Steps:
        """One transaction, then everything that follows from its being durable."""
        now = self._runtime.clock()
        flush = Flush(self._session_id, self._owner, now, epoch_ms(now))
        current = self._stream.current
        if current.id != self._about or not self._running:
            flush.message_id, flush.resumed = current.id, current.id if current.stored else None
        if not self._running:
            flush.begin, flush.takeover = True, self._takeover
            flush.model = self._options.model_text
            if self._options.system_prompt is not None:
                flush.prompt = (digest_of(self._options.system_prompt), self._options.system_prompt)
        draft.fill(flush, self._unfolded, self._owned, self._options.metadata, self._runtime)
        yield from self._run(Job(flush.run, single=flush.delta_only()))
        self._takeover = False
        self._pending = keep if keep is not None else draft.rest
        self._settle(draft, flush)

    def _fold(self) -> Steps:
        """What has waited long enough in rows of its own."""

        def fold(db: Statements) -> None:
            turns.guard(db, self._session_id, self._owner)
            self._unfolded.fold(db)

        yield from self._run(Job(fold))
        self._unfolded.folded()
        self._due.fold = None

    def _run(self, job: Job[None]) -> Steps:
        try:
            yield job
        except PersistError as error:
            self._gone(error)
            raise

    def _settle(self, draft: Draft, flush: Flush) -> None:
        now = time.monotonic()
        if flush.begin or flush.message_id is not None:
            self._about = flush.message_id
        if flush.begin:
            self._running, self._errored = True, False
            self._due.beat = now + turns.BEAT_SECONDS
        self._errored = self._errored or flush.failed
        if draft.end or draft.stop:
            self._running = False
            self._due.beat = None
        draft.acknowledge(self._unfolded)
        if not self._pending.bytes:
            self._due.buffer = None
        if not self._unfolded:
            self._due.fold = None
        elif self._due.fold is None:
            self._arm_fold()

    def _arm_fold(self) -> None:
        self._due.fold = self._unfolded.due()

    def _gone(self, error: BaseException) -> None:
        """After a lost turn, or a commit of unknown outcome, this state no longer tells what is stored."""
        lost = isinstance(error, Conflict) and error.constraint == "chat_turns"
        deleted = isinstance(error, NotFound) and error.kind == "session"
        if (self._running and (lost or deleted)) or (isinstance(error, Unavailable) and error.outcome == "unknown"):
            self._end()

    def postpone(self) -> None:
        """A timed flush failed: its deadlines are tried again in a second."""
        self._due.postpone()

    def abandon(self) -> None:
        """Nothing more will be fed."""
        self._end()

    def _end(self) -> None:
        self.closed = True
        self._due.clear()
        owners.retire_owner(self._owner)
