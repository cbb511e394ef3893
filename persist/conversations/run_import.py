"""Importing folders of runs as a runtime leaves them: one session per run, one transaction per session."""

import logging
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from persist.conversations.repository import Conversations
from persist.conversations.schemas import ImportReport, InvocationKind, SourceKind, Status
from persist.conversations.storage.lineage import POINTERS
from persist.db.values.arguments import check_label
from persist.db.values.clock import EPOCH
from persist.db.values.json import check, decode
from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted

_STATUSES: dict[str, Status] = {
    **{status.value: status for status in Status},
    "success": Status.COMPLETED,
    "error": Status.FAILED,
    "timeout": Status.TIMED_OUT,
    "canceled": Status.CANCELLED,
}
_EXIT_CODES = {0: Status.COMPLETED, 1: Status.FAILED, 124: Status.TIMED_OUT, 130: Status.ABORTED, 143: Status.CANCELLED}
_KINDS = {kind.value: kind for kind in InvocationKind}
_LABELS = {
    "agent_name": ("agent_name", "agent"),
    "playbook_name": ("playbook_name", "playbook"),
    "show_topic": ("show_topic",),
    "show_play_name": ("show_play_name",),
    "artifacts_path": ("artifacts_path", "artifact_root"),
    "user": ("user",),
    "name": ("name", "title"),
}
_INSTANTS = {
    "created_at": ("created_at", "timestamp", "ts"),
    "started_at": ("started_at",),
    "ended_at": ("ended_at", "finished_at"),
    "updated_at": ("updated_at",),
}
_PLAIN = ("content", "embedding", "role")
_ADDRESSES = ("sender", "recipient", "channel")


def status_of(manifest: Mapping[str, Any]) -> Status:
    """A run's status: the word in its manifest; without one, by its exit code; without either, COMPLETED."""
    word = manifest.get("status")
    if isinstance(word, str) and word.strip():
        return _STATUSES.get(word.strip().lower().replace("-", "_"), Status.COMPLETED)
    code = next((manifest[name] for name in ("exit_code", "exitCode", "returncode") if type(manifest.get(name)) is int), None)
    return Status.COMPLETED if code is None else _EXIT_CODES.get(code, Status.FAILED)


def manifest_columns(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a session that a manifest fills; other columns are missing."""
    columns: dict[str, Any] = {name: first_text(manifest, *spellings) for name, spellings in _LABELS.items()}
    for name, spellings in _INSTANTS.items():
        columns[name] = next((at for at in (instant(manifest.get(one)) for one in spellings) if at is not None), None)
    kind = first_text(manifest, "invocation_kind", "kind")
    columns["invocation_kind"] = None if kind is None else _KINDS.get(kind.lower().replace("_", "-"))
    return {name: value for name, value in columns.items() if value is not None}


def message_of(entry: Any, fallback: datetime) -> dict[str, Any] | None:
    """A message for `messages.put`, which checks its content; None if the entry is none. `fallback`: its instant by default."""
    if not isinstance(entry, dict):
        return None
    id = first_text(entry, "id")
    if id is None:
        return None
    message: dict[str, Any] = {name: entry.get(name) for name in _PLAIN}
    message |= {name: entry.get(name) or None for name in _ADDRESSES}
    metadata = entry.get("node_metadata", entry.get("metadata"))
    if isinstance(entry.get("lion_class"), str) and (metadata is None or isinstance(metadata, dict)):
        metadata = {"lion_class": entry["lion_class"], **(metadata or {})}
    at = entry.get("created_at")
    exact = isinstance(at, int | float) and instant(at) is not None
    return {**message, "id": id, "node_metadata": metadata, "created_at": at if exact else instant(at) or fallback}


def instant(value: object) -> datetime | None:
    """Seconds since 1970, or ISO 8601 text, UTC unless it says; None for what is neither."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            return EPOCH + timedelta(seconds=value)
    except (ValueError, OverflowError):
        pass
    return None


def first_text(holder: Mapping[str, Any], *names: str) -> str | None:
    """The first value that is text and valid as an identifier."""
    for name in names:
        value = holder.get(name)
        if isinstance(value, str) and value.strip():
            try:
                return check_label(name, value)
            except InvalidValue:
                continue
    return None


# Which files and spellings are read is in docs/conversations.md. Links below DIR are not followed: nothing outside is read.

log = logging.getLogger("persist")
MANIFEST, BRANCHES, SUFFIX = "run.json", "branches", ".json"
_CONFIGURATION = ("provider", "model", "effort")
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True)
class Run:
    """A manifest: the run's id, the columns of its session, and its facts about branches, by branch id."""

    id: str
    folder: Path
    status: Status
    columns: dict[str, Any]
    written_at: datetime
    branches: dict[str, Mapping[str, Any]]
    defaults: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunBranch:
    """A branch file: the columns of its row, its messages by id, and `order`, ids that are all among the messages."""

    id: str
    created_at: datetime
    columns: dict[str, Any]
    order: list[str]
    messages: dict[str, dict[str, Any]]
    system: str | None
    skipped: int
    """How many entries of the pile are not messages."""


def run_folders(runs_dir: str | os.PathLike[str]) -> list[Path]:
    """The folders with a manifest, sorted by name. Raises NotFound if DIR is no folder, NotPermitted if it cannot be read."""
    root = Path(runs_dir)
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
        return [root / entry.name for entry in entries if _is_run(entry)]
    except PermissionError as error:
        raise NotPermitted(f"{root}: {error.strerror}.") from error
    except (OSError, ValueError) as error:
        raise NotFound("folder", str(root)) from error


def read_run(folder: Path) -> Run:
    """The manifest of a run. Raises InvalidValue if it cannot be read."""
    manifest, written_at = _load(folder / MANIFEST)
    id = check_label("run id", first_text(manifest, "run_id", "id", "session_id") or folder.name)
    hints = manifest.get("branches")
    given = [one for one in hints if isinstance(one, dict)] if isinstance(hints, list) else []
    return Run(
        id=id,
        folder=folder,
        status=status_of(manifest),
        columns=manifest_columns(manifest),
        written_at=written_at,
        branches={str(one.get("id", one.get("branch_id"))): one for one in given},
        defaults=manifest,
    )


def read_branches(run: Run) -> Iterator[RunBranch]:
    """The run's branches, the first written first. A file that cannot be read is skipped with a warning."""
    folder = run.folder / BRANCHES
    if folder.is_symlink():
        log.warning("run %r: the folder %r is a symbolic link, which is not followed", run.id, BRANCHES)
        return
    for path in _branch_files(folder):
        try:
            branch = _branch(run, path.name, *_load(path))
        except InvalidValue as error:
            log.warning("run %r: the branch file %r is left out: %s", run.id, path.name, error.reason)
            continue
        if branch.skipped:
            log.warning("run %r: %d entries of %r are no messages", run.id, branch.skipped, path.name)
        yield branch


def _is_run(entry: os.DirEntry[str]) -> bool:
    if entry.is_symlink():
        log.warning("%r is a symbolic link, which is not followed", entry.name)
        return False
    return entry.is_dir() and os.path.lexists(Path(entry.path) / MANIFEST)


def _branch_files(folder: Path) -> list[Path]:
    try:
        found = [(path.lstat().st_mtime_ns, path.name, path) for path in folder.iterdir() if path.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidValue(BRANCHES, f"{error.strerror}.") from error
    return [path for *_, path in sorted(found)]


def _load(path: Path) -> tuple[dict[str, Any], datetime]:
    if path.is_symlink():
        raise InvalidValue(path.name, "a symbolic link is not followed.")
    try:
        with open(os.open(path, _OPEN), "rb") as file:  # opening a pipe must not wait for its writer
            status = os.fstat(file.fileno())
            content = file.read() if stat.S_ISREG(status.st_mode) else None
    except OSError as error:
        raise InvalidValue(path.name, f"{error.strerror}.") from error
    if content is None:
        raise InvalidValue(path.name, "it is no file.")
    try:
        value = decode(content)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(path.name, f"it is not JSON ({error}).") from error
    if not isinstance(value, dict):
        raise InvalidValue(path.name, "expected an object.")
    return value, instant(status.st_mtime) or EPOCH


def _branch(run: Run, file: str, data: Mapping[str, Any], written_at: datetime) -> RunBranch:
    """A branch from its file's object; its fields are in the object itself or under `branch`."""
    own = data.get("branch")
    about: Mapping[str, Any] = {**data, **own} if isinstance(own, dict) else data
    id = first_text(about, "id", "branch_id") or file.removesuffix(SUFFIX)
    created_at = instant(about.get("created_at")) or written_at
    pile, order = _pile(about)
    if pile is None:
        raise InvalidValue(file, "it has no messages.")
    messages, skipped = _messages(pile, created_at)
    system = message_of(about.get("system"), created_at)
    if system is not None:
        messages.setdefault(system["id"], system)
    listed = [id for id in map(_listed, order) if id in messages] or [*_ids(pile, messages)]
    hints = run.branches.get(id, {})
    columns = {
        "name": first_text(about, "name") or first_text(hints, "name"),
        "user": first_text(about, "user"),
        "node_metadata": _metadata(run, id, about, hints),
    }
    first_system = next((id for id in [*listed, *messages] if messages[id].get("role") == "system"), None)
    return RunBranch(id, created_at, columns, listed, messages, first_system, skipped)


def _pile(about: Mapping[str, Any]) -> tuple[list[Any] | None, list[Any]]:
    """The entries of the pile (None without a pile) and the order list (empty without one)."""
    held = next((about[name] for name in ("messages", "pile", "collections") if about.get(name) is not None), None)
    order = _order(about)
    if isinstance(held, dict):
        order = order or _order(held)
        names = ("collections", "collection", "pile", "messages", "items")
        inner = next((held[name] for name in names if isinstance(held.get(name), list | dict)), None)
        held = inner if inner is not None else {key: one for key, one in held.items() if key not in ("progression", "order")}
    if isinstance(held, dict):
        held = [{"id": key, **one} if isinstance(one, dict) else one for key, one in held.items()]
    return (held if isinstance(held, list) else None), order


def _order(holder: Mapping[str, Any]) -> list[Any]:
    for name in ("order", "progression"):
        value = holder.get(name)
        if isinstance(value, dict):
            value = next((value[inner] for inner in ("order", "collection") if isinstance(value.get(inner), list)), None)
        if isinstance(value, list) and value:
            return value
    return []


def _listed(item: Any) -> Any:
    value = item.get("id") if isinstance(item, dict) else item
    return value if isinstance(value, str) else None


def _messages(pile: list[Any], fallback: datetime) -> tuple[dict[str, dict[str, Any]], int]:
    read = [message_of(entry, fallback) for entry in pile]
    found = {message["id"]: message for message in read if message is not None}
    return found, sum(message is None for message in read)


def _ids(pile: list[Any], messages: Mapping[str, Any]) -> Iterator[str]:
    """Message ids in the pile's own order, used where there is no order list."""
    named = (_listed(entry) for entry in pile)
    return iter(dict.fromkeys(id for id in named if id in messages))


def _metadata(run: Run, branch: str, about: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, Any] | None:
    """The branch's metadata, with the configuration from it or the manifest, and fork pointers only if complete."""
    given = about.get("node_metadata", about.get("metadata"))
    metadata = dict(given) if isinstance(given, dict) else {}
    for name in _CONFIGURATION:
        said = first_text(hints, name) or first_text(about, name) or first_text(run.defaults, name)
        if said is not None:
            metadata.setdefault(name, said)
    parent, inherited = (metadata.pop(name, None) for name in POINTERS)
    if isinstance(parent, str) and parent not in ("", branch) and type(inherited) is int and inherited >= 0:
        metadata |= dict(zip(POINTERS, (parent, inherited), strict=True))
    try:
        check(metadata, "node_metadata")
    except InvalidValue as error:
        log.warning("run %r: the metadata of the branch %r is left out: %s", run.id, branch, error)
        return None
    return metadata or None


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
