"""Values and vocabularies of session logs."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any


class Fsync(StrEnum):
    """When a writer calls fsync."""

    NEVER = "never"
    BATCH = "batch"
    CLOSE = "close"


class Scope(StrEnum):
    """Which projects to list: those of sandboxed agents, the one of chat turns, or both."""

    ALL = "all"
    SANDBOX = "sandbox"
    CHAT = "chat"


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message of a log. `index` counts from 0: messages when reading, lines of the file when tailing."""

    index: int
    msg: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SessionLogInfo:
    """A log file: where it is, its size in bytes, its first timestamp and its last write as aware UTC datetimes."""

    session_id: str
    project_slug: str
    path: Path
    started_at: datetime
    modified_at: datetime
    size: int
