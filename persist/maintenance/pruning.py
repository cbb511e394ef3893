"""Deletes old finished rows in batches. Each batch is checked again and deleted in one transaction."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from persist.blobs.repository import remove_body
from persist.blobs.upkeep import GRACE, UnnamedBlobs, garbage, is_orphan, orphans
from persist.chat.recording.resume import Sweep, old_before
from persist.chat.storage.turns import clear_dead
from persist.conversations.pruning import SESSION_PRUNINGS
from persist.conversations.schemas import PruneReport as ConversationsPruned
from persist.conversations.storage.progressions import fold_some as fold_some_progressions
from persist.db.dialects.backends import operations_of
from persist.db.operations.bounded_deletion import in_the_way
from persist.db.operations.pruning import BATCH, MOST_CANDIDATES, Cut, Pruning, Removed
from persist.db.statements.prepared import Row
from persist.db.transactions.snapshots import chains, left_alone, settled
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.excerpts import left_out
from persist.db.values.arguments import Progress, check_count, check_flag, check_timedelta
from persist.db.values.clock import as_utc, instant_before
from persist.db.values.frozen import Value
from persist.domains import upkeeps
from persist.errors import InvalidValue, PersistError, ReadOnlyTransaction, shown
from persist.maintenance.erasing import continue_erasures, unfinished
from persist.maintenance.steps import Run, Trial, framed, running, tried_on
from persist.schema.metadata import metadata
from persist.settings import Settings
from persist.store.store import Store
from persist.store.transaction import work_of
from persist.telemetry.windows import STATUS_LOG, TOOL_HISTORY, USAGE_SAMPLES

PRUNINGS: Mapping[str, Sequence[Pruning]] = MappingProxyType(
    {
        **{name: upkeep.prunings for name, upkeep in sorted(upkeeps().items()) if upkeep.prunings},
        "blobs": (UnnamedBlobs(metadata.sorted_tables),),  # last: what the others delete names no blob any more
    }
)
"""The prunable tables of each domain, in pruning order."""
_GARBAGE = garbage(metadata.sorted_tables)
BODIES = "bodies without a row"
"""What `collect_blobs` counts beside the rows of tables."""


class PruneReport(Value):
    """What a prune removed, or with `dry_run` would remove: row counts by table, without zeros."""

    what: str
    before: datetime
    keep: int
    dry_run: bool
    tables: dict[str, int]
    files: list[str]
    """Files that removed rows named, as "RUN: PATH" below the run's folder. They are left where they are."""
    kept: dict[str, int]
    """How many rows of other programs' tables refer to rows that stay for them, by table and column."""

    @property
    def total(self) -> int:
        """The number of rows in all tables."""
        return sum(self.tables.values())


def prune(
    store: Store,
    table_or_domain: str,
    *,
    older_than: timedelta | datetime,
    keep: int = 0,
    dry_run: bool = False,
    progress: Callable[[int], object] | None = None,
) -> PruneReport:
    """Delete finished rows older than an age or an instant. Rows that are running, waiting or in use stay.

    `table_or_domain`: one of `prunable()`. `keep`: this many of the newest stay at any age; for telemetry, per instance. Each
    batch is its own transaction, so other writers can write in between, and a killed prune can be run again. `dry_run`: prune a
    copy of the file; on a server count in a snapshot, or where that cannot tell, roll the transaction back. The counts are exact.
    `progress`: called with the number of rows after every batch, unless rows are only counted. Raises InvalidValue for an unknown
    name, a negative age or `keep`.
    """
    prunings = _named(table_or_domain)
    cut = Cut(_before(store, older_than), check_count("keep", keep), check_flag("dry_run", dry_run))
    counted = _tally(store, prunings, cut)
    removed = _removed(store, prunings, cut, progress) if counted is None else counted
    tables = {name: count for name, count in sorted(removed.rows.items()) if count}
    kept = dict(sorted(removed.kept.items()))
    report = {"what": table_or_domain, "before": cut.before, "keep": cut.keep, "dry_run": dry_run}
    return PruneReport(**report, tables=tables, files=removed.files, kept=kept)


def collect_blobs(store: Store, *, dry_run: bool) -> Removed:
    """Delete blobs that no message names any more, a day after their last put, and bodies without a row (rows of BODIES)."""
    cut = Cut(_before(store, GRACE), trial=dry_run)
    bodies: Any = store.bodies if isinstance(store, Trial) else store.runtime.blob_store
    counted = _tally(store, [_GARBAGE], cut)
    removed = counted or Removed()
    with running(store, trial=dry_run) as run:
        for digest in [] if bodies is None else orphans(bodies, cut.before):
            one = partial(is_orphan, digest=digest) if dry_run else partial(remove_body, store=bodies, digest=digest)
            removed.rows[BODIES] += run(one, writes=not dry_run)
        for batch in _batches(run, _GARBAGE, cut, prepare=False) if counted is None else ():
            removed.add(batch)
    return removed


def prune_conversations(store: Store, *, keep_days: int, keep_n: int, dry_run: bool = False) -> ConversationsPruned:
    """Prune as `tx.conversations.sessions.prune` does, in transactions of a few thousand messages, so that others can write."""
    days = timedelta(days=min(check_count("keep_days", keep_days), timedelta.max.days))
    cut = Cut(_before(store, days), check_count("keep_n", keep_n), check_flag("dry_run", dry_run))
    counted = _tally(store, SESSION_PRUNINGS, cut)
    removed = _removed(store, SESSION_PRUNINGS, cut, None) if counted is None else counted
    return ConversationsPruned(**{name: removed.rows[name] for name in ConversationsPruned.model_fields})


def prunable() -> list[str]:
    """Return the names that `prune` accepts: every domain, followed by its tables that can be pruned alone."""
    names = [name for domain, prunings in PRUNINGS.items() for name in (domain, *(one.table.name for one in prunings))]
    return list(dict.fromkeys(names))  # a table may have the name of its domain


def _named(name: str) -> Sequence[Pruning]:
    if name in PRUNINGS:
        return PRUNINGS[name]
    found = [one for prunings in PRUNINGS.values() for one in prunings if one.table.name == name]
    if not found:
        raise InvalidValue("table_or_domain", f"{shown(name)} is none of {', '.join(prunable())}.")
    return found


def _before(store: Store, older_than: object) -> datetime:
    now = as_utc("clock", store.runtime.clock())
    if isinstance(older_than, datetime):
        at = as_utc("older_than", older_than)
        if at > now:
            raise InvalidValue("older_than", "an instant in the future would be a negative age.")
        return at
    return instant_before(now, check_timedelta("older_than", older_than))


def _removed(store: Store, prunings: Sequence[Pruning], cut: Cut, progress: Callable[[int], object] | None) -> Removed:
    removed = Removed()
    with running(store, trial=cut.trial) as run:
        for pruning in prunings:
            for batch in _batches(run, pruning, cut, prepare=not store.runtime.dialect.one_writer):
                removed.add(batch)
                if progress is not None:
                    progress(removed.rows.total())
    return removed


def _tally(store: Store, prunings: Sequence[Pruning], cut: Cut) -> Removed | None:
    """What a trial on a server would remove, counted in one snapshot without a lock; None if only the trial itself can tell."""
    if not cut.trial or store.runtime.dialect.one_file:
        return None
    removed = Removed()
    with store.begin():  # sends nothing; refused where a prune would be
        pass
    with store.read() as tx:
        work = work_of(tx)
        work.transaction.may_be_long = True
        if chains(work):
            return None
        for number, pruning in enumerate(prunings):
            counted = framed(work, partial(pruning.tally, cut=cut, earlier=prunings[:number]))
            if counted is None:
                return None
            removed.add(counted)
    return removed


def _batches(run: Run, pruning: Pruning, cut: Cut, *, prepare: bool) -> Iterator[Removed]:
    last: Row | None = None
    while True:
        found = run(partial(pruning.next_candidates, cut=cut, after=last), writes=False)
        if prepare and found and last is None:
            run(pruning.prepare)  # a transaction without a lock that anybody waits for
        for some in pruning.batches(found):
            yield from _removals(run, pruning, cut, some)
        if not found or len(found) + left_out(found) < MOST_CANDIDATES:
            return
        last = found[-1]


def _removals(run: Run, pruning: Pruning, cut: Cut, found: Sequence[Row]) -> Iterator[Removed]:
    """Delete a batch in as many transactions as it takes; row by row where a candidate cannot be read or bound, which stays."""
    while found:
        removed = run(partial(_remove, pruning=pruning, cut=cut, found=found))
        if isinstance(removed, Counter):
            yield Removed(kept=removed)
            for row in found if len(found) > 1 else ():
                yield from _removals(run, pruning, replace(cut, begun=cut.begun and row is found[0]), [row])
            return
        yield removed
        for start in range(0, len(removed.followers), BATCH):
            yield from _followed(run, pruning, removed.followers[start : start + BATCH])
        found, cut = removed.rest, replace(cut, begun=removed.begun)


def _followed(run: Run, pruning: Pruning, followers: Sequence[Any]) -> Iterator[Removed]:
    def follow(work: UnitOfWork) -> Removed | None:
        with left_alone(work, f"{len(followers)} rows that {pruning.table.name} referred to") as references:
            return settled(work, pruning.follow(work, followers))
        if not references or pruning.follows is None or len(followers) > 1:
            return None
        (key,) = pruning.follows.primary_key
        return Removed(kept=in_the_way(work, references, metadata.sorted_tables, pruning.follows, key == followers[0]))

    removed = run(follow)
    if removed is not None:
        yield removed
    for one in followers if removed is None and len(followers) > 1 else ():
        yield from _followed(run, pruning, [one])


def _remove(work: UnitOfWork, pruning: Pruning, cut: Cut, found: Sequence[Row]) -> Removed | Counter[str]:
    """The removed rows; or, for a single candidate, how many rows of other programs keep it."""
    with left_alone(work, f"a batch of {len(found)} from {pruning.table.name}") as references:
        return settled(work, pruning.remove(work, cut, found))
    if references and len(found) == 1:
        return in_the_way(work, references, metadata.sorted_tables, pruning.table, pruning.condition_of(found[0]))
    return Counter()


@dataclass(frozen=True, slots=True)
class Policy:
    """Prune finished rows of a domain that are older than `older_than`, except the newest `keep`."""

    domain: str
    older_than: timedelta
    keep: int


def policies(settings: Settings) -> list[Policy]:
    """Return a policy for each domain whose `<domain>_keep_days` is set. Rows of other domains are kept for ever."""
    found = []
    for domain in PRUNINGS:
        days: float | None = getattr(settings, f"{domain}_keep_days")
        if days is not None:
            found.append(Policy(domain, timedelta(days=days), getattr(settings, f"{domain}_keep_last")))
    return found


Chore = Callable[[UnitOfWork], int]
"""Works on one batch and returns the number of rows; 0 when nothing is left."""


class MaintenanceStep(Value):
    """One step of a run: the number of rows by table. `error`: why the step ended early."""

    name: str
    tables: dict[str, int]
    error: str | None


class MaintenanceReport(Value):
    """Every step, in order. After a `dry_run` no change remains."""

    dry_run: bool
    steps: list[MaintenanceStep]

    @property
    def failed(self) -> bool:
        """Whether a step ended early."""
        return any(step.error is not None for step in self.steps)


def maintain(store: Store, *, dry_run: bool = False, progress: Progress | None = None) -> MaintenanceReport:
    """Fold text of dead writers, remove their turns, trim windowed tables, prune by the settings, optimize the database.

    Safe to run beside writers and beside another maintain(). Apart from dead turns, and files that no message names any more, it
    deletes only rows beyond the windows' sizes, unless `<domain>_keep_days` is set or an erasure was interrupted, which it
    finishes. A failed step does not stop the others. With `dry_run`, each step runs on a copy of the file, or on a server in a
    transaction that is rolled back. `progress`: called before each step with its name, how many are done, and how many there are.
    """
    check_flag("dry_run", dry_run)
    if store.runtime.read_only:
        raise ReadOnlyTransaction("maintain()")
    store.runtime.check_process()
    with tried_on(store) if dry_run else nullcontext(store) as stage:
        steps, works = [], _works(stage, dry_run)
        for number, (name, do) in enumerate(works):
            if progress is not None:
                progress(name, number, len(works))
            steps.append(_step(stage, name, do))
    return MaintenanceReport(dry_run=dry_run, steps=steps)


def _works(store: Store, trial: bool) -> list[tuple[str, Callable[[Counter[str]], None]]]:
    """The steps, by name, in their order."""
    before = old_before(store.runtime.clock())
    chores: dict[str, dict[str, Chore]] = {
        "fold tails": {"chat_parts": Sweep(before).fold_batch},
        "clear dead turns": {"chat_turns": clear_dead},
        "fold progressions": {"progressions": fold_some_progressions},
        "trim windows": {window.name: window.trim_some for window in (STATUS_LOG, USAGE_SAMPLES, TOOL_HISTORY)},
    }
    works: list[tuple[str, Callable[[Counter[str]], None]]]
    works = [(name, partial(_until_done, store, by_table, trial)) for name, by_table in chores.items()]
    works.append(("collect blobs", lambda done: done.update(collect_blobs(store, dry_run=trial).rows)))
    works += [(f"prune {policy.domain}", partial(_prune, store, policy, trial)) for policy in policies(store.runtime.settings)]
    if not trial:
        found = unfinished(store)
        if found.marks or found.damaged:
            works.append(("finish erasures", partial(_finish_erasures, store)))
        works.append(("tidy the database", lambda _: operations_of(store.runtime.dialect).tidy()))
    return works


def _step(store: Store, name: str, do: Callable[[Counter[str]], None]) -> MaintenanceStep:
    done: Counter[str] = Counter()
    error: str | None = None
    try:
        do(done)
    except Exception as failure:
        ours = store.runtime.translate(failure)
        if not isinstance(ours, PersistError):
            raise
        error = str(ours)
    return MaintenanceStep(name=name, tables={table: count for table, count in done.items() if count}, error=error)


def _until_done(store: Store, by_table: dict[str, Chore], trial: bool, done: Counter[str]) -> None:
    with running(store, trial=trial) as run:
        for table, chore in by_table.items():
            while count := run(chore):
                done[table] += count


def _finish_erasures(store: Store, done: Counter[str]) -> None:
    rows, failed = continue_erasures(store)
    done.update(rows)
    if failed:
        raise failed[0]


def _prune(store: Store, policy: Policy, trial: bool, done: Counter[str]) -> None:
    done.update(prune(store, policy.domain, older_than=policy.older_than, keep=policy.keep, dry_run=trial).tables)
