"""Reading a whole log."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from persist.db.files.paths import check_path, typed
from persist.sessionlog.messages import messages_of
from persist.sessionlog.records import read_line
from persist.sessionlog.schemas import LogMessage
from persist.sessionlog.timestamps import instant_of, iso


def iter_session_log(path: str | os.PathLike[str]) -> Iterator[LogMessage]:
    """The messages of a log in the file's order, read line by line: at most the longest line is in memory.

    Blank, torn and broken lines are skipped. A last line without a line break counts if it is complete JSON. This call
    itself raises NotFound if there is no such file.
    """
    found = check_path("path", path)
    try:
        os.stat(found)
    except OSError as error:
        raise typed(error, found, "session log") from error
    return _messages(found)


def read_session_log(path: str | os.PathLike[str]) -> list[LogMessage]:
    """All messages of a log sorted by timestamp, those without one first. Equal timestamps keep the file's order."""
    found = [entry.msg for entry in iter_session_log(path)]
    return [LogMessage(index, msg) for index, msg in enumerate(sorted(found, key=_by_time))]


def _messages(path: Path) -> Iterator[LogMessage]:
    index = 0
    try:
        with open(path, "rb") as file:
            for line in file:  # lines of bytes end only at \n; lines of text would also end at \r
                for entry in read_line(line).records:
                    for message in messages_of(entry):
                        yield LogMessage(index, message)
                        index += 1
    except OSError as error:
        raise typed(error, path, "session log") from error


def _by_time(message: dict[str, Any]) -> str:
    """The sort key of a message: its instant as UTC text of fixed width; other timestamps sort as they are."""
    raw = message.get("timestamp")
    instant = instant_of(raw)
    if instant is not None:
        return iso(instant)
    return raw if isinstance(raw, str) else ""
