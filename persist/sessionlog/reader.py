"""Reading a log: its records, whole or while it is written, and as messages of a conversation."""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from persist.db.files import check_path, typed
from persist.errors import InvalidValue
from persist.sessionlog.envelope import LogMessage, instant_of, iso

# A file may begin with a byte order mark; a crash may leave NULs, or a torn record that the next writer's whole one follows on
# the same line; and two records may be on one line.

Record = dict[str, Any]
_BLANK = "\ufeff \t\r\n"
_BETWEEN = _BLANK + "\0"
_BEGIN = re.compile(r'\{[ \t]*"')
_TOKENS = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
_GAP = re.compile(f"[{_BETWEEN}]*")
_MOST, _DEEPEST = 10_000, 100
"""How many places of a torn line are looked at, and how deep in the torn record: a hostile line has a million."""
_OF_A_RECORD = ("timestamp", "uuid", "sessionId", "leafUuid", "messageId")
_EXACT = json.JSONDecoder()
_STRICT = json.JSONDecoder(parse_constant=lambda name: None)


class Line(NamedTuple):
    """The whole records of a line, and whether the line has torn text."""

    records: list[Record]
    torn: bool


def read_line(line: bytes, *, exact: bool = False) -> Line:
    """What one line holds. `exact`: any integer and NaN stay what they are; otherwise NaN is None, as writers of JSON have it."""
    if not exact:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:  # also for escapes of lone surrogates and very deep values
            pass
        else:
            return Line([value], torn=False) if isinstance(value, dict) else Line([], torn=True)
    text = line.decode("utf-8", "surrogateescape")  # a record may be torn inside a character
    decoder = _EXACT if exact else _STRICT
    begin = len(text) - len(text.lstrip(_BETWEEN))
    whole, first = _objects_from(text, begin, decoder)
    if first == len(text) and whole:
        return Line(whole, torn=bool(text[:begin].strip(_BLANK)))
    end = first
    for start in _starts(text, first):
        if start >= end:  # what is whole before the place where another start failed ends there, too
            found, end = _objects_from(text, start, decoder)
            if end == len(text) and found:
                return Line(whole + found, torn=True)
    return Line([], torn=bool(text.strip(_BLANK)))


def _starts(text: str, start: int) -> Iterator[int]:
    """Where records may begin behind a torn one that begins at `start`, whose own values are none."""
    torn = _Torn(text, start)
    for found in islice(_BEGIN.finditer(text, start + 1), _MOST):
        if torn.may_end_before(found.start()):
            yield found.start()


class _Torn:
    """A record that is cut off: tells where another object may begin."""

    def __init__(self, text: str, start: int) -> None:
        self._text, self._at, self._in_text = text, start, False
        self._inside: list[str] = []

    def may_end_before(self, end: int) -> bool:
        """Whether what begins there is no value of the torn record: inside of its text, or where no value may be."""
        for token in _TOKENS.finditer(self._text, self._at, end):
            sign = token[0]
            if sign == '"':
                self._in_text = not self._in_text
            elif not self._in_text and sign in "{[":
                self._inside.append(sign)
            elif not self._in_text and sign in "}]":
                del self._inside[-1:]
        self._at, last = end, end - 1
        while self._text[last].isspace():
            last -= 1
        before = self._text[last]
        if self._in_text or before not in ":,[":
            return True
        if before == "," and self._inside[-1:] != ["["]:
            return True
        return len(self._inside) <= _DEEPEST and self._is_a_record(end)

    def _is_a_record(self, start: int) -> bool:
        """Whether the object has what records have, and values have not. A line without its end is one record, cut off."""
        if not self._text.endswith("\n"):
            return False
        try:
            value, _ = _EXACT.raw_decode(self._text, start)
        except (ValueError, RecursionError):
            return False
        return isinstance(value.get("type"), str) and any(name in value for name in _OF_A_RECORD)


def _objects_from(text: str, start: int, decoder: json.JSONDecoder) -> tuple[list[Record], int]:
    found: list[Record] = []
    while start < len(text):
        try:
            value, end = decoder.raw_decode(text, start)
            text[start:end].encode()  # what was no UTF-8 is no text
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict) or not value:
            break
        found.append(value)
        gap = _GAP.match(text, end)
        start = end if gap is None else gap.end()
    return found, start


Message = dict[str, Any]


def messages_of(line: Mapping[str, Any]) -> list[Message]:
    """The messages of a line: dicts of `role`, `content` and other keys present (`timestamp`, `model`, `tool_calls`, …).

    A line with a `role` is a message already. `result`, `system` and unknown lines have no messages. A user line with tool
    results has one message for each, and its text beside them is left out.
    """
    if isinstance(line.get("role"), str):
        return [dict(line)]
    stamp = {"timestamp": line["timestamp"]} if line.get("timestamp") is not None else {}
    match line.get("type"):
        case "user":
            return [message | stamp for message in _of_user(line)]
        case "assistant":
            return [message | stamp for message in _of_assistant(line)]
    return []


def _of_user(line: Mapping[str, Any]) -> list[Message]:
    content = _body(line).get("content")
    if content is None:
        content = line.get("content")
    if isinstance(content, list):
        results = [block for block in content if isinstance(block, dict) and block.get("type") == "tool_result"]
        if results:
            return [
                _without_none({"role": "tool", "content": b.get("content"), "tool_call_id": b.get("tool_use_id")})
                for b in results
            ]
    return [_without_none({"role": "user", "content": content})]


def _of_assistant(line: Mapping[str, Any]) -> list[Message]:
    error = line.get("error")
    if line.get("isApiErrorMessage") or error:
        return [{"role": "system", "content": "API error" if error is None else _text(error)}]
    body = _body(line)
    content = body.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = [block["text"] for block in blocks if block.get("type") == "text" and isinstance(block.get("text"), str)]
    calls = [
        {"id": block.get("id"), "function": {"name": block.get("name"), "arguments": block.get("input")}}
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    text = content if isinstance(content, str) else "\n".join(texts)
    if not text and not calls:
        return []
    return [
        _without_none(
            {
                "role": "assistant",
                "content": text if texts or text else None,
                "tool_calls": calls or None,
                "reasoning": _reasoning(blocks),
                "finish_reason": body.get("stop_reason"),
                "model": body.get("model"),
            }
        )
    ]


def _reasoning(blocks: list[dict[str, Any]]) -> Any:
    thoughts = [block for block in blocks if block.get("type") in ("thinking", "reasoning")]
    if not thoughts:
        return None
    last = thoughts[-1]
    return last["thinking"] if last.get("thinking") is not None else last.get("text")


def _body(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message in a line. Some writers store it as text: as JSON, or as the content itself."""
    message = line.get("message")
    if isinstance(message, str):
        inner, torn = read_line(message.encode(errors="surrogatepass"))
        return {"content": message} if torn or len(inner) != 1 else inner[0]
    return message if isinstance(message, dict) else {}


def _without_none(message: Message) -> Message:
    return {name: value for name, value in message.items() if value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
    """A file and how far it was read. The file stays open, so that its inode tells it from a replacement."""

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
                found += [LogMessage(self._index, entry) for entry in read_line(line + b"\n").records]
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
