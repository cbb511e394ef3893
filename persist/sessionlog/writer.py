"""The writer of session logs: events in, lines out, one append for each batch."""

import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from persist.db.files import make_private, private_opener, sync_file, typed
from persist.db.values.arguments import check_keywords, spells_keywords
from persist.db.values.clock import Clock, as_utc, system_clock
from persist.errors import Closed, InvalidValue, PersistError, shown
from persist.sessionlog import envelope
from persist.sessionlog.listing import check_home, check_project_slug, session_log_path

# The file is opened for each append: a removed one is created again, and a forked child shares nothing. Appends to local files
# are not interleaved, except on Windows, where writers use a lock.

if sys.platform == "win32":
    import msvcrt

_TRIES = 5
_PAUSE = 0.002  # seconds, more than another process's write takes
_LOCK_POSITION = 2**31 - 2


def append(path: Path, data: bytes, *, sync: bool) -> None:
    """Append the bytes, with `sync` to the disk, after a line break where a killed writer left none. Raises a PersistError."""
    try:
        with _opened(path) as file, _windows_lock(file):
            is_new = os.fstat(file.fileno()).st_size == 0
            if not is_new and not _ends_with_a_line(file):
                data = b"\n" + data
            unwritten = memoryview(data)
            while unwritten:
                unwritten = unwritten[file.write(unwritten) :]
            if sync:
                sync_file(file.fileno())
        if sync and is_new:
            _sync_folders(path)
    except OSError as error:
        raise typed(error, path, "session log") from error


def sync(path: Path) -> None:
    """Fsync the file and its folders. Raises a PersistError."""
    try:
        with open(path, "r+b", buffering=0) as file:
            sync_file(file.fileno())
        _sync_folders(path)
    except OSError as error:
        raise typed(error, path, "session log") from error


def _opened(path: Path) -> FileIO:
    try:
        return open(path, "a+b", buffering=0, opener=private_opener)
    except FileNotFoundError:
        make_private(path.parent)
        return open(path, "a+b", buffering=0, opener=private_opener)


@contextmanager
def _windows_lock(file: FileIO) -> Iterator[None]:
    """Hold the log's lock on Windows. It is on a byte past the end of any log, because locked bytes cannot be read."""
    if sys.platform == "win32":
        _lock(file)
        try:
            yield
        finally:
            file.seek(_LOCK_POSITION)
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        yield


def _lock(file: FileIO) -> None:
    """Wait for the lock on Windows. Other writers hold it for one append; a process that dies releases it."""
    if sys.platform == "win32":
        file.seek(_LOCK_POSITION)
        while True:
            with suppress(PermissionError):
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                return
            time.sleep(_PAUSE)


def _ends_with_a_line(file: FileIO) -> bool:
    """Whether the file ends with a line break. If not, another process may be writing: retry while the file grows."""
    for _ in range(_TRIES):
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return True
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return True
        time.sleep(_PAUSE)
        if os.fstat(file.fileno()).st_size == size:
            return False
    return False


def _sync_folders(path: Path) -> None:
    """Fsync the folders of a new file, so that its name is durable. Windows cannot and need not do this."""
    if sys.platform == "win32":
        return
    for folder in list(path.parents)[:3]:
        with suppress(PermissionError):  # a folder can be writable without being readable
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                sync_file(descriptor)
            finally:
                os.close(descriptor)


_log = logging.getLogger("persist")
Batch = list[tuple[Path, bytearray]]
"""(path, lines) to append, in order; nearly always one file."""


class SessionLogWriter:
    """Appends an agent's events as lines to `<home>/projects/<project_slug>/<session id>.jsonl`.

    A `session` event, or the first event with a `sessionId`, determines the session. The first event with a `sessionId` is
    preceded by a line with `initial_prompt`, if given. `keep_thinking`: also write the model's reasoning. `model` is written in
    every message. `fsync`: "never" (the system decides when lines reach the disk), after every "batch", or on "close".

    An agent must not fail because its log does: an error of writing is logged, sets `failed` and is stored in `error`. With
    `strict` it is raised instead, and the batch counts as not written. Wrong arguments always raise InvalidValue, and a closed
    writer raises Closed. Thread-safe; several writers, in any process, may append to one file.
    """

    def __init__(
        self,
        home: str | PathLike[str],
        project_slug: str,
        *,
        initial_prompt: str | None = None,
        model: str | None = None,
        keep_thinking: bool = False,
        clock: Clock | None = None,
        fsync: str = "never",
        strict: bool = False,
    ) -> None:
        self._home = check_home(home)
        self._slug = check_project_slug(project_slug)
        self._prompt = _text_or_none("initial_prompt", initial_prompt)
        if fsync not in list(envelope.Fsync):
            raise InvalidValue("fsync", f"{shown(fsync)} is none of {', '.join(envelope.Fsync)}.")
        self._fsync = envelope.Fsync(fsync)
        self._strict = strict
        self._clock = clock or system_clock
        self._translator = envelope.Translator(
            model=_text_or_none("model", model), keep_thinking=keep_thinking, on_invalid=self._on_invalid
        )
        self._lock = threading.Lock()
        self._session_id: str | None = None
        self._path: Path | None = None
        self._prompted = False
        self._unsynced: set[Path] = set()
        self._closed = False
        self.failed = False
        """Whether anything that was fed is missing from the log or was changed."""
        self.error: PersistError | None = None
        """The latest error that set `failed`."""

    @property
    def session_id(self) -> str | None:
        """The id of the session being written; None until it is known."""
        return self._session_id

    @property
    def path(self) -> Path | None:
        """The session's file, created with the first line; None until the session is known."""
        return self._path

    def feed(self, event: Mapping[str, Any] | None) -> None:
        """Write one event. Values that are no object, and events without a line, are skipped."""
        self.feed_many((event,))

    def feed_many(self, events: Iterable[Mapping[str, Any] | None]) -> None:
        """Write events in order, with one append for each session that they belong to in turn."""
        if isinstance(events, Mapping | str | bytes):
            raise InvalidValue("events", "expected several events; feed() takes one.")
        events = list(events)  # before the lock is taken: a generator may wait for the next event
        with self._batch() as batch:
            for event in events:
                if isinstance(event, Mapping):
                    self._add_event(event, batch)

    @spells_keywords
    def finalize(self, *, api_error: str | None = None, **totals: Unpack[envelope.RunResult]) -> None:
        """Write the `result` line of a run, after a line with `api_error` if given. Totals that are None are not written.

        Without `subtype` it is "success", or for a run with `api_error` its `stop_reason`, else "error_fatal". Writes nothing
        if no session is known yet; for runs that may end so early use `finalize_with_fallback`.
        """
        with self._batch() as batch:
            if self._session_id is None:
                return
            self._add_result(totals, api_error, batch, failed=api_error is not None)

    @spells_keywords
    def finalize_with_fallback(
        self, session_id: str, *, error: str | None = None, api_error: str | None = None, **totals: Unpack[envelope.RunResult]
    ) -> str | None:
        """Finalize a run, even if it ended before its session was known: then under `session_id`, with the prompt and `error`.

        Returns the id of the session written; None, and nothing is written, if `session_id` was needed and is unsafe. The line of
        `error` is written only if no session was known, that of `api_error` always. With either the run has failed.
        """
        with self._batch() as batch:
            if self._session_id is None:
                if not self._set_session(session_id):
                    return None
                now = self._now()
                self._add_prompt_once(now, session_id, batch)
                if error:
                    self._add_line(envelope.error_line(error, now, session_id), batch)
            self._add_result(totals, api_error, batch, failed=error is not None or api_error is not None)
            return self._session_id

    def close(self) -> None:
        """Close the writer; with fsync="close" fsync its files. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            while self._unsynced:
                try:
                    sync(self._unsynced.pop())
                except PersistError as error:
                    self._fail(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _batch(self) -> Iterator[Batch]:
        """Append what the body collects. If the body raises, state is restored; if an append fails, no line counts as written."""
        with self._lock:
            if self._closed:
                raise Closed("session log writer")
            before = self._session_id, self._path, self._prompted
            batch: Batch = []
            try:
                yield batch
            except BaseException:
                self._session_id, self._path, self._prompted = before
                self._translator.forget()
                raise
            try:
                for path, data in batch:
                    append(path, bytes(data), sync=self._fsync is envelope.Fsync.BATCH)
                    if self._fsync is envelope.Fsync.CLOSE:
                        self._unsynced.add(path)
            except PersistError as error:
                self._prompted = before[2]
                self._translator.forget()
                self._fail(error)
            self._translator.keep()

    def _add_event(self, event: Mapping[str, Any], batch: Batch) -> None:
        session_id = event.get("sessionId")
        if event.get("type") == "session":
            session_id = event["id"] if isinstance(event.get("id"), str) else session_id
            if isinstance(session_id, str):
                self._set_session(session_id)
            return
        if not isinstance(session_id, str) or not session_id or (self._path is None and not self._set_session(session_id)):
            return
        at = envelope.instant_of(event.get("timestamp"))
        timestamp = self._now() if at is None else envelope.iso(at)
        self._add_prompt_once(timestamp, session_id, batch)
        line = self._translator.line(event, timestamp, session_id)
        if line is not None:
            self._add_line(line, batch)

    def _add_prompt_once(self, timestamp: str, session_id: str, batch: Batch) -> None:
        """Add the line of the initial prompt before the first line."""
        if not self._prompted:
            self._prompted = True
            if self._prompt is not None:
                self._add_line(envelope.user_line(self._prompt, timestamp, session_id), batch)

    def _add_result(self, given: envelope.RunResult, api_error: str | None, batch: Batch, *, failed: bool) -> None:
        now, known = self._now(), check_keywords(given, envelope.RunResult)
        totals = {"subtype": envelope.ended_in(known.get("subtype"), known.get("stop_reason"), failed=failed), **known}
        if api_error and self._session_id is not None:
            self._add_line(envelope.error_line(api_error, now, self._session_id), batch)
        self._add_line(envelope.result_line(totals, now), batch)

    def _add_line(self, line: envelope.Line, batch: Batch) -> None:
        assert self._path is not None
        if not batch or batch[-1][0] is not self._path:
            batch.append((self._path, bytearray()))
        batch[-1][1].extend(envelope.to_line(line, self._on_invalid))

    def _set_session(self, session_id: str) -> bool:
        """Write further lines to that session's file; False if its id is unsafe."""
        if self._path is None or session_id != self._session_id:
            try:
                self._path = session_log_path(self._home, self._slug, session_id)
            except InvalidValue as error:
                self._fail(error)
                return False
            self._session_id = session_id
        return True

    def _now(self) -> str:
        return envelope.iso(as_utc("clock", self._clock()))

    def _on_invalid(self, path: str, reason: str, text: str) -> str:
        self._fail(InvalidValue(path, reason))
        return text

    def _fail(self, error: PersistError) -> None:
        if self._strict:
            raise error
        if str(error) != str(self.error):  # a full disk fails every batch; one warning is enough
            _log.warning("The session log of %s is not complete: %s", self._session_id or "an unknown session", error)
        self.failed, self.error = True, error


def _text_or_none(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InvalidValue(name, f"expected a string or None, got {type(value).__name__}.")
