"""Names of runs, of anonymous values, of imports and of attachments; waits between retries."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.errors import InvalidValue
from persist.programs import names, retry_delay

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


@pytest.mark.parametrize(("number", "name"), [(1, "anon_001"), (42, "anon_042"), (999, "anon_999"), (1000, "anon_1000")])
def test_anonymous_names_have_three_digits_or_more(number: int, name: str) -> None:
    """20"""
    assert names.anonymous_name(number) == name
    assert names.anonymous_number(name) == number


@pytest.mark.parametrize(
    "name", ["anon_1", "anon_", "anon_abc", "anon_001x", "xanon_001", "anon_\u0660\u0660\u0661", f"anon_{'9' * 30}"]
)
def test_other_names_are_not_anonymous(name: str) -> None:
    assert names.anonymous_number(name) == 0


def test_imported_names_have_the_alias_before_them() -> None:
    assert names.imported("research", "findings") == "research.findings"
    for alias in ("", "a.b"):
        with pytest.raises(InvalidValue):
            names.imported(alias, "x")


@pytest.mark.parametrize(
    ("name", "frame", "path"),
    [
        ("full_report", None, "attachments/full_report.md"),
        ("result", 43, "attachments/result__43.md"),
        ("research.findings", 7, "attachments/research.findings__7.md"),
        ("../x", None, "attachments/%2E.%2Fx.md"),
        ("result__43", None, "attachments/result%5F%5F43.md"),
        ("a~2", None, "attachments/a%7E2.md"),
    ],
)
def test_attachments_are_named_after_their_binding(name: str, frame: int | None, path: str) -> None:
    """19"""
    assert names.attachment_path(name, frame) == path


def test_a_new_file_does_not_overwrite_the_one_in_use() -> None:
    first = names.attachment_path("x", None)
    second = names.attachment_path("x", None, replacing=first)
    assert second == "attachments/x~2.md"
    assert names.attachment_path("x", None, replacing=second) == first


@given(one=st.tuples(LABELS, st.none() | st.integers(1, 50)), other=st.tuples(LABELS, st.none() | st.integers(1, 50)))
def test_two_bindings_never_share_a_file(one: tuple[str, int | None], other: tuple[str, int | None]) -> None:
    paths = [names.attachment_path(*one), names.attachment_path(*one, replacing=names.attachment_path(*one))]
    others = [names.attachment_path(*other), names.attachment_path(*other, replacing=names.attachment_path(*other))]
    assert (one == other) == bool({*paths} & {*others})
    for path in paths:
        folder, _, file = path.partition("/")
        assert folder == "attachments"
        assert "/" not in file
        assert not file.startswith(".")
        assert len(file.encode()) <= 255


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [(None, [0, 0, 0, 0]), ("none", [0, 0, 0, 0]), ("linear", [1, 1, 1, 1]), ("exponential", [1, 2, 4, 8])],
)
def test_waits_before_retries(backoff: str | None, seconds: list[int]) -> None:
    assert [retry_delay(backoff, attempt) for attempt in (1, 2, 3, 4)] == seconds
    assert retry_delay(backoff, 3, base=0.5) == seconds[2] / 2


@pytest.mark.parametrize(("backoff", "attempt"), [("fast", 1), ("linear", 0), ("linear", True)])
def test_other_waits_are_refused(backoff: str, attempt: int) -> None:
    with pytest.raises(InvalidValue):
        retry_delay(backoff, attempt)
