"""Reading a log from its beginning to its end."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from persist.db.paths import check_path, typed
from persist.sessionlog.messages import messages_of, parse
from persist.sessionlog.schemas import LogMessage
from persist.sessionlog.timestamps import instant_of, iso


def iter_session_log(path: str | os.PathLike[str]) -> Iterator[LogMessage]:
    """The messages in the order of the file, one at a time: no more of it is in memory than its longest line.

    Blank, torn and broken lines are passed over; a last line without its line break counts if it is whole. NotFound at once
    if there is no such file.
    """
    found = check_path("path", path)
    try:
        os.stat(found)
    except OSError as error:
        raise typed(error, found, "session log") from error
    return _messages(found)


def read_session_log(path: str | os.PathLike[str]) -> list[LogMessage]:
    """All messages by their timestamps, those without one first; where these are equal, the file's order stays."""
    found = [entry.msg for entry in iter_session_log(path)]
    return [LogMessage(index, msg) for index, msg in enumerate(sorted(found, key=_by_time))]


def _messages(path: Path) -> Iterator[LogMessage]:
    index = 0
    try:
        with open(path, "rb") as file:
            for line in file:  # of bytes, which end at line breaks and at nothing else
                entry = parse(line)
                if entry is not None:
                    for message in messages_of(entry):
                        yield LogMessage(index, message)
                        index += 1
    except OSError as error:
        raise typed(error, path, "session log") from error


def _by_time(message: dict[str, Any]) -> str:
    """The instant in the one form whose text sorts right; what is no instant sorts by what it says."""
    raw = message.get("timestamp")
    instant = instant_of(raw)
    if instant is not None:
        return iso(instant)
    return raw if isinstance(raw, str) else ""
