"""Whole records are read by every reader, whatever a crash, an editor or another writer left on their line."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from persist.sessionlog import iter_session_log, list_session_logs, read_session_log, tail_session_log
from persist.sessionlog.reader import read_line
from persist.sessionlog.session_files import read_session_files
from tests.cases import each

SESSION = "6f1c2d3e-0000-4000-8000-000000000001"
T1 = "2026-06-15T11:00:01.000Z"
FIRST: dict[str, Any] = {
    "type": "user",
    "uuid": "u-1",
    "timestamp": "2026-06-15T11:00:00.000Z",
    "message": {"role": "user", "content": [{"type": "text", "text": 'say "{"a": 1}", [ü🦊] \\ {"type": "user"'}]},
    "list": [{"type": "x"}, {"type": "y", "n": [1, 2, {"z": {}}]}],
    "n": -12.5e3,
}
SECOND: dict[str, Any] = {"type": "user", "uuid": "u-2", "timestamp": T1, "message": {"role": "user", "content": "second"}}


def line(entry: Any) -> bytes:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode()


@each(
    ("content", "records", "torn"),
    [
        (b"\xef\xbb\xbf" + line(SECOND), [SECOND], False),
        (b"\0" * 4096 + line(SECOND), [SECOND], True),
        (line(SECOND) + b"\0" * 10, [SECOND], False),
        (line(FIRST) + line(SECOND), [FIRST, SECOND], False),
        (line(FIRST) + b" \0\0 " + line(SECOND), [FIRST, SECOND], False),
        (b"garbage " + line(SECOND), [SECOND], True),
        (line(FIRST) + b",", [], True),
        (line(FIRST) + b'{"type":"us' + line(SECOND), [FIRST, SECOND], True),
        (line(FIRST) + b"\xff" + line(SECOND) * 2, [FIRST, SECOND, SECOND], True),
        (b"\0" + line(FIRST) + b"{" + line(SECOND), [FIRST, SECOND], True),
        (b"", [], False),
        (b" \r\n", [], False),
        (b"[1]", [], True),
        (b'{"a":{"role":"user","content":"not a record"}', [], True),
        (b'{"a":[{"b":1},{"role":"user"}', [], True),
        (b'{"content":"a text with {}', [], True),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_what_a_line_holds(content: bytes, records: list[Any], torn: bool, exact: bool) -> None:
    assert read_line(content, exact=exact) == (records, torn)


def test_a_record_behind_one_that_is_torn_anywhere_is_read_alone() -> None:
    """Cut at every byte, inside of characters, texts, lists and numbers; with NULs in place of what was not written, too."""
    whole = line(FIRST)
    for cut in range(1, len(whole)):
        assert read_line(whole[:cut]).records == [], cut
        for between in (b"", b"\0" * 7):
            found = read_line(whole[:cut] + between + line(SECOND) + b"\n")
            assert found == ([SECOND], True), (cut, whole[:cut])


@each(
    "other",
    [
        {"type": "summary", "summary": "s", "leafUuid": "u-1"},
        {"type": "file-history-snapshot", "messageId": "u-1", "snapshot": {"trackedFileBackups": {}}},
    ],
)
def test_a_record_without_an_instant_is_read_behind_one_that_is_torn_at_a_values_place(other: dict[str, Any]) -> None:
    for torn in (b'{"type":', b'{"type":"user","list":[', b'{"list":[{"a":1},', b'{"message":{"role":'):
        assert read_line(torn + line(other) + b"\n") == ([other], True), torn


def test_no_value_of_a_last_record_that_is_cut_off_is_a_record() -> None:
    """A writer that goes on behind it ends the line."""
    whole = line({"type": "progress", "data": {"message": SECOND}, "list": [FIRST, SECOND], "uuid": "u-3"})
    for cut in range(1, len(whole)):
        assert read_line(whole[:cut]).records == [], whole[:cut]


def test_a_hostile_line_is_read_in_bounded_time() -> None:
    assert read_line(b'{"a":' * 200_000) == ([], True)
    assert read_line(b'{"a":1} ' * 200_000 + b"x") == ([], True)
    many = FIRST | {"list": [{"n": number} for number in range(3000)]}
    assert read_line(line(many)[:-9] + line(SECOND) + b"\n") == ([SECOND], True)
    assert read_line(b'{"type":"a","uuid":"b","c":[' * 50_000) == ([], True)


def test_every_reader_finds_the_same_records(tmp_path: Path) -> None:
    path = tmp_path / "projects" / "-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    number = line({**SECOND, "uuid": "u-3", "n": math.nan})
    glued = line(FIRST)[:70] + line(SECOND)
    path.write_bytes(b"\n".join([b"\xef\xbb\xbf" + line(FIRST), glued, number, b"\0\0" + line(SECOND) * 2, b"torn {", b""]))
    ids = ["u-1", "u-2", "u-3", "u-2", "u-2"]
    session = read_session_files(tmp_path, SESSION)
    assert [entry["uuid"] for entry in session.parts[""]] == ids
    assert math.isnan(session.parts[""][2]["n"])
    assert session.skipped == 3
    (batch,) = tail_session_log(path, stop=lambda: True)
    assert [(entry.index, entry.msg["uuid"]) for entry in batch] == list(zip([0, 1, 2, 3, 3], ids, strict=True))
    assert batch[2].msg["n"] is None
    assert len(list(iter_session_log(path))) == len(read_session_log(path)) == 5
    (info,) = list_session_logs(tmp_path)
    assert info.started_at.isoformat() == "2026-06-15T11:00:00+00:00"
