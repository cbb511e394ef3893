"""Erasing the files of sessions below a home folder: their logs in every project, and the folders with those of subagents."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from persist.db.files.paths import files
from persist.sessionlog.listing import folders
from persist.sessionlog.paths import SUFFIX, check_home, normalize_session_id

_KIND = "session log"


def erase_session_logs(home: str | os.PathLike[str], session_ids: Iterable[str], *, dry_run: bool = False) -> int:
    """Delete the files of these sessions, in every project; how many. Ids that cannot name a file have none.

    No link is followed below a project's folder. Raises NotPermitted for a file that this process may not delete.
    """
    names = [id for id in session_ids if normalize_session_id(id) is not None]
    count = 0
    for folder in folders(check_home(home) / "projects"):
        for name in names:
            log, below = folder / (name + SUFFIX), folder / name
            for path in (log, *_below(below)):
                if not os.path.lexists(path) or (path.is_dir() and not path.is_symlink()):
                    continue
                count += 1
                if not dry_run:
                    with files(path, _KIND):
                        path.unlink(missing_ok=True)
            if not dry_run:
                _remove_folders(below)
    return count


def _below(folder: Path) -> Iterator[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return
    for parent, subfolders, names in os.walk(folder):
        links = [name for name in subfolders if os.path.islink(os.path.join(parent, name))]
        yield from (Path(parent) / name for name in sorted([*names, *links]))


def _remove_folders(folder: Path) -> None:
    if folder.is_symlink() or not folder.is_dir():
        return
    for parent, _, _ in os.walk(folder, topdown=False):
        with files(Path(parent), _KIND):
            os.rmdir(parent)
