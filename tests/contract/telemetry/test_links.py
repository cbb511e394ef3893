"""Links to GitHub: what was found, errors, and which are due."""

from datetime import timedelta
from typing import Any

import pytest

from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.contract.telemetry.scenes import EPOCH, do, t

URL = "https://github.com/owner/repo/pull/{}"
T = 1_000_000
OPEN = {"pr_state": "open", "build_state": "passed", "review_state": "pending", "pr_is_draft": False}


def fetch(store: Any, me: dict[str, str], number: int, **found: Any) -> Any:
    return do(store, "links", "upsert", URL.format(number), **{"fetched_at": t(T), **found}, **me)


def test_a_link_is_one_row_however_it_is_written(store: Any, me: dict[str, str]) -> None:
    first = do(store, "links", "upsert", "https://github.com/o/r/issues/7#comment", fetched_at=t(T), issue_state="open", **me)
    assert (first.url, first.kind, first.host) == ("https://github.com/o/r/issue/7", "issue", "github.com")
    assert (first.owner, first.repo, first.resource_number) == ("o", "r", 7)
    second = do(store, "links", "upsert", "http://www.GitHub.com/o/r/issue/7/", fetched_at=t(T + 1), issue_state="closed", **me)
    assert second.url == first.url
    assert do(store, "links", "list", **me) == [second]
    assert do(store, "links", "get", "https://github.com/o/r/issues/7", **me) == second
    assert do(store, "links", "get", "https://github.com/o/r/issues/8", **me) is None


def test_what_is_fetched_takes_the_place_of_everything_before(store: Any, me: dict[str, str]) -> None:
    fetch(store, me, 1, **OPEN)
    link = fetch(store, me, 1, pr_state="merged")
    assert (link.pr_state, link.build_state, link.review_state, link.pr_is_draft) == ("merged", None, None, None)
    assert link.refresh_after == t(T + 3600)
    assert do(store, "links", "get", URL.format(1), **me) == link


def test_an_error_keeps_what_is_known_and_success_clears_it(store: Any, me: dict[str, str]) -> None:
    """10"""
    known = fetch(store, me, 1, **OPEN)
    failed = do(store, "links", "record_error", URL.format(1), "502 \x00", at=t(T + 60), **me)
    assert failed == known.model_copy(update={"last_error": "502 \x00", "refresh_after": t(T + 360)})
    assert do(store, "links", "get", URL.format(1), **me) == failed
    again = fetch(store, me, 1, **OPEN, fetched_at=t(T + 400))
    assert (again.last_error, again.refresh_after) == (None, t(T + 700))


def test_a_link_that_was_never_fetched_has_no_states(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    link = do(store, "links", "record_error", URL.format(1), "timeout", **me)
    assert link.fetched_at == EPOCH
    assert {link.issue_state, link.pr_state, link.build_state, link.review_state, link.pr_is_draft} == {None}
    assert link.refresh_after == clock().replace(microsecond=0) + timedelta(seconds=300)


OTHERS = [
    "https://github.com/o/r/issues/7",
    "http://www.GitHub.com/o/r/Issues/007/?q=1#c",
    "https://github.com/o/r/issue/7/timeline",
    "https://github.com:443/o/r/issues/7",
    "http://github.com:80/o/r/issues/7",
]


def insert(raw: Raw, me: dict[str, str], url: str, fetched: int = T, number: int = 7, state: str = "open") -> None:
    """A row as another program writes it."""
    raw.rows(
        "INSERT INTO github_link_statuses (instance_id, url, kind, host, owner, repo, resource_number, issue_state, fetched_at,"
        " refresh_after) VALUES (?, ?, 'issue', 'github.com', 'o', 'r', ?, ?, ?, ?)",
        *(me.get("instance_id", ""), url, number, state, fetched, fetched + 600),
    )


@pytest.mark.parametrize("url", OTHERS)
def test_a_link_that_another_program_wrote_is_that_link(store: Any, raw: Raw, me: dict[str, str], url: str) -> None:
    insert(raw, me, url)
    canonical = "https://github.com/o/r/issue/7"
    found = do(store, "links", "get", canonical, **me)
    assert (found.url, found.issue_state) == (url, "open")
    assert do(store, "links", "get", url, **me) == found
    assert do(store, "links", "due", now=t(T + 600), **me) == [found]
    failed = do(store, "links", "record_error", canonical, "502", at=t(T + 600), **me)
    assert (failed.issue_state, failed.last_error, failed.fetched_at) == ("open", "502", t(T))
    fresh = do(store, "links", "upsert", canonical, fetched_at=t(T + 900), issue_state="closed", **me)
    assert do(store, "links", "list", **me) == [fresh]
    assert raw.rows("SELECT url, issue_state FROM github_link_statuses") == [(url, "closed")]
    assert do(store, "links", "due", now=t(T + 900), **me) == []


@pytest.mark.parametrize("number", [0, 8])
def test_a_row_whose_number_is_not_that_of_its_url_is_the_link_of_its_url(
    store: Any, raw: Raw, me: dict[str, str], number: int
) -> None:
    insert(raw, me, "https://github.com/o/r/issues/7", number=number)
    insert(raw, me, "https://github.com/o/r/issues/0007", fetched=T - 9, number=number + 1)
    insert(raw, me, "https://github.com/o/r/issues/70", number=70)
    canonical = "https://github.com/o/r/issue/7"
    assert do(store, "links", "get", canonical, **me).fetched_at == t(T)
    assert [link.url for link in do(store, "links", "due", now=t(T + 599), **me)] == []
    fresh = do(store, "links", "upsert", canonical, fetched_at=t(T + 900), issue_state="open", **me)
    assert fresh.resource_number == 7
    assert [link.resource_number for link in do(store, "links", "due", now=t(T + 900), **me)] == [70]
    assert raw.rows("SELECT COUNT(*) FROM github_link_statuses") == [(2,)]


@pytest.mark.parametrize("verb", ["upsert", "record_error"])
def test_of_several_rows_of_a_link_the_one_fetched_last_counts(store: Any, raw: Raw, me: dict[str, str], verb: str) -> None:
    do(store, "links", "upsert", OTHERS[0], fetched_at=t(T), issue_state="ours", **me)
    for age, url in enumerate(OTHERS):
        insert(raw, me, url, fetched=T + 10 - age, state=f"row {age}")
    insert(raw, me, "https://github.com/o/other/issues/7")
    assert do(store, "links", "get", OTHERS[2], **me).issue_state == "row 0"
    assert {link.issue_state for link in do(store, "links", "list", **me)} == {"row 0", "open"}
    assert {link.issue_state for link in do(store, "links", "due", now=t(T + 9999), limit=2, **me)} == {"row 0", "open"}
    assert [link.issue_state for link in do(store, "links", "due", now=t(T + 609), **me)] == ["open"]
    if verb == "upsert":
        after = do(store, "links", "upsert", OTHERS[1], fetched_at=t(T + 99), issue_state="row 0", **me)
    else:
        after = do(store, "links", "record_error", OTHERS[1], "502", at=t(T + 99), **me)
    assert (after.issue_state, after.refresh_after > t(T + 99)) == ("row 0", True)
    assert sorted(raw.rows("SELECT owner, repo, issue_state FROM github_link_statuses")) == [
        ("o", "r", "open"),
        ("o", "r", "row 0"),
    ]


def test_what_is_due_ends_when_each_was_fetched(store: Any, raw: Raw, me: dict[str, str]) -> None:
    """Rows that mean no link, or one that another row knows better, take the place of none."""
    for number in range(1, 9):
        insert(raw, me, f"https://github.com/o/r/issues/{number}", number=number)
        insert(raw, me, f"https://github.com/o/r/issues/{number}/", fetched=T - 50, number=number)
        insert(raw, me, f"https://github.com/o/r/wiki/{number}", fetched=T - 100, number=number)
    seen = []
    for _ in range(3):
        for link in do(store, "links", "due", now=t(T + 700), **me):
            seen.append(link.resource_number)
            do(store, "links", "upsert", link.url, fetched_at=t(T + 700), issue_state="open", **me)
    assert seen == list(range(1, 9))


def test_links_are_due_when_their_time_has_come(store: Any, me: dict[str, str]) -> None:
    """10"""
    fetch(store, me, 600, **OPEN | {"review_state": "approved"})
    fetch(store, me, 300, **OPEN)
    fetch(store, me, 60, **OPEN | {"build_state": "building"})
    fetch(store, me, 3600, pr_state="closed")

    def due(seconds: float, **options: Any) -> list[int]:
        return [link.resource_number for link in do(store, "links", "due", now=t(T + seconds), **options, **me)]

    assert due(59.9) == []
    assert due(300) == [60, 300]
    assert due(10_000) == [60, 300, 600, 3600]
    assert due(10_000, limit=1) == [60]


def test_at_most_five_are_due_at_once(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    for number in range(7):
        do(store, "links", "record_error", URL.format(number + 1), "x", **me)
    assert do(store, "links", "due", **me) == []
    clock.advance(seconds=300)
    assert [link.resource_number for link in do(store, "links", "due", **me)] == [1, 2, 3, 4, 5]
    assert len(do(store, "links", "due", limit=100, **me)) == 7


def test_words_of_others_are_kept(store: Any, me: dict[str, str]) -> None:
    link = fetch(store, me, 1, pr_state="open", build_state="queued", review_state="dismissed")
    assert (link.build_state, link.review_state, link.refresh_after) == ("queued", "dismissed", t(T + 300))
