"""What reaches the file: whole batches, each in one append, and never into a line of another writer."""

import os
from pathlib import Path

import pytest

from tests.sessionlog.scenes import Watched, contents, event, log_path, said, text, writer

# ---------------------------------------------------------------- batches


def test_a_batch_is_one_append(home: Path, watched: type[Watched]) -> None:
    log = writer(home, initial_prompt="Do it")
    log.feed_many(text(str(number)) for number in range(100))
    assert [part.count(b"\n") for part in watched.writes] == [101]
    log.finalize(api_error="boom")
    assert [part.count(b"\n") for part in watched.writes] == [101, 2]


def test_a_fallback_is_one_append(home: Path, watched: type[Watched]) -> None:
    writer(home, initial_prompt="Do it").finalize_with_fallback("s1", error="died")
    assert [part.count(b"\n") for part in watched.writes] == [3]


def test_a_batch_for_two_sessions_is_two_appends(home: Path, watched: type[Watched]) -> None:
    writer(home).feed_many([text("a"), text("b"), {"type": "session", "id": "s2"}, text("c"), text("d")])
    assert [part.count(b"\n") for part in watched.writes] == [2, 2]
    assert contents(home, "s2") == [said("c"), said("d")]


def test_a_batch_without_lines_touches_nothing(home: Path) -> None:
    writer(home).feed_many([{"type": "session", "id": "s1"}, event("turn_start")])
    assert not home.exists()


def test_lines_are_utf8_as_it_is_compact_and_ended(home: Path) -> None:
    writer(home, initial_prompt="é \u2028 日本 \x85 😀\n").feed(event("turn_start"))
    assert (
        log_path(home).read_bytes()
        == (
            '{"type":"user","message":{"role":"user","content":"é \u2028 日本 \x85 😀\\n"},'
            '"timestamp":"2026-06-15T11:00:00.000Z","sessionId":"s1"}\n'
        ).encode()
    )


def test_a_short_write_is_continued(home: Path, watched: type[Watched]) -> None:
    watched.takes = iter([1, 5, 0, 7])
    writer(home).feed_many([text("a"), text("b")])
    assert [len(part) for part in watched.writes[:4]] == [1, 5, 0, 7]
    assert contents(home) == [said("a"), said("b")]


def test_a_torn_last_line_does_not_swallow_the_next_one(home: Path) -> None:
    writer(home).feed(text("whole"))
    with log_path(home).open("ab") as file:
        file.write(b'{"type":"assistant","mess')
    log = writer(home)
    log.feed(text("after"))
    log.feed(text("later"))
    first, torn, after, later, end = log_path(home).read_bytes().split(b"\n")
    assert torn == b'{"type":"assistant","mess'
    assert [b"whole" in first, b"after" in after, b"later" in later, end] == [True, True, True, b""]


def test_a_line_torn_by_another_writer_meanwhile_is_noticed(home: Path) -> None:
    log = writer(home)
    log.feed(text("whole"))
    with log_path(home).open("ab") as file:
        file.write(b"torn")
    log.feed(text("after"))
    assert log_path(home).read_bytes().split(b"\n")[1] == b"torn"


def test_a_file_that_was_removed_is_made_again(home: Path) -> None:
    log = writer(home)
    log.feed(text("a"))
    log_path(home).unlink()
    log.feed(text("b"))
    assert contents(home) == [said("b")]


def test_what_is_there_is_never_changed(home: Path) -> None:
    log_path(home).parent.mkdir(parents=True)
    log_path(home).write_bytes(b"anything\n\x00\xff\n")
    writer(home).feed(text("a"))
    assert log_path(home).read_bytes().startswith(b"anything\n\x00\xff\n{")


def test_writers_need_no_close(home: Path, recwarn: pytest.WarningsRecorder) -> None:
    before = len(os.listdir("/dev/fd"))
    for number in range(50):
        writer(home, initial_prompt="Do it").feed(text("a", session=f"s{number}"))
    assert len(os.listdir("/dev/fd")) == before
    assert list(recwarn) == []
