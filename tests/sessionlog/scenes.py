"""What the tests of session logs share: a clock that stands, events, and files as their lines."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from persist.sessionlog import SessionLogWriter

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
NOW_TEXT = "2026-06-15T12:00:00.000Z"
AT_MS = 1_781_521_200_000
AT_TEXT = "2026-06-15T11:00:00.000Z"
SLUG = "-home-agent"


def clock() -> datetime:
    return NOW


def writer(home: Path, **options: Any) -> SessionLogWriter:
    """A writer with the standing clock and, unless told otherwise, without a prompt."""
    return SessionLogWriter(home, SLUG, **{"clock": clock} | options)


def event(type: str, session: Any = "s1", timestamp: Any = AT_MS, **fields: Any) -> dict[str, Any]:
    return {"type": type, "sessionId": session, "timestamp": timestamp, **fields}


def message(*blocks: Any, session: str = "s1", timestamp: Any = AT_MS, **fields: Any) -> dict[str, Any]:
    """The end of an assistant's message."""
    return event("message_end", session, timestamp, message={"role": "assistant", "content": list(blocks), **fields})


def text(value: str, **fields: Any) -> dict[str, Any]:
    """The end of a message of one text."""
    return message({"type": "text", "text": value}, **fields)


def call(id: Any = "t1", name: Any = "bash", **fields: Any) -> dict[str, Any]:
    """The end of a message that calls a tool."""
    return message({"type": "toolCall", "id": id, "name": name, **fields})


def log_path(home: Path, session: str = "s1") -> Path:
    return home / "projects" / SLUG / f"{session}.jsonl"


def lines(home: Path, session: str = "s1") -> list[Any]:
    """The lines of a log; every one must end and be JSON."""
    content = log_path(home, session).read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.decode().split("\n")[:-1]]


def contents(home: Path, session: str = "s1") -> list[Any]:
    """What the lines of a log say: text, or blocks."""
    return [line["message"]["content"] for line in lines(home, session)]


def said(value: str) -> list[dict[str, str]]:
    """The content of a message of one text."""
    return [{"type": "text", "text": value}]


class Watched(io.FileIO):
    """A file that notes what is written, and may take less, or nothing."""

    writes: list[bytes] = []  # noqa: RUF012  # what all of a test's files wrote
    takes: Iterator[Any] = iter(())

    def write(self, data: Any) -> int:
        maximum = next(Watched.takes, None)
        if isinstance(maximum, OSError):
            raise maximum
        part = bytes(data)[:maximum]
        Watched.writes.append(part)
        return super().write(part)


def fresh(folder: Path) -> Path:
    """A folder in it that has nothing yet, for a case of its own."""
    taken = len(list(folder.iterdir())) if folder.exists() else 0
    return folder / str(taken)
