"""Erases the files of sessions below a home folder. Ids are not trusted: only session logs go, and no link is followed."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_IFLNK, S_ISDIR, S_ISREG
from typing import NamedTuple

from persist.db.files import files
from persist.errors import NotFound, NotPermitted, named
from persist.sessionlog.listing import SUFFIX, check_home, is_safe_project_slug, normalize_session_id

_KIND = "session log"
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
    path = Path(os.path.abspath(check_home(home)))
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
    names = [id for id in dict.fromkeys(session_ids) if normalize_session_id(id) is not None]
    count = left = 0
    for project in _entries(check_log_folder(home) / "projects"):
        if not is_safe_project_slug(project.name) or not _is_folder(project):
            continue
        for name in names:
            for path, shaped in (*_own(project / (name + SUFFIX)), *_below(project / name)):
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
