"""The logs of a home folder: paths, safe names, and finding logs."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from persist.db.files import check_path, typed
from persist.db.values.clock import EPOCH
from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge, named, shown
from persist.sessionlog.envelope import Scope, SessionLogInfo, instant_of
from persist.sessionlog.reader import read_line

CHAT_SLUG = "-app"
"""The slug of the project of chat turns, whose working directory is /app."""
SUFFIX = ".jsonl"
SIDECHAIN = "agent-"
"""The prefix of session ids of an agent's sub-agents. Their logs can be read but are not listed."""
_MAX_NAME_BYTES = 255  # the limit of one name on common file systems
_SESSION_ID = re.compile("[A-Za-z0-9_-]+")


def slug_for_cwd(cwd: str | os.PathLike[str]) -> str:
    """The project slug of a working directory: each `/` becomes `-`, on Windows also `\\` and `:`. Two paths may share a slug."""
    return re.sub(r"[/\\:]" if sys.platform == "win32" else "/", "-", os.fspath(cwd))


def normalize_session_id(session_id: object) -> str | None:
    """The id itself if it can name a file (letters, digits, `_` and `-`), otherwise None."""
    return session_id if isinstance(session_id, str) and _SESSION_ID.fullmatch(session_id) else None


def is_safe_project_slug(slug: object) -> bool:
    """Whether the slug is the name of one folder directly below `projects`."""
    return _why_unsafe(slug) is None


def check_project_slug(slug: Any) -> str:
    """The slug. Raises InvalidValue unless it is safe, PayloadTooLarge if it is too long for a folder's name."""
    reason = _why_unsafe(slug)
    if reason is not None:
        raise InvalidValue("project_slug", reason)
    text = str(slug)
    _check_length("project_slug", text)
    return text


def check_home(home: Any) -> Path:
    """The folder above `projects` as a Path. Raises InvalidValue if it cannot be a path."""
    return check_path("home", home, reachable=False)


def session_log_path(home: str | os.PathLike[str], project_slug: str, session_id: str) -> Path:
    """The path of a session's log, which need not exist. Raises InvalidValue for an unsafe slug or id."""
    folder = check_home(home) / "projects" / check_project_slug(project_slug)
    if normalize_session_id(session_id) is None:
        raise InvalidValue(
            "session_id", f"{named(session_id)} may hold only letters, digits, '_' and '-', and must not be empty."
        )
    name = session_id + SUFFIX
    _check_length("session_id", name)
    return folder / name


def _check_length(path: str, name: str) -> None:
    size = len(os.fsencode(name))
    if size > _MAX_NAME_BYTES:
        raise PayloadTooLarge(path, size, _MAX_NAME_BYTES, advice="It names a file or a folder.")


def _why_unsafe(slug: object) -> str | None:
    if not isinstance(slug, str):
        return f"expected a string, got {type(slug).__name__}."
    if slug in ("", ".", ".."):
        return f"{slug!r} names no folder below `projects`."
    if os.path.basename(slug) != slug or os.path.splitdrive(slug)[0]:
        return f"{slug!r} is more than one folder; slug_for_cwd() makes a slug of a path."
    try:
        encoded = os.fsencode(slug)
    except UnicodeEncodeError:
        return f"{slug!r} holds half a character."
    return f"{slug!r} holds a NUL." if b"\0" in encoded else None


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
