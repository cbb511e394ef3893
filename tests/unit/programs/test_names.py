"""Names of runs, of anonymous values, of imports and of attachments; waits between retries; joins; files of strangers."""

import logging
import math
import random
import sqlite3
import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.db.dialects import untrusted_files
from persist.db.dialects.untrusted_files import Odd, create_lent_file, read_lent_file
from persist.errors import InvalidValue
from persist.programs import Joined, join, names, retry_delay
from persist.workflows import backoff as wait_of
from tests.cases import each

MICROSECOND = timedelta(microseconds=1)
LABELS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=300)


def test_a_run_is_named_after_its_second_in_utc() -> None:
    letters = iter("a7b3c9")
    at = datetime(2026, 1, 16, 16, 30, 52, 999_999, tzinfo=timezone(timedelta(hours=2)))
    assert names.run_id(at, lambda _: next(letters)) == "20260116-143052-a7b3c9"
    drawn: list[str] = []

    def first(alphabet: str) -> str:
        drawn.append(alphabet)
        return alphabet[0]

    assert names.run_id(at.astimezone(UTC), first) == "20260116-143052-000000"
    assert drawn == ["0123456789abcdefghijklmnopqrstuvwxyz"] * 6


@each(("number", "name"), [(1, "anon_001"), (42, "anon_042"), (999, "anon_999"), (1000, "anon_1000")])
def test_anonymous_names_have_three_digits_or_more(number: int, name: str) -> None:
    assert names.anonymous_name(number) == name
    assert names.anonymous_number(name) == number


@each("name", ["anon_1", "anon_", "anon_abc", "anon_001x", "xanon_001", "anon_\u0660\u0660\u0661", f"anon_{'9' * 30}"])
def test_other_names_are_not_anonymous(name: str) -> None:
    assert names.anonymous_number(name) == 0


def test_imported_names_have_the_alias_before_them() -> None:
    assert names.imported("research", "findings") == "research.findings"
    for alias in ("", "a.b"):
        with pytest.raises(InvalidValue):
            names.imported(alias, "x")


TOKEN = "0123456789abcdef" * 2


@each(
    ("name", "frame", "stem"),
    [
        ("full_report", None, "full_report"),
        ("result", 43, "result__43"),
        ("research.findings", 7, "research.findings__7"),
        ("../x", None, "%2E.%2Fx"),
        ("a\nb", None, "a%0Ab"),
        ("50%", None, "50%25"),
    ],
)
def test_attachments_are_named_after_their_binding(name: str, frame: int | None, stem: str) -> None:
    assert names.attachment_path(name, frame, TOKEN) == f"attachments/{stem}__{TOKEN}.md"
    assert names.lent_path(name, frame, TOKEN) == f"attachments/{stem}__shell_{TOKEN}.md"


@given(name=LABELS, frame=st.none() | st.integers(1, 2**63 - 1))
def test_files_of_the_library_are_told_by_their_names(name: str, frame: int | None) -> None:
    path, lent = names.attachment_path(name, frame, TOKEN), names.lent_path(name, frame, TOKEN)
    assert (names.attachment_token(path), names.attachment_token(lent)) == (TOKEN, None)
    for one in (path, lent):
        folder, file = names.attachment_parts(one)
        assert folder == "attachments"
        assert file.isascii()
        assert not file.startswith(".")
        assert len(file) <= 255


@each(
    ("path", "parts"),
    [
        ("attachments/name.md", ("attachments", "name.md")),
        ("./attachments//name.md", ("attachments", "name.md")),
        ("attachments/a/b.md", ("attachments", "a", "b.md")),
        ("attachments/.../x", None),
        ("attachments/../state.db", None),
        ("attachments/x/../../state.db", None),
        ("attachments/.. /state.db", None),
        ("attachments", None),
        ("attachments/", None),
        ("attachments/.", None),
        ("/attachments/x.md", None),
        ("state.db", None),
        ("./state.db", None),
        ("Attachments/x.md", None),
        ("attachments/x\x00.md", None),
        ("attachments/\ud800.md", None),
        ("", None),
    ],
)
def test_stored_paths_lead_below_attachments_or_nowhere(path: str, parts: tuple[str, ...] | None) -> None:
    if parts is None:
        with pytest.raises(InvalidValue):
            names.attachment_parts(path)
        assert names.attachment_token(path) is None
    else:
        assert names.attachment_parts(path) == parts


@each("path", [f"attachments/sub/x__{TOKEN}.md", f"x__{TOKEN}.md", f"attachments/x__{TOKEN.upper()}.md"])
def test_other_paths_are_not_the_librarys(path: str) -> None:
    assert names.attachment_token(path) is None


@each(
    ("backoff", "seconds"),
    [(None, [0, 0, 0, 0]), ("none", [0, 0, 0, 0]), ("linear", [1, 1, 1, 1]), ("exponential", [1, 2, 4, 8])],
)
def test_waits_before_retries(backoff: str | None, seconds: list[int]) -> None:
    assert [retry_delay(backoff, attempt) for attempt in (1, 2, 3, 4)] == seconds
    assert retry_delay(backoff, 3, base=0.5) == seconds[2] / 2
    assert math.isfinite(retry_delay(backoff, 10**400, base=sys.float_info.max))


@each(
    ("backoff", "attempt", "base"),
    [
        ("fast", 1, 1),
        ("linear", 0, 1),
        ("linear", True, 1),
        *(("linear", 1, base) for base in (-1, math.inf, math.nan, "1", None)),
    ],
)
def test_other_waits_are_refused(backoff: str, attempt: int, base: Any) -> None:
    with pytest.raises(InvalidValue):
        retry_delay(backoff, attempt, base=base)


@each(
    ("first", "longest"),
    [
        *((first, first * 300) for first in (timedelta(microseconds=1), timedelta(seconds=1), timedelta(days=1))),
        (timedelta(seconds=1), timedelta.max),
        (timedelta.max, timedelta(minutes=5)),
        (timedelta.max, timedelta.max),
        (timedelta(0), timedelta.max),
    ],
)
def test_waits_grow_up_to_the_longest_one(first: timedelta, longest: timedelta) -> None:
    for attempt in (*range(200), 2**63, 10**400):
        doubled = (first // MICROSECOND) * 2 ** min(max(attempt, 1) - 1, 200)
        exact = timedelta(microseconds=min(doubled, longest // MICROSECOND))
        assert exact * 0.75 <= wait_of(attempt, first=first, longest=longest) <= exact, attempt


def test_a_wait_is_of_a_length_of_time_and_a_number_of_attempts() -> None:
    for name in ("first", "longest"):
        with pytest.raises(InvalidValue) as refused:
            wait_of(1, **{name: timedelta(seconds=-1)})
        assert refused.value.path == name
    for attempt in (None, "3", math.nan, 1.5, -1):
        with pytest.raises(InvalidValue) as refused:
            wait_of(attempt)  # type: ignore[arg-type]  # what is no number
        assert refused.value.path == "attempt"


# When a parallel block is over: the table of strategies, and what holds for every block.


STATES = {"c": "completed", "f": "failed", "s": "skipped", "e": "executing", "p": "pending"}


def states(letters: str) -> dict[str, str]:
    """Branches a, b, … in the states of the letters."""
    return {chr(ord("a") + number): STATES[letter] for number, letter in enumerate(letters)}


def outcome(strategy: str, count: int | None, on_fail: str, letters: str) -> str:
    """The outcome, and the branches to cancel."""
    joined = join(strategy, count, on_fail, states(letters))
    return " ".join([joined.outcome, *joined.cancel])


@each(
    ("strategy", "count", "letters", "fail_fast", "on_continue", "ignore"),
    [
        ("all", None, "ccc", "success", "success", "success"),
        ("all", None, "ccs", "success", "success", "success"),
        ("all", None, "cce", "wait", "wait", "wait"),
        ("all", None, "ccf", "failure", "failure", "success"),
        ("all", None, "cfe", "failure c", "wait", "wait"),
        ("all", None, "fep", "failure b c", "wait", "wait"),
        ("all", None, "fff", "failure", "failure", "success"),
        ("all", None, "", "success", "success", "success"),
        ("first", None, "eee", "wait", "wait", "wait"),
        ("first", None, "cep", "success b c", "success b c", "success b c"),
        ("first", None, "fee", "failure b c", "wait", "wait"),
        ("first", None, "fce", "success c", "success c", "success c"),
        ("first", None, "see", "wait", "wait", "wait"),
        ("first", None, "ffs", "failure", "failure", "success"),
        ("first", None, "sss", "failure", "failure", "success"),
        ("any", 1, "fee", "wait", "wait", "wait"),
        ("any", None, "fce", "success c", "success c", "success c"),
        ("any", 2, "ccf", "success", "success", "success"),
        ("any", 2, "cfe", "wait", "wait", "wait"),
        ("any", 2, "cce", "success c", "success c", "success c"),
        ("any", 2, "ffe", "failure c", "wait", "wait"),
        ("any", 2, "sse", "failure c", "wait", "wait"),
        ("any", 2, "cff", "failure", "failure", "success"),
        ("any", 3, "fee", "failure b c", "wait", "wait"),
        ("any", 5, "cc", "success", "success", "success"),
        ("any", 5, "ce", "wait", "wait", "wait"),
    ],
)
def test_the_table(strategy: str, count: int | None, letters: str, fail_fast: str, on_continue: str, ignore: str) -> None:
    found = [outcome(strategy, count, mode, letters) for mode in ("fail-fast", "continue", "ignore")]
    assert found == [fail_fast, on_continue, ignore]


def test_failed_branches_are_named_in_their_order() -> None:
    assert join("all", None, "continue", states("cffc")) == Joined("failure", [], ["b", "c"])
    assert join("all", None, "ignore", states("ccf")) == Joined("success", [], ["c"])
    assert join("any", 2, "fail-fast", states("ccf")) == Joined("success", [], ["c"])


def test_what_is_not_said_is_all_and_fail_fast() -> None:
    for letters in ("cc", "cf", "ef", "ce"):
        assert join(None, None, None, states(letters)) == join("all", None, "fail-fast", states(letters))


def test_words_of_raw_writers_are_waited_for() -> None:
    assert join("all", None, "continue", {"a": "completed", "b": "joined"}).outcome == "wait"


@each(
    ("strategy", "count", "on_fail"),
    [("maximum", None, None), ("all", 2, None), ("first", 1, None), ("any", 0, None), ("any", True, None), ("all", None, "stop")],
)
def test_other_words_are_refused(strategy: str, count: int | None, on_fail: str | None) -> None:
    with pytest.raises(InvalidValue):
        join(strategy, count, on_fail, states("ce"))


def test_a_count_over_the_branches_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="persist"):
        join("any", 2, None, states("ce"))
        assert caplog.text == ""
        join("any", 3, None, states("ce"))
    assert "3" in caplog.text


EVERY = [("all", None), ("first", None), ("any", 1), ("any", 2), ("any", 3)]


@each(("strategy", "count"), EVERY)
@each("on_fail", ["fail-fast", "continue", "ignore"])
def test_every_block_comes_to_one_end(strategy: str, count: int | None, on_fail: str) -> None:
    """Settled blocks never wait; a block that is over stays over, the same way, while cancelled branches become skipped."""
    for letters in map("".join, product("cfse", repeat=3)):
        joined = join(strategy, count, on_fail, states(letters))
        waiting = [name for name, state in states(letters).items() if state == "executing"]
        assert joined.failed == [name for name, state in states(letters).items() if state == "failed"]
        if joined.outcome == "wait":
            assert waiting
            assert joined.cancel == []
        else:
            assert joined.cancel == waiting
            cancelled = states(letters.replace("e", "s"))
            if not (on_fail == "ignore" or strategy == "all"):
                assert join(strategy, count, on_fail, cancelled).outcome == joined.outcome
        if on_fail == "ignore":
            assert joined.outcome != "failure"


# Reading a file that may say anything: it ends, whatever it holds, and gives rows or one kind of error.


DDL = ["CREATE TABLE a (x TEXT, y INTEGER)", "CREATE TABLE b (id INTEGER PRIMARY KEY AUTOINCREMENT, z TEXT)"]
COLUMNS = {"a": ("x", "y"), "b": ("id", "z")}


def content(path: Path, *statements: str) -> bytes:
    path.touch()
    create_lent_file(path, DDL, {"a": [{"x": "it's", "y": 1}, {"x": None, "y": None}]})
    raw = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        raw.execute(statement)
    raw.close()
    return path.read_bytes()


def read(data: bytes, *, max_rows: int = 50, max_value_bytes: int = 100_000) -> dict[str, list[tuple[object, ...]]]:
    return read_lent_file(data, DDL, COLUMNS, max_rows=max_rows, max_value_bytes=max_value_bytes)


def test_cells_are_text_numbers_null_or_odd(tmp_path: Path) -> None:
    data = content(tmp_path / "f", "INSERT INTO a VALUES (x'00', 9223372036854775807), (CAST(x'ff' AS TEXT), 1.5)")
    rows = read(data)["a"]
    assert rows[:2] == [("it's", 1), (None, None)]
    assert [type(cell) for row in rows[2:] for cell in row] == [Odd, int, Odd, float]


def test_what_is_too_large_or_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = content(tmp_path / "f", "INSERT INTO a VALUES (printf('%.*c', 200000, 'x'), 1)")
    with pytest.raises(InvalidValue, match="too large"):
        read(data)
    with pytest.raises(InvalidValue, match="more than 2 rows"):
        read(data, max_rows=2, max_value_bytes=300_000)
    monkeypatch.setattr(untrusted_files, "_STEPS", 1)
    monkeypatch.setattr(untrusted_files, "_CALLS", 0)
    monkeypatch.setattr(untrusted_files, "_CALLS_PER_PAGE", 0)
    with pytest.raises(InvalidValue, match="too long"):
        read(data, max_value_bytes=300_000)


def test_nothing_is_called_and_no_value_is_made_up(tmp_path: Path) -> None:
    """A function of the database is refused, and so are values that take no room in the file, which may be any number."""
    with pytest.raises(InvalidValue, match="cannot be read"):
        read_lent_file(content(tmp_path / "f"), DDL, {"a": ("abs(y)",)}, max_rows=50, max_value_bytes=100_000)
    made_up = f"CREATE TABLE a (x TEXT, y TEXT DEFAULT '{'y' * 2000}')"
    raw = sqlite3.connect(tmp_path / "g", isolation_level=None)
    for statement in (
        "CREATE TABLE a (x TEXT)",
        "INSERT INTO a SELECT value FROM json_each('[" + ", ".join("1" * 50) + "]')",
        "PRAGMA writable_schema = ON",
    ):
        raw.execute(statement)
    raw.execute("UPDATE sqlite_master SET sql = ?", [made_up])
    raw.close()
    with pytest.raises(InvalidValue, match="share their pages"):
        read_lent_file((tmp_path / "g").read_bytes(), [made_up], {"a": ("x", "y")}, max_rows=50, max_value_bytes=100_000)


def test_no_change_of_bytes_gives_anything_but_rows_or_a_refusal(tmp_path: Path) -> None:
    """Nor is what stands in the file repeated."""
    secret = "a secret of the file"
    whole = content(tmp_path / "f", f"INSERT INTO a VALUES ('{secret}', 1)", f"CREATE TABLE more (a TEXT DEFAULT '{secret}')")
    with pytest.raises(InvalidValue, match="schema"):
        read(whole)
    (tmp_path / "g").unlink(missing_ok=True)
    whole = content(tmp_path / "g", *(f"INSERT INTO a VALUES ('{secret} {n}', {n})" for n in range(40)))
    drawn = random.Random(7)
    outcomes, errors = set(), list[InvalidValue]()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            place = drawn.choice((drawn.randrange(len(data)), drawn.randrange(110), 4096 + drawn.randrange(100)))
            data[place] = drawn.randrange(256)
        try:
            found = read(bytes(data))
            outcomes.add("rows")
            assert set(found) == {"a", "b"}
        except InvalidValue as refused:
            outcomes.add("refused")
            errors.append(refused)
    assert outcomes == {"rows", "refused"}
    assert not [error for error in errors if secret in str(error) or error.__cause__ is not None]
