"""The files of one session below a home folder: its log, and the logs of subagents below `<session>/subagents`; erasing them.

Beside a subagent's log may be a `.meta.json` with what is known of the subagent. persist stores the file as the last entry of its
part, of type `agent_metadata`, like programs that mirror logs.
"""

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_IFLNK, S_ISDIR, S_ISREG
from typing import Any, NamedTuple

from persist.db.files import check_path, files, make_private, private_opener, replace
from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted, named
from persist.sessionlog import listing
from persist.sessionlog.reader import read_line

Entry = dict[str, Any]
METADATA = "agent_metadata"
_METADATA_SUFFIX = ".meta.json"
_HALF = re.compile("[\ud800-\udfff]")
_KIND = "session log"


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """What the files of a session hold: the entries of each part, by its path below the session's folder ("" for the log)."""

    project_slug: str
    session_id: str
    parts: Mapping[str, Sequence[Entry]]
    skipped: int = 0
    """How many lines were torn or broken."""


def read_session_files(
    home: str | os.PathLike[str], session_id: str, *, project_slug: str | None = None, subagents: bool = True
) -> SessionFiles:
    """Every entry of a session's files, exactly as written. Torn and broken lines are skipped, and counted.

    Raises NotFound, and Conflict if several projects have such a session and no slug is given. `subagents` False: only the log.
    """
    info = listing.find_session_log(home, session_id, project_slug=project_slug)
    folder = info.path.with_suffix("")
    paths = {"": info.path}
    if subagents:
        paths |= {
            path.relative_to(folder).as_posix().removesuffix(listing.SUFFIX): path for path in _logs_below(folder / "subagents")
        }
    parts, skipped = {}, 0
    for subpath, path in paths.items():
        with files(path, _KIND), open(path, "rb") as file:
            found = [read_line(line, exact=True) for line in file]  # lines of bytes end only at \n
        parts[subpath] = [entry for line in found for entry in line.records]
        skipped += sum(line.torn for line in found)
        if subpath and (metadata := _metadata(path)) is not None:
            parts[subpath].append(metadata)
    return SessionFiles(info.project_slug, session_id, parts, skipped)


def write_session_files(home: str | os.PathLike[str], session: SessionFiles, *, overwrite: bool = False) -> list[Path]:
    """Write a session's files as `read_session_files` reads them, each whole or not at all; the paths written.

    Raises Conflict, before anything is written, if one is there already and not `overwrite`. Files are for their owner alone.
    """
    log = listing.session_log_path(check_path("home", home), session.project_slug, session.session_id)
    contents: dict[Path, str] = {}
    for subpath, entries in session.parts.items():
        path = log if not subpath else _part_path(log.with_suffix(""), subpath)
        lines = [entry for entry in entries if not subpath or entry.get("type") != METADATA]
        if lines:
            contents[path] = "".join(f"{_text(entry)}\n" for entry in lines)
        if len(lines) < len(entries):
            last = [entry for entry in entries if entry.get("type") == METADATA][-1]
            metadata = {key: value for key, value in last.items() if key != "type"}
            contents[path.with_name(path.name.removesuffix(listing.SUFFIX) + _METADATA_SUFFIX)] = _text(metadata)
    there = [path for path in contents if os.path.lexists(path)]
    if there and not overwrite:
        raise Conflict(f"{named(str(there[0]))} is there already; it may hold more than what would replace it.")
    for path, text in contents.items():
        with files(path, _KIND):
            make_private(path.parent)
            draft = path.with_name(f".{path.name}.{os.getpid()}.part")
            try:
                with open(draft, "w", encoding="utf-8", newline="\n", opener=private_opener) as file:
                    file.write(text)
                replace(draft, path)
            except BaseException:
                with suppress(OSError):
                    draft.unlink()
                raise
    return list(contents)


def _text(entry: Entry) -> str:
    """The JSON text of an entry: UTF-8 has no lone surrogate halves, so they are escaped."""
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def _metadata(log: Path) -> Entry | None:
    path = log.with_name(log.name.removesuffix(listing.SUFFIX) + _METADATA_SUFFIX)
    with files(path, _KIND):
        try:
            found = read_line(path.read_bytes(), exact=True).records
        except FileNotFoundError:
            return None
    return {**found[0], "type": METADATA} if len(found) == 1 else None


def _logs_below(folder: Path) -> Iterator[Path]:
    with files(folder, _KIND):
        try:
            entries = sorted(folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            yield from _logs_below(entry)
        elif entry.name.endswith(listing.SUFFIX) and entry.is_file():
            yield entry


def _part_path(folder: Path, subpath: str) -> Path:
    """The file of a part. Raises InvalidValue for a path that would lead out of the folder, on whatever system."""
    steps = re.split(r"[\\/]", subpath)
    if any(step in ("", ".", "..") or "\0" in step or ":" in step for step in steps):
        raise InvalidValue("subpath", f"{named(subpath)} is no path below a session's folder.")
    path = folder.joinpath(*steps)
    return path.with_name(path.name + listing.SUFFIX)


_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_JUNCTION = 0xA0000003
_OF_SUBAGENTS = re.compile(r".+\.jsonl|.+\.meta\.json|\..+\.(jsonl|meta\.json)\.[0-9]+\.part", re.DOTALL)
"""The names of files below the folder of a session: subagents' logs, facts about subagents, and drafts of either."""


class ErasedLogs(NamedTuple):
    """How many files were deleted, and how many entries with the names of these sessions stay, since they are no session logs."""

    files: int
    left: int


def check_log_folder(home: str | os.PathLike[str]) -> Path:
    """The folder above `projects`. Raises NotFound unless it is one, NotPermitted if its `projects` is a link."""
    path = Path(os.path.abspath(listing.check_home(home)))
    if not path.is_dir():
        raise NotFound("folder", str(path))
    projects = path / "projects"
    if projects.is_symlink():
        raise NotPermitted(f"{named(str(projects))} is a link, which is not followed: name the folder in which `projects` is.")
    return path


def erase_session_logs(home: str | os.PathLike[str], session_ids: Iterable[str], *, dry_run: bool = False) -> ErasedLogs:
    """Delete the files of these sessions, in every project. Ids that cannot name a file have none.

    Raises NotFound and NotPermitted as `check_log_folder`, and NotPermitted for a file that this process may not delete.
    """
    names = [id for id in dict.fromkeys(session_ids) if listing.normalize_session_id(id) is not None]
    count = left = 0
    for project in _entries(check_log_folder(home) / "projects"):
        if not listing.is_safe_project_slug(project.name) or not _is_folder(project):
            continue
        for name in names:
            for path, shaped in (*_own(project / (name + listing.SUFFIX)), *_below(project / name)):
                if not shaped:
                    left += 1
                    continue
                count += 1
                if not dry_run:
                    with files(path, _KIND):
                        path.unlink(missing_ok=True)
            if not dry_run:
                _remove_empty(project / name)
    return ErasedLogs(count, left)


def _own(path: Path) -> Iterator[tuple[Path, bool]]:
    mode = _mode(path)
    if mode is not None:
        yield path, S_ISREG(mode)


def _below(path: Path) -> Iterator[tuple[Path, bool]]:
    """What is in the folder of a session and below it, but for the folders; a link or a file instead of the folder, too."""
    mode = _mode(path)
    if mode is None:
        return
    if not S_ISDIR(mode):
        yield path, False
        return
    for entry in _entries(path):
        if _is_folder(entry):
            yield from _below(entry)
        elif (found := _mode(entry)) is not None:
            yield entry, S_ISREG(found) and _OF_SUBAGENTS.fullmatch(entry.name) is not None


def _remove_empty(folder: Path) -> None:
    if not _is_folder(folder):
        return
    for entry in _entries(folder):
        _remove_empty(entry)
    if not _entries(folder):
        with files(folder, _KIND):
            folder.rmdir()


def _entries(folder: Path) -> list[Path]:
    if not _is_folder(folder):
        return []
    with files(folder, _KIND):
        return sorted(folder.iterdir())


def _is_folder(path: Path) -> bool:
    mode = _mode(path)
    return mode is not None and S_ISDIR(mode)


def _mode(path: Path) -> int | None:
    """What is at the path, without following a link; None if nothing is, or can be."""
    with files(path, _KIND):
        try:
            found = path.lstat()
        except OSError as error:
            if error.errno in _NOTHING:
                return None
            raise
    # on Windows a folder may lead elsewhere, too
    return S_IFLNK if getattr(found, "st_reparse_tag", 0) == _JUNCTION else found.st_mode
