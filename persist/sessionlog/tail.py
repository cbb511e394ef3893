"""Following a log while it is written: every complete line once, in order."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from persist.db.files.paths import check_path, typed
from persist.errors import InvalidValue
from persist.sessionlog.records import read_line
from persist.sessionlog.schemas import LogMessage

Stop = threading.Event | Callable[[], bool]

_CHUNK = 1 << 20  # bytes in one read, and so in one batch
_STOP_POLL = 0.1  # seconds between two calls of a stop function


def tail_session_log(
    path: str | os.PathLike[str], *, since_index: int = 0, poll: float = 0.5, stop: Stop | None = None
) -> Iterator[list[LogMessage]]:
    """Batches of stored lines: first the existing ones, then appended ones, checking the file every `poll` seconds.

    `index` counts the file's lines from 0, blank and broken ones included. `since_index` is the first line to yield; to resume,
    pass the last index plus 1. Lines without a JSON object are skipped, and the objects of one line have one index. A line is
    yielded once its line break is written. A long file comes in several batches. A batch may be empty: the first one, or after
    growth without a complete line.

    A missing file is waited for. If the file gets shorter or is replaced, it is read again from index 0. When `stop` is set or
    returns True, lines written until then are still yielded, then the iteration ends. Without `stop` it never ends by itself.
    Raises NotPermitted or another PersistError if the file cannot be read.
    """
    _check(since_index, poll)
    return _follow(_FollowedFile(check_path("path", path), since_index), float(poll), stop)


def _follow(file: "_FollowedFile", poll: float, stop: Stop | None) -> Iterator[list[LogMessage]]:
    first = True
    try:
        while True:
            stopping = _is_set(stop)  # checked before reading, so that lines written before it was set are not lost
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


class _FollowedFile:
    """A file and how far it was read. It stays open, so that its inode distinguishes it from a file that replaces it."""

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
        """Batches of lines appended since the last call."""
        try:
            identity = _identity(self._path)
            if self._file is not None:
                yield from self._appended_batches()
                if identity == _identity(self._file.fileno()):
                    return
                self.close()  # removed or replaced; its last lines have been read
                self._begin(0)
            if identity is not None:
                self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115  # it stays open between reads
                yield from self._appended_batches()
        except FileNotFoundError:
            return  # removed since its identity was read
        except OSError as error:
            raise typed(error, self._path, "session log") from error

    def _appended_batches(self) -> Iterator[list[LogMessage]]:
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
        """The lines that end in this chunk. The unfinished line is kept as bytes: a chunk may end inside a character."""
        *ended, unfinished = chunk.split(b"\n")
        found = []
        for line in ended:
            if self._unfinished:
                line = bytes(self._unfinished) + line
                self._unfinished.clear()
            if self._index >= self._since:
                found += [LogMessage(self._index, entry) for entry in read_line(line).records]
            self._index += 1
        self._unfinished += unfinished
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
        time.sleep(min(left, _STOP_POLL))
