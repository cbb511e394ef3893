"""The folders of session logs that an erasure empties, as its mark keeps them: who goes on must reach the same one."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from persist.db.files.paths import typed
from persist.errors import NotFound, PersistError
from persist.sessionlog.erasing import erase_session_logs
from persist.sessionlog.paths import check_home


class LogFolder(NamedTuple):
    """A folder above `projects`, and its file numbers: at a path may be another folder, on another machine or without a mount."""

    path: str
    home: int
    projects: int | None
    """The number of `projects`; None if it was not there."""


def log_folder(home: str | os.PathLike[str]) -> LogFolder:
    """What a mark keeps of a folder that a caller names. Raises NotFound unless it is one, and NotPermitted."""
    path = Path(os.path.abspath(check_home(home)))
    if not path.is_dir():
        raise NotFound("folder", str(path))
    return _folder_at(path)


def is_reached(folder: LogFolder) -> bool:
    """Whether the folder is where it was, as far as this process sees."""
    try:
        found = _folder_at(Path(folder.path))
    except PersistError:
        return False
    return found.home == folder.home and folder.projects in (None, found.projects)


def with_folder(known: Sequence[LogFolder], new: LogFolder | None) -> list[LogFolder]:
    """The folders of a mark after another call. A folder that it names takes the place of those that are not reached."""
    if new is None:
        return list(known)
    return [*(one for one in known if one.path != new.path and is_reached(one)), new]


def erase_logs(folder: LogFolder, sessions: Sequence[str], *, dry_run: bool) -> int | None:
    """Delete the logs of these sessions; how many files. None if the folder is not reached, or a file could not be deleted."""
    if not is_reached(folder):
        return None
    try:
        return erase_session_logs(folder.path, sessions, dry_run=dry_run)
    except PersistError:
        return None


def _folder_at(path: Path) -> LogFolder:
    try:
        home = path.stat()
        try:
            projects = (path / "projects").stat().st_ino
        except FileNotFoundError:
            projects = None
    except OSError as error:
        raise typed(error, path, "folder") from None
    return LogFolder(str(path), home.st_ino, projects)
