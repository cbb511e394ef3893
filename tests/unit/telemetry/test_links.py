"""What a link's URL means, and when a link is looked at again."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persist.errors import InvalidValue
from persist.telemetry.links import canonical_url, parse_link, refresh_interval
from persist.telemetry.schemas import LinkKind
from tests.cases import each


@each(
    ("written", "canonical"),
    [
        ("https://github.com/o/r/issue/42", "https://github.com/o/r/issue/42"),
        ("https://github.com/o/r/issues/42", "https://github.com/o/r/issue/42"),
        ("https://github.com/o/r/pull/42", "https://github.com/o/r/pull/42"),
        ("https://github.com/o/r/pulls/42", "https://github.com/o/r/pull/42"),
        ("http://WWW.GitHub.com/O/r.js/PULL/042/files?w=1#diff", "https://github.com/O/r.js/pull/42"),
        ("  https://git.example.org:8443/o/r/issues/1/  ", "https://git.example.org:8443/o/r/issue/1"),
    ],
)
def test_a_link_has_one_canonical_form(written: str, canonical: str) -> None:
    link = parse_link("url", written)
    assert link.url == canonical
    assert parse_link("url", canonical) == link
    assert link.url.split("/")[2:5] == [link.host, link.owner, link.repo]
    assert link.kind is (LinkKind.PR if "/pull/" in canonical else LinkKind.ISSUE)
    assert link.url.endswith(f"/{link.resource_number}")


@each(
    "url",
    [
        "",
        "github.com/o/r/issues/1",
        "ftp://github.com/o/r/issues/1",
        "https://github.com/o/r",
        "https://github.com/o/r/issues",
        "https://github.com/o/r/issues/0",
        "https://github.com/o/r/issues/-1",
        "https://github.com/o/r/issues/1x",
        "https://github.com/o/r/issues/²",
        "https://github.com/o/r/issues/9999999999999999999",
        "https://github.com/o/r/commit/1",
        "https://github.com//r/issues/1",
        "https://github.com/o%2fp/r/issues/1",
        "https://user:secret@github.com/o/r/issues/1",
        "https:///o/r/issues/1",
        "https://[::1/o/r/issues/1",
    ],
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        parse_link("url", url)
    assert refused.value.path == "url"
    assert "secret" not in str(refused.value)


@given(st.text())
def test_any_text_is_a_link_or_refused(text: str) -> None:
    for url in (text, f"https://github.com/{text}", f"https://{text}/o/r/issues/1"):
        try:
            link = parse_link("url", url)
        except InvalidValue:
            continue
        assert parse_link("url", link.url) == link


def seconds(kind: LinkKind, **states: str | None) -> float:
    known = dict.fromkeys(("issue_state", "pr_state", "build_state", "review_state")) | states
    interval: timedelta = refresh_interval(kind, **known)
    return interval.total_seconds()


@each(("state", "after"), [("open", 600), ("closed", 3600), ("locked", 300), (None, 300)])
def test_issues(state: str | None, after: int) -> None:
    assert seconds(LinkKind.ISSUE, issue_state=state, build_state="building", pr_state="merged") == after


@each(
    ("pr", "build", "review", "after"),
    [
        ("open", "building", "pending", 60),
        ("open", "building", "approved", 60),
        ("open", "passed", "pending", 300),
        ("open", "failed", "pending", 300),
        ("open", "passed", None, 300),
        ("open", "passed", "approved", 600),
        ("open", "failed", "approved", 600),
        ("open", None, "approved", 600),
        (None, "building", None, 60),
        (None, None, None, 300),
        ("closed", "building", "pending", 3600),
        ("merged", "passed", "approved", 3600),
        ("rejected", "building", "approved", 300),
        ("open", "queued", "approved", 300),
        ("open", "passed", "dismissed", 300),
    ],
)
def test_pull_requests(pr: str | None, build: str | None, review: str | None, after: int) -> None:
    assert seconds(LinkKind.PR, issue_state="open", pr_state=pr, build_state=build, review_state=review) == after


def test_stored_urls_mean_a_link_or_none() -> None:
    assert canonical_url("http://www.github.com/o/r/pulls/4/files") == "https://github.com/o/r/pull/4"
    assert [canonical_url(url) for url in ("", "o/r#4", "https://github.com/o/r", None, b"https://github.com/o/r/pull/4")] == [
        None
    ] * 5
