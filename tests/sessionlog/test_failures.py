"""What cannot be written: noted and logged, or raised; and arguments that are refused at once."""

import errno
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from persist.errors import InvalidValue, NotPermitted, PersistError, StoreFull, Unavailable
from persist.sessionlog import SessionLogWriter
from tests.cases import each
from tests.sessionlog.scenes import (
    AT_TEXT,
    NOW_TEXT,
    SLUG,
    Watched,
    call,
    contents,
    event,
    fresh,
    lines,
    log_path,
    message,
    said,
    text,
    writer,
)

FAILURES = [
    (errno.ENOSPC, StoreFull),
    (errno.EACCES, NotPermitted),
    (errno.EROFS, NotPermitted),
    (errno.EIO, Unavailable),
    (errno.ENAMETOOLONG, InvalidValue),
]


@pytest.mark.parametrize(("code", "kind"), FAILURES)
def test_a_failed_write_is_logged_and_kept(
    home: Path, watched: type[Watched], caplog: pytest.LogCaptureFixture, code: int, kind: type[PersistError]
) -> None:
    log = writer(home)
    assert (log.failed, log.error) == (False, None)
    watched.takes = iter([OSError(code, os.strerror(code))] * 3)
    with caplog.at_level(logging.WARNING, "persist"):
        for _ in range(3):
            log.feed(text("lost"))
    assert log.failed
    assert type(log.error) is kind
    assert isinstance(log.error.__cause__, OSError)
    assert [record.name for record in caplog.records] == ["persist"]  # one line for one reason
    assert "s1" in caplog.text
    log.feed(text("kept"))
    assert contents(home) == [said("kept")]
    assert log.failed


@pytest.mark.parametrize(("code", "kind"), FAILURES)
def test_a_strict_writer_raises(home: Path, watched: type[Watched], code: int, kind: type[PersistError]) -> None:
    log = writer(home, strict=True)
    watched.takes = iter([OSError(code, os.strerror(code))])
    with pytest.raises(kind):
        log.feed(text("lost"))
    log.feed(text("kept"))
    assert contents(home) == [said("kept")]


def test_a_write_that_fails_half_way_leaves_its_half_on_a_line_of_its_own(home: Path, watched: type[Watched]) -> None:
    log = writer(home)
    watched.takes = iter([10, OSError(errno.ENOSPC, "full")])
    log.feed(text("lost"))
    assert log_path(home).stat().st_size == 10
    log.feed(text("kept"))
    torn, kept, end = log_path(home).read_bytes().split(b"\n")
    assert (len(torn), b"kept" in kept, end) == (10, True, b"")


def test_what_was_not_written_does_not_count(home: Path, watched: type[Watched]) -> None:
    log = writer(home, initial_prompt="Do it")
    watched.takes = iter([OSError(errno.ENOSPC, "full")])
    log.feed_many([{"type": "session", "id": "s1"}, call("t1")])
    log.feed_many([event("tool_execution_end", toolCallId="t1", result="orphan"), text("a")])
    assert contents(home) == ["Do it", said("a")]


def test_a_home_that_is_a_file(home: Path) -> None:
    home.write_bytes(b"")
    log = writer(home)
    log.feed(text("lost"))
    assert isinstance(log.error, PersistError)
    with pytest.raises(PersistError):
        writer(home, strict=True).feed(text("lost"))
    assert home.read_bytes() == b""


@pytest.mark.parametrize("session", ["../s1", "a/b", "a\\b", "..", "a b", "s1.jsonl", "é", "s1\n", "x\x00", "x" * 300])
def test_unsafe_sessions_are_refused(home: Path, caplog: pytest.LogCaptureFixture, session: str) -> None:
    log = writer(home, initial_prompt="Do it")
    log.feed({"type": "session", "id": session})
    log.feed_many([text("lost", session=session)] * 3)
    assert isinstance(log.error, InvalidValue)
    assert log.error.path == "session_id"
    assert len(caplog.records) == 1
    assert log.path is None
    for given in ({"type": "session", "id": session}, text("lost", session=session)):
        with pytest.raises(InvalidValue, match="session_id"):
            writer(home, strict=True).feed(given)
    assert list(home.parent.rglob("*")) == []


def test_a_strict_refusal_writes_nothing_of_its_batch(home: Path) -> None:
    log = writer(home, initial_prompt="Do it", strict=True)
    with pytest.raises(InvalidValue):
        log.feed_many([call("t1"), text("a"), {"type": "session", "id": "../s2"}])
    assert not home.exists()
    assert log.session_id is None
    log.feed_many([event("tool_execution_end", toolCallId="t1", result="orphan")])
    assert contents(home) == ["Do it"]


def test_an_unsafe_session_keeps_the_one_before(home: Path) -> None:
    log = writer(home)
    log.feed_many([text("a"), {"type": "session", "id": "../s2"}, text("b")])
    assert contents(home) == [said("a"), said("b")]
    assert log.failed


@each("slug", ["", ".", "..", "a/b", "../x", "/", "/app", "a\x00b", "\ud83d", None, 5, "x" * 256, "é" * 128])
def test_unsafe_slugs_are_refused_at_once(home: Path, slug: Any) -> None:
    for strict in (False, True):
        with pytest.raises(InvalidValue, match="project_slug"):
            SessionLogWriter(home, slug, strict=strict)
    assert not home.exists()


@each(
    ("name", "value"),
    [
        ("fsync", "always"),
        ("fsync", None),
        ("fsync", []),
        ("initial_prompt", 5),
        ("model", ["m"]),
        ("home", None),
        ("home", "a\x00b"),
    ],
)
def test_wrong_arguments_are_refused_at_once(home: Path, name: str, value: Any) -> None:
    given: dict[str, Any] = {"home": home, "project_slug": SLUG} | {name: value}
    with pytest.raises(InvalidValue, match=name):
        SessionLogWriter(**given)


@each("events", [{"type": "session"}, "session", b"session"])
def test_one_event_is_no_batch(home: Path, events: Any) -> None:
    with pytest.raises(InvalidValue, match="events"):
        writer(home).feed_many(events)


def test_a_clock_without_a_zone_is_a_mistake(home: Path) -> None:
    naive = writer(home)._clock().replace(tzinfo=None)
    with pytest.raises(InvalidValue, match="clock"):
        writer(home, clock=lambda: naive).feed(text("a", timestamp=None))


# Events that are not as they should be: timestamps of every kind, fields of the wrong type, noise.


@each(
    ("given", "written"),
    [
        (1_781_521_200_000, AT_TEXT),
        (1_781_521_200_000.9, AT_TEXT),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        ("2026-06-15T11:00:00.000Z", AT_TEXT),
        ("2026-06-15T11:00:00Z", AT_TEXT),
        ("2026-06-15T13:30:00.1239+02:30", "2026-06-15T11:00:00.123Z"),
        ("2026-06-15T11:00:00", AT_TEXT),
        ("2026-06-15", "2026-06-15T00:00:00.000Z"),
        (datetime(2026, 6, 15, 13, tzinfo=timezone(timedelta(hours=2))), AT_TEXT),
        (datetime(2026, 6, 15, 11, 0, 0, 999, tzinfo=UTC), AT_TEXT),
        (None, NOW_TEXT),
        ("yesterday", NOW_TEXT),
        ("", NOW_TEXT),
        ("\ud83d", NOW_TEXT),
        (True, NOW_TEXT),
        ([], NOW_TEXT),
        (float("nan"), NOW_TEXT),
        (float("inf"), NOW_TEXT),
        (10**30, NOW_TEXT),
        ("0001-01-01T00:00:00+14:00", NOW_TEXT),
        ("9999-12-31T23:59:59-14:00", NOW_TEXT),
    ],
)
def test_timestamps_have_one_form(home: Path, given: Any, written: str) -> None:
    writer(home).feed(text("a", timestamp=given))
    assert lines(home)[-1]["timestamp"] == written


def test_a_timestamp_without_a_zone_is_utc_wherever_the_writer_runs(home: Path, time_zone: Callable[[str], None]) -> None:
    time_zone("Asia/Kolkata")
    for given in ("2026-06-15T11:00:00", datetime(2026, 6, 15, 11), "2026-06-15T16:30:00+05:30"):
        writer(home).feed(text("a", timestamp=given))
    assert {line["timestamp"] for line in lines(home)} == {AT_TEXT}


STRANGE: list[Any] = [None, True, 0, -1.5, "", "x", [], [None], [{}], {}, {"type": None}, {"role": "assistant"}, float("nan")]


@each("type", ["session", "message_end", "tool_execution_end", "extension_status", "fatal_error"])
@each("field", ["id", "message", "toolCallId", "result", "error", "extension", "status", "timestamp"])
def test_fields_of_the_wrong_type_do_no_harm(home: Path, type: str, field: str) -> None:
    log = writer(home)
    log.feed(call())
    for value in STRANGE:
        log.feed({"type": type, "sessionId": "s1", "toolCallId": "t1", "extension": "x"} | {field: value})
    allowed = {"assistant", "user", "system"}
    assert {line["type"] for line in lines(home)} <= allowed
    assert all(line["sessionId"] == "s1" for line in lines(home))


def test_messages_of_the_wrong_type_do_no_harm(home: Path) -> None:
    log = writer(home, keep_thinking=True)
    for value in STRANGE:
        log.feed(event("message_end", message={"role": "assistant", "content": value, "usage": value}))
        for kind, field in (("text", "text"), ("thinking", "thinking"), ("toolCall", "id"), ("toolCall", "name")):
            log.feed(message({"type": kind, "id": "t", "name": "n", field: value}, usage=value))
    for blocks in contents(home):
        for block in blocks:
            assert all(isinstance(block.get(name), str | None) for name in ("text", "thinking", "id", "name"))


@each("noise", [None, "message_end", 5, [], ["type"], object()])
def test_what_is_no_object_is_passed_over(home: Path, noise: Any) -> None:
    home = fresh(home)
    log = writer(home, strict=True)
    log.feed(noise)
    log.feed_many([noise, text("a"), noise])
    assert len(lines(home)) == 1
    assert not log.failed
