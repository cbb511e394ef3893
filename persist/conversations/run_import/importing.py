"""Importing folders of runs: one session per run, one transaction per session."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from persist.conversations.repository import Conversations
from persist.conversations.run_import.run_folders import Run, RunBranch, read_branches, read_run, run_folders
from persist.conversations.schemas import ImportReport, SourceKind, Status
from persist.db.values.clock import EPOCH
from persist.errors import Conflict, InvalidValue, NotFound

log = logging.getLogger("persist")

T = TypeVar("T")
Outcome = Literal["imported", "skipped", "errors"]


class ConversationStore(Protocol):
    """The methods of a Store that an import calls."""

    def read(self) -> AbstractContextManager[Any]:
        """A snapshot."""

    def transact(self, fn: Callable[[Any], T]) -> T:
        """Run `fn` in a write transaction, again if another writer was in the way."""


class _TakenError(Exception):
    """Another import created the session first; this transaction is rolled back."""


def import_runs(
    store: ConversationStore, runs_dir: str | os.PathLike[str], *, progress: Callable[[int, int], object] | None = None
) -> ImportReport:
    """Import every run below a folder that is not in the store yet; a repeated import adds only new runs.

    The session has the run's id, and a run whose id is taken is skipped. Each run is one transaction: an import that is killed
    leaves whole runs, and the next one continues. A run whose manifest cannot be read, or that cannot be stored, counts as an
    error; a branch file or message that cannot be read or stored is left out. The logger `persist` warns of each.

    `progress(done, total)` is called before the first run and after each. Raises NotFound if there is no such folder.
    """
    folders = run_folders(runs_dir)
    counts: Counter[Outcome] = Counter()
    for done, folder in enumerate(folders):
        if progress is not None:
            progress(done, len(folders))
        counts[_import_folder(store, folder)] += 1
    if progress is not None:
        progress(len(folders), len(folders))
    return ImportReport(imported=counts["imported"], skipped=counts["skipped"], errors=counts["errors"])


def _import_folder(store: ConversationStore, folder: Path) -> Outcome:
    try:
        run = read_run(folder)
        with store.read() as tx:
            if _is_there(tx.conversations.sessions.get, run.id):
                return "skipped"
        branches = list(read_branches(run))  # outside of the transaction, which must be short
        store.transact(lambda tx: _write(tx.conversations, run, branches))
    except _TakenError:
        return "skipped"
    except (InvalidValue, Conflict) as error:
        log.warning("the run %r is not imported: %s", folder.name, error)
        return "errors"
    return "imported"


def _is_there(get: Callable[[str], object], id: str) -> bool:
    try:
        get(id)
    except NotFound:
        return False
    return True


def _write(conversations: Conversations, run: Run, branches: Sequence[RunBranch]) -> None:
    """Write messages first, since sessions and branches point at them. _TakenError if another import has the session."""
    shown = [_store_messages(conversations, run, branch) for branch in branches]
    pool = [id for order, _ in shown for id in order]
    pool_id = conversations.progressions.create(ids=list(dict.fromkeys(pool)))
    columns, last_message_at = _columns(run, branches)
    if pool:
        columns |= {"first_msg_id": pool[0], "last_msg_id": pool[-1]}
    session = conversations.sessions.create(
        id=run.id, progression_id=pool_id, source_kind=SourceKind.IMPORTED_FS, status=run.status, **columns
    )
    if session.progression_id != pool_id:
        raise _TakenError
    conversations.sessions.update(run.id, last_message_at=last_message_at, updated_at=columns["updated_at"])
    for branch, (order, system) in zip(branches, shown, strict=True):
        _write_branch(conversations, run, branch, order, system)


def _columns(run: Run, branches: Sequence[RunBranch]) -> tuple[dict[str, Any], Any]:
    """The session's columns, missing instants filled in from the files, and the instant of its last message."""
    columns = dict(run.columns)
    if run.status is Status.RUNNING:
        columns.pop("ended_at", None)
    spoken = [_spoken_at(branch.messages[id]["created_at"]) for branch in branches for id in branch.order]
    known = [columns[name] for name in ("created_at", "started_at", "ended_at") if name in columns] + spoken
    columns.setdefault("created_at", columns.get("started_at") or min(known, default=run.written_at))
    columns.setdefault("updated_at", max(known, default=run.written_at))
    if run.status is Status.RUNNING:
        columns.setdefault("started_at", columns["created_at"])
    return columns, max(spoken, default=columns.get("started_at"))


def _spoken_at(at: Any) -> Any:
    return EPOCH + timedelta(seconds=at) if isinstance(at, int | float) else at


def _store_messages(conversations: Conversations, run: Run, branch: RunBranch) -> tuple[list[str], str | None]:
    """Put messages that are not stored yet; return the branch's order and system message, without those refused."""
    wanted = dict.fromkeys([*branch.order, *([branch.system] if branch.system else [])])
    present = set(conversations.messages.get_many(list(wanted)))
    for id in wanted:
        if id not in present:
            try:
                conversations.messages.put(branch.messages[id])
            except InvalidValue as error:
                log.warning("run %r, branch %r: the message %r is left out: %s", run.id, branch.id, id, error)
            else:
                present.add(id)
    return [id for id in branch.order if id in present], branch.system if branch.system in present else None


def _write_branch(conversations: Conversations, run: Run, branch: RunBranch, order: list[str], system: str | None) -> None:
    fields: dict[str, Any] = {
        **branch.columns,
        "created_at": branch.created_at,
        "progression_id": conversations.progressions.create(ids=order),
        "system_msg_id": system,
    }
    if _is_there(conversations.branches.get, branch.id):
        # an earlier run already has the id of a branch that this run continued; both snapshots are kept
        fields["node_metadata"] = {**(fields["node_metadata"] or {}), "imported_branch_id": branch.id}
        conversations.branches.create(run.id, **fields)
    else:
        conversations.branches.create(run.id, id=branch.id, **fields)
