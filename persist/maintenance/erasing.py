"""Erasing a person: items that a name finds go, in steps that go on after a kill, and a report tells the counts."""

import hmac
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from sqlalchemy import and_, delete

from persist.db.dialects.backends import operations_of
from persist.db.operations.bounded_deletion import in_the_way
from persist.db.operations.erasing import SELECTORS, Erasable, in_parts, unlogged
from persist.db.transactions.snapshots import left_alone, settled
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import Progress, check_flag, required_label
from persist.db.values.clock import as_utc
from persist.db.values.frozen import Value
from persist.errors import Conflict, InvalidValue, NotPermitted, PersistError, StoreCorrupt
from persist.events import erasing as log
from persist.maintenance import erasure_marks as marks
from persist.maintenance.backups import empty_log, rewrite
from persist.maintenance.erasure_marks import EVENTS_ASIDE, Mark, Part, copies_of, elsewhere_of, look_again
from persist.maintenance.erasure_plans import TABLES, Plan, kinds, planned
from persist.maintenance.quarantine import quarantine
from persist.maintenance.steps import Run, running
from persist.sessionlog.session_files import ErasedLogs, check_log_folder, erase_session_logs
from persist.store.store import Store

# The report of an erasure: what went and what stayed, in numbers, signed so that it can be shown later.

HMAC, DIGEST = "hmac-sha256", "sha256"


class EraseReport(Value):
    """What an erasure removed, or with `dry_run` would remove. Beside the selectors it has numbers only.

    selectors    by what the person was named
    begun_at     when the erasure began; for one that was interrupted, when it began first
    tables       row counts by table, without zeros
    events       how many events of the log lost what they said
    files        how many session logs, and folders of their subagents, were deleted
    kept         what was found and stays: how many, by the reason
    algorithm    "hmac-sha256", with the key of the caller, or "sha256" without one
    signature    of all other fields, in hexadecimal digits; see `verify_report`
    """

    id: str
    selectors: dict[str, str]
    begun_at: datetime
    finished_at: datetime
    dry_run: bool
    tables: dict[str, int]
    events: int
    files: int
    kept: dict[str, int]
    algorithm: str
    signature: str

    @property
    def total(self) -> int:
        """The number of rows in all tables."""
        return sum(self.tables.values())


def report_of(done: Mark, *, finished_at: datetime, trial: bool, key: bytes | None) -> EraseReport:
    """The signed report of an erasure."""
    report = EraseReport(
        id=done.id,
        selectors=done.selectors,
        begun_at=done.begun_at,
        finished_at=finished_at,
        dry_run=trial,
        tables={name: count for name, count in sorted(done.rows.items()) if count},
        events=done.events,
        files=done.files,
        kept=dict(sorted(done.kept.items())),
        algorithm=DIGEST if key is None else HMAC,
        signature="",
    )
    return report.model_copy(update={"signature": _signature(report, key)})


def verify_report(report: EraseReport | Mapping[str, Any] | str | bytes, key: str | bytes | None = None) -> bool:
    """Whether a report is as it was signed. `report`: the value, its fields, or its JSON. `key`: the one that it was signed with.

    Without a key only the digest of a report that has no other signature is compared, which anybody can make anew. A report with
    a signature is not verified without its key, nor one with a digest alone by a key. Nor is one with a wrong `total`, with a
    name twice, or with a value of another type than it was signed with. Raises InvalidValue for what is no report.
    """
    checked = sign_key_of(key)
    found, exact = _report_of(report)
    if not exact or found.algorithm != (DIGEST if checked is None else HMAC):
        return False
    return hmac.compare_digest(found.signature.encode("utf-8", "surrogatepass"), _signature(found, checked).encode())


def sign_key_of(key: object) -> bytes | None:
    """The key as bytes. Raises InvalidValue unless it is text or bytes that are not empty; the key is not repeated."""
    if key is None:
        return None
    if isinstance(key, str):
        key = key.encode("utf-8", "surrogatepass")
    if not isinstance(key, bytes):
        raise InvalidValue("sign_key", f"expected text or bytes, got {type(key).__name__}.")
    if not key:
        raise InvalidValue("sign_key", "it is empty.")
    return key


def _report_of(report: object) -> tuple[EraseReport, bool]:
    """The report, and whether the given data say the same and nothing else."""
    if isinstance(report, EraseReport):
        return report, True
    names: list[list[str]] = []
    try:
        fields: Any = json.loads(report, object_pairs_hook=partial(_noted, names)) if isinstance(report, str | bytes) else report
        if not isinstance(fields, Mapping):
            raise InvalidValue("report", "expected the report of an erasure.")
        found = EraseReport(**{name: value for name, value in fields.items() if name != "total"})
        given = json.dumps(dict(fields), sort_keys=True, default=to_jsonable_python)
    except (ValidationError, ValueError, TypeError, RecursionError) as error:
        raise InvalidValue("report", "expected the report of an erasure.") from error
    total = {"total": found.total} if "total" in fields else {}
    same = given == json.dumps({**found.model_dump(mode="json"), **total}, sort_keys=True)
    return found, same and all(len(set(of)) == len(of) for of in names)


def _noted(names: list[list[str]], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names.append([name for name, _ in pairs])
    return dict(pairs)


def _signature(report: EraseReport, key: bytes | None) -> str:
    fields = report.model_dump(mode="json", exclude={"signature"})
    text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return sha256(text).hexdigest() if key is None else hmac.new(key, text, sha256).hexdigest()


# Erases what belongs to a person: written down first, then in bounded transactions, so that a kill leaves nothing undone.

T = TypeVar("T")
_STREAMS = 200
_NAMES = ("owner", "user_id")
"""The selectors whose words name a person, who may be the actor of events."""
_LOGS = f"erasures with session logs: {marks.NAME_FOLDER}; until they are deleted, the erasure stays unfinished"
_BESIDE = "entries beside session logs: links, or files that are no logs, look at them below HOME/projects"


def erase(
    store: Store,
    *,
    owner: str | None = None,
    session_id: str | None = None,
    user_id: str | None = None,
    namespace: str | None = None,
    dry_run: bool = False,
    session_logs: str | Path | None = None,
    sign_key: str | bytes | None = None,
    progress: Progress | None = None,
) -> EraseReport:
    """Erase all that belongs to a person, in every domain, with its events; docs/erasing.md says what each selector finds.

    Several selectors add up. What was written before the call is erased; what is written under another name or later stays. First
    it is written down what goes; a killed erasure is finished by the next call, or by `maintain`. On a file the bytes are
    overwritten, and the file is rewritten. `dry_run`: the same counts, and nothing is changed. `session_logs`: the folder above
    `projects`, where logs of erased sessions are deleted, also for interrupted erasures; where that fails, `kept` says so and the
    erasure stays unfinished. `sign_key`: what the report is signed with, by default PERSIST_REPORT_KEY. `progress`: called with
    what is being erased, how many steps are done, and how many there are. Unknown names give a report of zeros. Raises
    InvalidValue without a selector, and NotFound if `session_logs` is no folder.
    """
    given = {"owner": owner, "session_id": session_id, "user_id": user_id, "namespace": namespace}
    selectors = {name: required_label(name, given[name]) for name in SELECTORS if given[name] is not None}
    if not selectors:
        raise InvalidValue("owner", "say who is to be erased: owner, session_id, user_id or namespace.")
    trial, folder = check_flag("dry_run", dry_run), None if session_logs is None else check_log_folder(session_logs)
    key = sign_key_of(sign_key)
    if key is None and store.runtime.settings.report_key is not None:
        key = store.runtime.settings.report_key.get_secret_value().encode()
    if not trial:
        for mark in unfinished(store).marks:
            if mark.selectors != selectors and not (mark.only_logs and folder is None):
                with suppress(PersistError):  # it stays unfinished, which `doctor` says
                    Erasure(store, mark, folder=folder).finish()
    with running(store, trial=trial) as run:
        plan = run(partial(planned, selectors=selectors, trial=trial), writes=False)
        mark = run(partial(_begin, selectors=selectors, plan=plan, logs=folder is not None))
        done = Erasure(store, mark, trial=trial, folder=folder, tell=progress).run(run)
    return report_of(done, finished_at=as_utc("clock", store.runtime.clock()), trial=trial, key=key)


def continue_erasures(store: Store) -> tuple[Counter[str], list[PersistError]]:
    """Finish interrupted erasures, but for session logs; how many rows they erased, by table, and why some are not done."""
    rows: Counter[str] = Counter()
    failed: list[PersistError] = []
    for mark in unfinished(store).marks:
        if not mark.only_logs:
            try:
                erasure = Erasure(store, mark)
                rows.update(erasure.finish().rows)
                failed += [Conflict(f"{n:,} {what}.", constraint=what.split(":")[0]) for what, n in erasure.kept().items()]
            except PersistError as error:
                failed.append(error)
    left = unfinished(store)
    waiting = sum(mark.only_logs for mark in left.marks)
    if waiting:
        failed.append(NotPermitted(f"{waiting} erasures have session logs left to delete: {marks.NAME_FOLDER}."))
    if left.damaged:
        failed.append(StoreCorrupt("_meta", marks.DAMAGED))
    return rows, failed


def unfinished(store: Store) -> marks.Unfinished:
    """The erasures that were interrupted."""
    with running(store, trial=False) as run:
        return run(marks.unfinished, writes=False)


def _begin(work: UnitOfWork, *, selectors: Mapping[str, str], plan: Plan, logs: bool) -> Mark:
    """Write the plan down: in the mark of an interrupted erasure by the same selectors, or in a new mark."""
    same = [mark for mark in marks.unfinished(work).marks if mark.selectors == selectors]
    mark = same[0] if same else Mark(work.runtime.ids.mint("ers"), dict(selectors), work.now(), role=marks.role(work))
    mark.logs, mark.only_logs = mark.logs or logs, False
    parts = [part for one in same[:1] for part in marks.parts(work, one.id)]
    marks.open_shared(work, mark, parts)
    known = {(part.kind, key) for part in parts for key in part.things}
    mark.add(found=plan.kept)  # instead of what an interrupted one found
    marks.begin(work, mark, marks.split(plan, known))
    return mark


@dataclass(slots=True)
class Erasure:
    """Carries out a mark's plan. Each step is a transaction that also counts in the mark, and may be repeated."""

    store: Store
    mark: Mark
    trial: bool = False
    folder: Path | None = None
    """The caller's folder above `projects`; None: session logs wait until a caller names it."""
    tell: Progress | None = None
    referred: Counter[str] = field(default_factory=Counter)
    """The number of other programs' rows that keep items from being erased, by name."""

    def kept(self) -> dict[str, int]:
        """The numbers of rows that must be deleted first, by table."""
        return {f"{name}: delete these, then `persist maintain` goes on": count for name, count in self.referred.items()}

    def finish(self) -> Mark:
        """Carry out the erasure outside of a trial."""
        with running(self.store, trial=False) as run:
            return self.run(run)

    def run(self, run: Run) -> Mark:
        """Carry out every step; what has been done in all."""
        kept: dict[str, int] = {}
        more, only_logs = True, self.mark.only_logs
        while more:
            self.referred.clear()
            keys: Sequence[str] = run(partial(marks.part_keys, id=self.mark.id), writes=False)
            if not only_logs:
                keys = self._erase(run, keys)
                self._tell("what the database has freed", len(keys) + 2, keys)
                kept = {} if self.trial else rewrite(self.store)
            logs = self._delete_logs(run)
            finish = partial(marks.finish, id=self.mark.id, parts=keys, logs=logs is not None, rest=not kept)
            # None: another process, such as one that maintains, was faster
            done, more = (self.mark, False) if self.referred else self.step(run, finish)
            only_logs = False
        done = done or self.mark
        left = {_LOGS: int(done.logs)} if logs is None else {_BESIDE: logs.left}
        done.add(kept={**kept, **self.kept(), **left})
        if not self.trial:
            done.add(found=empty_log(self.store))  # what was written down names the person
        return done

    def _tell(self, what: str, done: int, keys: Sequence[str]) -> None:
        """A step per part, then the rows of other writers, the log, and the freed pages."""
        if self.tell is not None:
            self.tell(what, done, len(keys) + 3)

    def _erase(self, run: Run, keys: Sequence[str]) -> Sequence[str]:
        """Erase these parts, and rows that others wrote during the erasure; the keys of all parts."""
        written = 0
        parts = self._parts(run)
        shared = {part.key for part in parts if not self._kind(part).by}
        late = [key for key in keys if key not in shared]
        done = self._erase_rows(run, late, 0, keys)
        self._tell("what others are writing", done, keys)
        if not self.trial:
            late, written = look_again(run, self.store, self.mark.id, late, self.mark.selectors)
            while late:
                keys = [*keys, *late]
                done = self._erase_rows(run, late, done, keys)
                late, _ = look_again(run, self.store, self.mark.id, late, {})
        # last: what the others delete names these no more
        self._erase_rows(run, [key for key in keys if key in shared], done + 1, keys)
        parts = self._parts(run)
        for part in parts:
            if self._kind(part).has_files:
                self.step(run, partial(self._kind(part).delete_files, keys=part.things))
        self._tell("the log of events", len(keys) + 1, keys)
        self._out_of_log(run, parts, written)
        names = sorted({name for by, name in self.mark.selectors.items() if by in _NAMES})
        if names:
            while self.step(run, partial(self._blank_actors, names=names)):
                pass
        self.step(run, partial(self._out_of_quarantine, parts=parts))
        return keys

    def _parts(self, run: Run) -> list[Part]:
        return [part for part in run(partial(marks.parts, id=self.mark.id), writes=False) if part.kind != marks.SESSIONS]

    def _erase_rows(self, run: Run, chosen: Sequence[str], done: int, keys: Sequence[str]) -> int:
        """Erase some of the parts; how many parts are done then."""
        for number, key in enumerate(chosen, done):
            self._tell("rows", number, keys)
            at: int | None = 0
            while at is not None:
                at = self.step(run, partial(self._erase_some, key=key, at=at))
            self._erase_rows(run, self.step(run, partial(self._erase_part, key=key)), number, keys)
        return done + len(chosen)

    def _delete_logs(self, run: Run) -> ErasedLogs | None:
        """Delete the logs of erased sessions in the caller's folder; None if they stay."""
        if self.folder is None:
            return None
        parts = run(partial(marks.parts, id=self.mark.id), writes=False)
        sessions = [id for part in parts if part.kind == marks.SESSIONS for (id,) in part.things]
        try:
            erased = erase_session_logs(self.folder, sessions, dry_run=self.trial)
        except PersistError:
            return None
        if erased.files:
            self.step(run, lambda work: self._count(work, files=erased.files))
        return erased

    def step(self, run: Run, step: Callable[[UnitOfWork], T]) -> T:
        before = self.mark

        def overwriting(work: UnitOfWork) -> T:
            self.mark = before  # what an attempt that was not committed has counted counts no more
            leave = operations_of(work.runtime.dialect).overwrite_deleted(work.select)
            try:
                return step(work)
            finally:
                leave()

        return run(overwriting)

    def _count(self, work: UnitOfWork, **counts: Any) -> None:
        mark = marks.mark_of(work, self.mark.id)
        if mark is not None:
            mark.add(**counts)
            marks.keep(work, mark)
            self.mark = mark

    def _kind(self, part: Part) -> Erasable:
        return kinds(trial=self.trial)[part.kind]

    def _erase_some(self, work: UnitOfWork, *, key: str, at: int) -> int | None:
        part = marks.part_of(work, key)
        if part is None or part.upto is not None or part.kind == marks.SESSIONS:
            return None
        gone, following = Counter[str](), None  # of what another program's row keeps `_erase_part` tells
        with unlogged(work), left_alone(work, part.key, only_referred=True):
            gone, following = settled(work, self._kind(part).erase_some(work, part.things, at))
        if gone:
            self._count(work, rows=gone)
        return following

    def _erase_part(self, work: UnitOfWork, *, key: str) -> Sequence[str]:
        """Erase a part; the keys of the parts into which it was split, because another program's row keeps an item."""
        part = marks.part_of(work, key)
        if part is None or part.upto is not None or part.kind == marks.SESSIONS:
            return ()
        kind, erased = self._kind(part), None
        with unlogged(work), left_alone(work, key, only_referred=True) as references:
            erased = settled(work, kind.erase(work, part.things))
        if erased is None:
            if len(part.things) > 1:
                return marks.take_apart(work, self.mark.id, part)
            of = and_(*(kind.table.c[name] == cell for name, cell in zip(kind.key, part.things[0], strict=True)))
            self.referred += in_the_way(work, references, [*TABLES.values()], kind.table, of)
            return ()
        if erased.more:
            marks.add(work, self.mark.id, [(part.kind, erased.more)])
        if erased.then is not None:
            erased.then(work)
            work.store_events()
        if erased.rows.total() and not self.trial:  # on a server other writers would wait for the end of the trial
            log.say_erased(work, kind.streams(part.things))
        marks.deleted(work, part, erased, log.last_position(work))
        self._count(work, rows=erased.rows, kept=erased.kept)
        return ()

    # -- the event log

    def _out_of_log(self, run: Run, parts: Sequence[Part], written: int) -> None:
        """Take these parts out of the log: from their own streams also events of other writers, up to the position `written`."""
        own: dict[bool, list[Part]] = {True: [], False: []}
        for part in parts:
            kind = self._kind(part)
            own[bool(kind.by) and not kind.own_streams].append(part)
            upto = max(part.upto or 0, written)
            for streams in in_parts(kind.streams(part.things), _STREAMS):
                if kind.survivors:
                    there = partial(log.that_are_there, tables={name: TABLES[name] for name in kind.survivors})
                    self._thin(run, log.in_streams(streams), upto, there, others=True)
                else:
                    while self.step(run, partial(self._blank_some, streams=streams, upto=upto)):
                        pass
        self._out_of_shared_streams(run, own[True], written)
        self._out_of_shared_streams(run, own[False], 0)

    def _out_of_shared_streams(self, run: Run, parts: Sequence[Part], written: int) -> None:
        erased = elsewhere_of(parts)
        if erased:
            upto = max(written, *(part.upto or 0 for part in parts))
            where = log.streams_of([TABLES[name] for name in erased])
            self._thin(run, where, upto, lambda work: log.without(erased), others=False)

    def _blank_some(self, work: UnitOfWork, *, streams: Sequence[str], upto: int) -> int:
        blanked = log.blank_some(work, streams, upto)
        if blanked:
            self._count(work, events=blanked)
        return blanked

    def _blank_actors(self, work: UnitOfWork, *, names: Sequence[str]) -> int:
        blanked, more = log.blank_some_actors(work, names)
        if more:
            self._count(work, events=more)
        return blanked

    def _thin(self, run: Run, where: log.Condition, upto: int, kept: Callable[[UnitOfWork], log.Kept], *, others: bool) -> None:
        def some(work: UnitOfWork, *, after: int) -> int:
            last, changed = log.thin_some(work, where, after, upto, kept(work), others=others)
            if changed:
                self._count(work, events=changed)
            return last

        after = 0
        while after < upto:
            after = self.step(run, partial(some, after=after))

    # -- beside the tables

    def _out_of_quarantine(self, work: UnitOfWork, *, parts: Sequence[Part]) -> None:
        found = copies_of(work, parts, self.mark.selectors)
        copies = in_parts(sorted(found.groups), _STREAMS)
        gone = sum(work.change(delete(quarantine).where(quarantine.c.group_id.in_(part))) for part in copies)
        if gone or found.events:
            self._count(work, rows={quarantine.name: gone}, found={EVENTS_ASIDE: found.events})
