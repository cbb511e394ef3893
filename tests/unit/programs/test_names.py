"""Names of runs, of anonymous values, of imports and of attachments; waits between retries."""

import math
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.errors import InvalidValue
from persist.programs import names, retry_delay
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
    """20"""
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
    """19"""
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
