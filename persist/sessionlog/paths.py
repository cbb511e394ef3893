"""Paths of logs, `<home>/projects/<slug>/<session>.jsonl`, and which slugs and session ids are safe in them."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from persist.db.files.paths import check_path
from persist.errors import InvalidValue, PayloadTooLarge
from persist.quoting import named

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
