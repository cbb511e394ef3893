"""Events that are not as they should be: timestamps of every kind, fields of the wrong type, noise."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each
from tests.sessionlog.scenes import AT_TEXT, NOW_TEXT, call, contents, event, lines, message, text, writer


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


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_a_timestamp_without_a_zone_is_utc_wherever_the_writer_runs(home: Path) -> None:
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


@pytest.mark.parametrize("noise", [None, "message_end", 5, [], ["type"], object()])
def test_what_is_no_object_is_passed_over(home: Path, noise: Any) -> None:
    log = writer(home, strict=True)
    log.feed(noise)
    log.feed_many([noise, text("a"), noise])
    assert len(lines(home)) == 1
    assert not log.failed
