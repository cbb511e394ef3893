"""Following a log while it is written: every line once, in order, whatever moment the writer is at."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from persist.db.paths import check_path, typed
from persist.errors import InvalidValue
from persist.sessionlog.messages import parse
from persist.sessionlog.schemas import LogMessage

Stop = threading.Event | Callable[[], bool]

_CHUNK = 1 << 20  # bytes read, and at most handed out, at a time
_NAP = 0.1  # seconds after which a stop that is a function is asked again


def tail_session_log(
    path: str | os.PathLike[str], *, since_index: int = 0, poll: float = 0.5, stop: Stop | None = None
) -> Iterator[list[LogMessage]]:
    """Batches of lines, as they are stored: first what is there, then what is appended, looking every `poll` seconds.

    `index` counts the lines of the file from 0, blank and broken ones too, and `since_index` is the first one wanted; resume
    with the last index plus 1. Lines that hold no object are passed over. A line comes when its line break is there, never
    sooner. The first batch, and one for a growth without a whole line, may be empty; a long file comes in several.

    A missing file is waited for. A file that became shorter, or that another took the place of, starts again at index 0.
    When `stop` is set or returns True, what was written until then is still handed out, and the iteration ends; without it,
    it ends with the loop around it. NotPermitted and its like if the file cannot be read.
    """
    _check(since_index, poll)
    return _follow(_Followed(check_path("path", path), since_index), float(poll), stop)


def _follow(file: "_Followed", poll: float, stop: Stop | None) -> Iterator[list[LogMessage]]:
    first = True
    try:
        while True:
            stopping = _is_set(stop)  # asked before looking, so that what was written before it was set is not lost
            nothing = True
            for batch in file.batches():
                nothing = False
                yield batch
            if first and nothing:
                yield []
            first = False
            if stopping:
                return
            _wait(stop, poll)
    finally:
        file.close()


class _Followed:
    """A file and how far it was read. It stays open, so that its inode tells it from one that takes its place."""

    def __init__(self, path: Path, since_index: int) -> None:
        self._path = path
        self._since = since_index
        self._file: Any = None
        self._begin(since_index)

    def _begin(self, since_index: int) -> None:
        self._since = since_index
        self._offset = 0
        self._index = 0
        self._unfinished = bytearray()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def batches(self) -> Iterator[list[LogMessage]]:
        """What came since the last call; nothing when nothing did."""
        try:
            now = _identity(self._path)
            if self._file is not None:
                yield from self._grown()
                if now == _identity(self._file.fileno()):
                    return
                self.close()  # removed or replaced: its last lines are read, and a file of that name is another one
                self._begin(0)
            if now is not None:
                self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115  # it stays open between two looks
                yield from self._grown()
        except FileNotFoundError:
            return  # removed between two of our steps
        except OSError as error:
            raise typed(error, self._path, "session log") from error

    def _grown(self) -> Iterator[list[LogMessage]]:
        size = os.fstat(self._file.fileno()).st_size
        if size < self._offset:
            self._begin(0)
            self._file.seek(0)
            if size == 0:
                yield []
        while chunk := self._file.read(_CHUNK):
            self._offset += len(chunk)
            yield self._lines(chunk)

    def _lines(self, chunk: bytes) -> list[LogMessage]:
        """The lines that end in this chunk. Bytes are kept, not text: a chunk may end inside of a character."""
        *ended, rest = chunk.split(b"\n")
        found = []
        for line in ended:
            if self._unfinished:
                line = bytes(self._unfinished) + line
                self._unfinished.clear()
            if self._index >= self._since:
                entry = parse(line)
                if entry is not None:
                    found.append(LogMessage(self._index, entry))
            self._index += 1
        self._unfinished += rest
        return found


def _check(since_index: Any, poll: Any) -> None:
    if isinstance(since_index, bool) or not isinstance(since_index, int) or since_index < 0:
        raise InvalidValue("since_index", "an integer from 0 on is required.")
    if isinstance(poll, bool) or not isinstance(poll, int | float) or not 0 < poll < threading.TIMEOUT_MAX:
        raise InvalidValue("poll", "a number of seconds above 0 is required.")


def _identity(file: Path | int) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_set(stop: Stop | None) -> bool:
    if stop is None:
        return False
    return stop.is_set() if isinstance(stop, threading.Event) else bool(stop())


def _wait(stop: Stop | None, seconds: float) -> None:
    if isinstance(stop, threading.Event):
        stop.wait(seconds)
        return
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not _is_set(stop):
        time.sleep(min(left, _NAP))
