"""Recording one stream: what each chunk changes, when it is written, and what becomes of it if that fails.

The rules are written once, as generators that yield the database work they need (`Job`) and are sent its result; the sync
recorder runs each job in place, the async one awaits it. A chunk whose write fails is taken back, so that feeding it again
is right; state moves on only when a job is acknowledged.
"""

import hashlib
import time
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from persist.chat import turns, usage
from persist.chat.accumulator import Accumulator, Change, PartState, UnknownToolCall
from persist.chat.chunks import ChunkType
from persist.chat.drafting import Draft
from persist.chat.flush import Flush
from persist.chat.options import RecordOptions
from persist.chat.pending import Current, Entry, Pending
from persist.chat.resume import find_unfinished_call, load_message
from persist.chat.schemas import StepUsage
from persist.db.clock import EPOCH, epoch_ms
from persist.db.held import Job
from persist.db.hot import Statements
from persist.db.json import check
from persist.db.runtime import Runtime
from persist.db.types import check_label
from persist.errors import Conflict, InvalidValue, PayloadTooLarge, PersistError, StoreBusy, StoreFull, StreamProtocolError, Unavailable
from persist.settings import SaveOn

Steps = Generator[Job[Any], Any, None]
_UNFOLDED_SHARE = 16  # a long part is folded when a sixteenth of it is new: total work stays linear in its length


class Recording:
    """One recorder's state. Its face serialises the calls."""

    def __init__(self, runtime: Runtime, session_id: str, options: RecordOptions) -> None:
        self._runtime = runtime
        self._session_id = session_id
        self._options = options
        self._owner = turns.new_owner()
        self._takeover = options.takeover
        self._accumulator = Accumulator()
        self._current = Current()
        self._pending = Pending()
        self._foreign: dict[PartState, str] = {}
        self._tails: dict[PartState, None] = {}
        self._owned: dict[str, Any] = {}
        self._running = False
        self._errored = False
        self.ignored = 0
        self.opened = False
        self.closed = False
        self._buffer_due: float | None = None
        self._fold_due: float | None = None
        self._beat_due: float | None = None

    @property
    def message_id(self) -> str | None:
        """The message being recorded; None before there is one."""
        return self._current.id

    @property
    def due(self) -> float | None:
        """The next deadline, in monotonic seconds."""
        return min((due for due in (self._buffer_due, self._fold_due, self._beat_due) if due is not None), default=None)

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

    def feeding(self, chunks: Iterable[Mapping[str, Any]]) -> Steps:
        """Apply chunks, then write in one transaction what the save policy wants written."""
        undo: list[tuple[Accumulator, Change]] = []
        current = self._current
        before = (self._accumulator, current.id, current.started, self.ignored)
        entries: list[Entry] = []
        problem: PersistError | None = None
        for chunk in chunks:
            try:
                change = yield from self._apply(chunk, undo)
                if change is None:
                    self.ignored += 1
                elif not change.dropped:
                    entries.append(self._entry(change, chunk, undo))
            except PersistError as error:
                problem = error
                break
        try:
            yield from self._keep(entries)
        except BaseException as error:
            for accumulator, change in reversed(undo):
                accumulator.undo(change)
            for entry in entries:
                _shrink(entry)
            self._accumulator, current.id, current.started, self.ignored = before
            self._current = current
            self._gone(error)
            raise
        if isinstance(problem, StreamProtocolError):
            yield from self.closing()
        if problem is not None:
            raise problem

    def flushing(self) -> Steps:
        """Write what waits in memory."""
        yield from self._write(Draft.of(self._pending))

    def closing(self) -> Steps:
        """Flush, fold and give up the turn; marks nothing finished."""
        if self.closed:
            return
        draft = Draft.of(self._pending)
        draft.fold_all = True
        draft.end = self._running and not self._errored
        for unit in draft.pending.units.values():
            unit.create = unit.create or bool(unit.usage)
        if draft or self._tails:
            try:
                yield from self._write(draft)
            except (StoreBusy, StoreFull):
                raise  # still open: what waits can be written by another close()
            except BaseException:
                self._end()
                raise
        self._end()

    def timed(self, now: float) -> Steps:
        """What a stalled stream owes: the buffer after buffer_ms, the fold after fold_ms, a sign of life every 20 s."""
        if self._buffer_due is not None and self._buffer_due <= now:
            yield from self.flushing()
        if self._fold_due is not None and self._fold_due <= now and self._tails:
            draft = Draft(Pending())
            draft.fold_all = True
            yield from self._write(draft)
        if self._beat_due is not None and self._beat_due <= now:
            at = self._runtime.clock()
            yield Job(lambda db: turns.beat(db, self._session_id, self._owner, at))
            self._beat_due = now + turns.BEAT_SECONDS

    def using(self, step: int, counts: StepUsage) -> Steps:
        """A step's token usage: at once for a stored message, with the message's row otherwise."""
        current, at = self._current, self._runtime.clock()
        if current.stored and current.id is not None:
            id = current.id
            yield Job(lambda db: usage.add_step(db, id, step, counts, at))
        else:
            self._pending.unit(current).usage.append((step, counts))

    # -- applying

    def _apply(self, chunk: Mapping[str, Any], undo: list[tuple[Accumulator, Change]]) -> Generator[Job[Any], Any, Change | None]:
        """One chunk, with what has to be read for it; None for a type nobody knows."""
        named = chunk.get("messageId") if isinstance(chunk, Mapping) and chunk.get("type") == ChunkType.START else None
        if isinstance(named, str) and named != self._current.id and not self._accumulator.aborted:
            yield from self._turn_to(named)
        try:
            change = self._accumulator.apply(chunk)
        except UnknownToolCall as unknown:
            call_id = unknown.tool_call_id
            found = yield Job(lambda db: find_unfinished_call(db, self._session_id, call_id))
            if found is None:
                raise
            part = PartState(found.data)
            part.id = found.part_id
            self._accumulator.foreign[call_id] = part
            self._foreign[part] = found.message_id
            change = self._accumulator.apply(chunk)
        undo.append((self._accumulator, change))
        return None if change.ignored else change

    def _turn_to(self, id: str) -> Steps:
        """A `start` that names another message: continue the stored one, or begin it."""
        if not id:
            raise InvalidValue("start.messageId", "it is empty.")
        check_label("start.messageId", id)
        stored = yield Job(lambda db: load_message(db, self._session_id, id))
        if stored is None:
            return
        resumed = Accumulator(stored.message)
        resumed.index = self._accumulator.index
        for part, (part_id, _) in zip(resumed.parts, stored.rows, strict=True):
            part.id = part_id
        last = stored.rows[-1][1] + 1 if stored.rows else 0
        self._accumulator = resumed
        self._current = Current(id, stored=True, offset=last - len(stored.rows))

    def _entry(self, change: Change, chunk: Mapping[str, Any], undo: list[tuple[Accumulator, Change]]) -> Entry:
        """Check the chunk's values, mint what it needs; on a bad value only this chunk is taken back."""
        try:
            if change.delta is not None and change.part is not None:
                return Entry(change, self._current, EPOCH, size=self._grow(change.part, change.delta))
            check(dict(chunk), "", self._runtime.limits)
        except PersistError:
            accumulator, last = undo.pop()
            accumulator.undo(last)
            raise
        now = self._runtime.clock()
        adopts = False
        if change.opened:
            self._current = Current(self._accumulator.message_id)
        elif self._current.id is None and self._accumulator.message_id:
            self._current.id, adopts = self._accumulator.message_id, True
        if change.appended is not None:
            if self._current.id is None:
                self._current.id = self._runtime.ids.mint("msg")
            change.appended.id = self._runtime.ids.mint("prt")
            change.appended.index += self._current.offset
        if change.type == ChunkType.START:
            self._current.started = True
        patch = chunk.get("messageMetadata") if change.metadata else None
        foreign = self._foreign.get(change.changed) if change.changed is not None else None
        return Entry(change, self._current, now, patch=patch, foreign_to=foreign, adopts=adopts)

    def _grow(self, part: PartState, delta: str) -> int:
        size = len(delta) if delta.isascii() else len(delta.encode("utf-8", "surrogatepass"))
        limit = self._runtime.limits.max_bytes
        if part.base + size > limit:
            raise PayloadTooLarge("delta", part.base + size, limit, advice="Keep large content in a file and store its reference.")
        part.base += size
        return size

    # -- writing

    def _keep(self, entries: list[Entry]) -> Steps:
        """Write now, or remember for later."""
        if not entries:
            return
        if self._due_now(entries):
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
        if self._options.buffer_ms and self._options.save_on == SaveOn.CHUNK and self._buffer_due is None:
            self._buffer_due = time.monotonic() + self._options.buffer_ms / 1000

    def _due_now(self, entries: list[Entry]) -> bool:
        save_on, options = self._options.save_on, self._options
        boundaries = {entry.change.boundary for entry in entries}
        if "finish" in boundaries or "abort" in boundaries or any(entry.change.error_text is not None for entry in entries):
            return True
        if save_on == SaveOn.STEP:
            return "step" in boundaries
        if save_on == SaveOn.TURN:
            return False
        if not options.buffered or any(entry.change.delta is None for entry in entries):
            return True
        waiting = self._pending.bytes + sum(entry.size for entry in entries)
        return 0 < options.buffer_bytes <= waiting

    def _write(self, draft: Draft, *, keep: Pending | None = None) -> Steps:
        """One transaction, then everything that follows from its being durable."""
        now = self._runtime.clock()
        flush = Flush(self._session_id, self._owner, now, epoch_ms(now))
        if not self._running:
            flush.begin, flush.takeover, flush.message_id = True, self._takeover, self._current.id
            flush.model = self._options.model_text
            if self._options.system_prompt is not None:
                flush.prompt = (digest_of(self._options.system_prompt), self._options.system_prompt)
        draft.fill(flush, self._tails, self._owned, self._options.metadata, self._runtime, self._fold_at)
        try:
            yield Job(flush.run, single=flush.delta_only())
        except PersistError as error:
            self._gone(error)
            raise
        self._takeover = False
        self._pending = keep if keep is not None else draft.rest
        self._settle(draft, flush)

    def _settle(self, draft: Draft, flush: Flush) -> None:
        now = time.monotonic()
        if flush.begin:
            self._running = True
            self._beat_due = now + turns.BEAT_SECONDS
        self._errored = self._errored or flush.failed
        if draft.end or draft.stop:
            self._running = False
            self._beat_due = None
        draft.acknowledge(self._tails)
        if not self._pending.bytes:
            self._buffer_due = None
        if not self._tails:
            self._fold_due = None
        elif self._fold_due is None:
            longest = max(part.base for part in self._tails)
            settings = self._runtime.settings
            share = max(1.0, longest / _UNFOLDED_SHARE / settings.fold_bytes)
            self._fold_due = now + settings.fold_ms / 1000 * share

    def _fold_at(self, part: PartState) -> int:
        return max(self._runtime.settings.fold_bytes, part.base // _UNFOLDED_SHARE)

    def _gone(self, error: BaseException) -> None:
        """After a lost turn, or a commit of unknown outcome, this state no longer tells what is stored."""
        lost = isinstance(error, Conflict) and error.constraint == "chat_turns" and self._running
        if lost or (isinstance(error, Unavailable) and error.outcome == "unknown"):
            self._end()

    def postpone(self) -> None:
        """A timed flush failed: its deadlines are tried again in a second."""
        later = time.monotonic() + 1.0
        self._buffer_due = later if self._buffer_due is not None else None
        self._fold_due = later if self._fold_due is not None else None
        self._beat_due = later if self._beat_due is not None else None

    def abandon(self) -> None:
        """Nothing more will be fed."""
        self._end()

    def _end(self) -> None:
        self.closed = True
        self._buffer_due = self._fold_due = self._beat_due = None
        turns.retire_owner(self._owner)


def digest_of(prompt: str) -> str:
    """sha256 of the prompt's UTF-8 text, in hex."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def _shrink(entry: Entry) -> None:
    if entry.change.part is not None:
        entry.change.part.base -= entry.size
