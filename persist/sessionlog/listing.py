"""Listing and finding the logs of a home folder."""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from persist.db.files.paths import typed
from persist.db.values.clock import EPOCH
from persist.errors import Conflict, InvalidValue, NotFound
from persist.quoting import shown
from persist.sessionlog.paths import CHAT_SLUG, SIDECHAIN, SUFFIX, check_home, normalize_session_id, session_log_path
from persist.sessionlog.records import read_line
from persist.sessionlog.schemas import Scope, SessionLogInfo
from persist.sessionlog.timestamps import instant_of

_LINES_TO_DATE = 20  # lines searched for a timestamp; the first has one unless another program wrote it


def list_session_logs(home: str | os.PathLike[str], *, scope: str = "all") -> list[SessionLogInfo]:
    """The logs below `<home>/projects`, last written first. `scope`: "sandbox" (all but chat turns), "chat" or "all".

    Only a file's first lines are read, for `started_at`: the first timestamp, or `modified_at` if there is none. Side chains
    (`agent-…`) are left out. A home without logs gives an empty list.
    """
    if scope not in list(Scope):
        raise InvalidValue("scope", f"{shown(scope)} is none of {', '.join(Scope)}.")
    found = []
    for folder in folders(check_home(home) / "projects"):
        if scope == Scope.ALL or (folder.name == CHAT_SLUG) == (scope == Scope.CHAT):
            for path in _files(folder):
                if not path.name.startswith(SIDECHAIN):
                    with suppress(FileNotFoundError):  # removed since
                        found.append(_info(path))
    found.sort(key=lambda info: (info.project_slug, info.session_id))
    return sorted(found, key=lambda info: info.modified_at, reverse=True)


def find_session_log(home: str | os.PathLike[str], session_id: str, *, project_slug: str | None = None) -> SessionLogInfo:
    """The log of a session, also of a side chain. Raises NotFound, Conflict if several projects have one and no slug is given."""
    if normalize_session_id(session_id) is None:
        session_log_path(home, CHAT_SLUG, session_id)  # says what is wrong with it
    if project_slug is not None:
        paths = [session_log_path(home, project_slug, session_id)]
    else:
        paths = [folder / (session_id + SUFFIX) for folder in folders(check_home(home) / "projects")]
    found = []
    for path in paths:
        with suppress(FileNotFoundError):
            if path.is_file():
                found.append(_info(path))
    if not found:
        raise NotFound("session log", session_id)
    if len(found) > 1:
        slugs = ", ".join(info.project_slug for info in found)
        raise Conflict(f"The session {session_id!r} has a log in several projects ({slugs}); name one.")
    return found[0]


def folders(projects: Path) -> list[Path]:
    """The folders of the projects, sorted; none if there is no such folder."""
    return sorted(path for path in _entries(projects) if path.is_dir())


def _files(folder: Path) -> Iterator[Path]:
    for path in _entries(folder):
        if path.name.endswith(SUFFIX) and normalize_session_id(path.name.removesuffix(SUFFIX)) is not None and path.is_file():
            yield path


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise typed(error, folder, "session log") from error


def _info(path: Path) -> SessionLogInfo:
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            modified_at = EPOCH + timedelta(microseconds=found.st_mtime_ns // 1000)
            started_at = next(_instants(islice(file, _LINES_TO_DATE)), modified_at)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise typed(error, path, "session log") from error
    return SessionLogInfo(path.name.removesuffix(SUFFIX), path.parent.name, path, started_at, modified_at, found.st_size)


def _instants(lines: Iterator[bytes]) -> Iterator[datetime]:
    for line in lines:
        for entry in read_line(line).records:
            instant = instant_of(entry.get("timestamp"))
            if instant is not None:
                yield instant
