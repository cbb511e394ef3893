"""The periodic maintenance job: small repairs, trimming of windowed tables, and retention as set in the settings."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

from persist.chat.recording.resume import Sweep, old_before
from persist.chat.storage.turns import clear_dead
from persist.conversations.storage.progressions import fold_some as fold_some_progressions
from persist.db.dialects.backends import operations_of
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import Progress, check_flag
from persist.db.values.frozen import Value
from persist.errors import PersistError, ReadOnlyTransaction
from persist.maintenance.erasing import continue_erasures, unfinished
from persist.maintenance.pruning import Policy, collect_blobs, policies, prune
from persist.maintenance.steps import running, tried_on
from persist.store.store import Store
from persist.telemetry.windows import STATUS_LOG, TOOL_HISTORY, USAGE_SAMPLES

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
        return MaintenanceReport(dry_run=dry_run, steps=list(_steps(stage, dry_run, progress)))


def _steps(store: Store, trial: bool, progress: Progress | None) -> Iterator[MaintenanceStep]:
    works = _works(store, trial)
    for number, (name, do) in enumerate(works):
        if progress is not None:
            progress(name, number, len(works))
        yield _step(store, name, do)


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
