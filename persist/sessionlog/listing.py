"""Which logs there are."""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from persist.db.clock import EPOCH
from persist.db.paths import typed
from persist.errors import Conflict, InvalidValue, NotFound
from persist.quoting import shown
from persist.sessionlog.messages import parse
from persist.sessionlog.paths import CHAT_SLUG, SIDECHAIN, SUFFIX, check_home, normalize_session_id, session_log_path
from persist.sessionlog.schemas import Scope, SessionLogInfo
from persist.sessionlog.timestamps import instant_of

_LINES_TO_DATE = 20  # the first line has a timestamp, unless other programs wrote it


def list_session_logs(home: str | os.PathLike[str], *, scope: str = "all") -> list[SessionLogInfo]:
    """The logs below `<home>/projects`, the last written first. `scope` is "sandbox" (all but chat turns), "chat" or "all".

    Only the beginning of a file is read, for `started_at`: its first timestamp, or `modified_at` where there is none. Side
    chains (`agent-…`) are left out, and a home without logs is an empty list.
    """
    if scope not in list(Scope):
        raise InvalidValue("scope", f"{shown(scope)} is none of {', '.join(Scope)}.")
    found = []
    for folder in _folders(check_home(home) / "projects"):
        if scope == Scope.ALL or (folder.name == CHAT_SLUG) == (scope == Scope.CHAT):
            for path in _files(folder):
                if not path.name.startswith(SIDECHAIN):
                    with suppress(FileNotFoundError):  # removed since
                        found.append(_info(path))
    found.sort(key=lambda info: (info.project_slug, info.session_id))
    return sorted(found, key=lambda info: info.modified_at, reverse=True)


def find_session_log(home: str | os.PathLike[str], session_id: str, *, project_slug: str | None = None) -> SessionLogInfo:
    """The log of a session, side chains included. NotFound; Conflict if several projects have one and none is named."""
    if normalize_session_id(session_id) is None:
        session_log_path(home, CHAT_SLUG, session_id)  # says what is wrong with it
    if project_slug is not None:
        paths = [session_log_path(home, project_slug, session_id)]
    else:
        paths = [folder / (session_id + SUFFIX) for folder in _folders(check_home(home) / "projects")]
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


def _folders(projects: Path) -> list[Path]:
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
        entry = parse(line)
        instant = instant_of(entry.get("timestamp")) if entry is not None else None
        if instant is not None:
            yield instant
