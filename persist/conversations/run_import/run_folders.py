"""Reads folders of runs as a runtime leaves them, and prepares them for storing; without a database.

    DIR/<run>/run.json                 the manifest, an object; a folder without one is no run
    DIR/<run>/branches/<branch>.json   a branch: its pile of messages, and the order in which it shows them

Which spellings are read is in docs/conversations.md. What a file does not say, or says in a form that cannot be stored, is
left out. Symbolic links below DIR are not followed, so that nothing from outside of it is read.
"""

import logging
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from persist.conversations.run_import.run_fields import first_text, instant, manifest_columns, message_of, status_of
from persist.conversations.schemas import Status
from persist.conversations.storage.lineage import POINTERS
from persist.db.values.arguments import check_label
from persist.db.values.clock import EPOCH
from persist.db.values.json import check, decode
from persist.errors import InvalidValue, NotFound, NotPermitted

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
    """The JSON object in a file, and when the file was written."""
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
    """The id in an item of an order list: the item itself, or its field."""
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
