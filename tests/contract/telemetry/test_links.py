"""Links to GitHub: what was found, errors, and which are due."""

from datetime import UTC, timedelta
from typing import Any

import pytest

from persist.errors import InvalidValue, PayloadTooLarge
from persist.telemetry import open_instance, open_workspace
from persist.telemetry.usage import FIGURES
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.contract.telemetry.scenes import EPOCH, do, t, task

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
    shown = sorted(raw.rows("SELECT owner, repo, issue_state FROM github_link_statuses"))
    assert shown == [("o", "r", "open"), ("o", "r", "row 0")]


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


# Usage: one row for each second, sums that know what is not known.


NOTHING = dict.fromkeys(FIGURES)


def sample(store: Any, second: float, me: dict[str, str], **used: int | None) -> dict[str, Any]:
    """Sample -> the row as the verb gave it, which is the row that is there."""
    made = do(store, "usage", "sample", at=t(second), **used, **me)
    total = do(store, "usage", "totals", made.occurred_at, made.occurred_at + timedelta(seconds=1), **me)
    assert total.samples == 1
    figures = {name: getattr(made, name) for name in FIGURES}
    assert figures == {name: getattr(total, name) for name in FIGURES}
    return {name: figure for name, figure in figures.items() if figure is not None}


def test_samples_of_one_second_add_up(store: Any, me: dict[str, str]) -> None:
    assert sample(store, 60, me, token_input=100) == {"token_input": 100}
    assert sample(store, 60.9, me, token_input=50, token_output=7) == {"token_input": 150, "token_output": 7}
    assert sample(store, 60, me, cost_usd_micros=1500) == {"token_input": 150, "token_output": 7, "cost_usd_micros": 1500}
    assert sample(store, 60, me) == {"token_input": 150, "token_output": 7, "cost_usd_micros": 1500}
    assert sample(store, 61, me, token_cache_read=0) == {"token_cache_read": 0}


def test_totals_of_a_range_include_its_beginning_and_not_its_end(store: Any, me: dict[str, str]) -> None:
    for second in (10, 20, 30):
        sample(store, second, me, token_input=second, cost_usd_micros=1)
    asked = {(10, 30): 30, (10.5, 30): 20, (10, 30.5): 60, (None, 20): 10, (20, None): 50, (None, None): 60, (31, None): None}
    found = {
        bounds: do(store, "usage", "totals", *(None if second is None else t(second) for second in bounds), **me).token_input
        for bounds in asked
    }
    assert found == asked


def test_totals_of_what_nobody_knows(store: Any, me: dict[str, str]) -> None:
    empty = do(store, "usage", "totals", **me)
    assert empty.model_dump() == {"samples": 0, **NOTHING}
    sample(store, 1, me, token_input=5)
    sample(store, 2, me)
    assert do(store, "usage", "totals", **me).model_dump() == {"samples": 2, **NOTHING, "token_input": 5}


def test_today_begins_at_midnight_where_we_are(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    midnight = clock().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None).astimezone(UTC)
    for offset in (-1, 0, 1):
        do(store, "usage", "sample", at=midnight + timedelta(seconds=offset), token_input=1, **me)
    assert do(store, "usage", "today", **me).samples == 2
    assert do(store, "usage", "totals", **me).samples == 3


def test_today_ends_at_the_next_midnight(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    """A clock that was ahead says nothing of today."""
    midnight = clock().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    for day, offset in ((0, 0), (1, -1), (1, 0), (366, 0)):
        at = (midnight + timedelta(days=day)).astimezone(UTC) + timedelta(seconds=offset)
        do(store, "usage", "sample", at=at, token_input=1, **me)
    assert do(store, "usage", "today", **me).samples == 2


def test_figures_of_instances_do_not_mix(store: Any) -> None:
    for name in ("a", "b"):
        do(store, "usage", "sample", at=t(1), token_input=1, instance_id=name)
    assert do(store, "usage", "totals", instance_id="a").token_input == 1


def test_a_sum_that_does_not_fit_leaves_the_transaction_usable(store: Any, me: dict[str, str]) -> None:
    most = 2**63 - 1
    store.telemetry.usage.sample(at=t(1), token_input=most, token_output=1, **me)
    with store.begin() as tx:
        with pytest.raises(InvalidValue) as refused:
            tx.telemetry.usage.sample(at=t(1), token_input=1, token_output=1, **me)
        assert refused.value.path == "token_input"
        grown = tx.telemetry.usage.sample(at=t(1), token_input=0, token_output=1, cost_usd_micros=most, **me)
    assert (grown.token_input, grown.token_output, grown.cost_usd_micros) == (most, 2, most)
    totals = do(store, "usage", "totals", **me)
    assert (totals.samples, totals.token_input, totals.token_output, totals.cost_usd_micros) == (1, most, 2, most)


# What agents say they work on, and the audit of their tool calls.


def test_a_tag_said_again_is_one_tag(store: Any, me: dict[str, str]) -> None:
    seen = []
    for second in (100, 150, 120, 95):
        tag = do(store, "tags", "record", "issue", "https://github.com/a/b/issues/1", at=t(second), **me)
        seen.append((tag.first_seen, tag.last_seen))
    assert seen == [(t(100), t(100)), (t(100), t(150)), (t(100), t(150)), (t(95), t(150))]
    assert [(tag.first_seen, tag.last_seen) for tag in do(store, "tags", "list", **me)] == [(t(95), t(150))]


def test_tags_are_told_apart_by_kind_and_value(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    for kind, value in (("repo", "b"), ("link", "a"), ("repo", "a"), ("pr", "Ä")):
        do(store, "tags", "record", kind, value, **me)
    found = do(store, "tags", "list", **me)
    assert [(tag.kind, tag.value) for tag in found] == [("link", "a"), ("pr", "Ä"), ("repo", "a"), ("repo", "b")]
    assert {tag.first_seen for tag in found} == {clock().replace(microsecond=0)}
    assert [tag.value for tag in do(store, "tags", "list", kind="repo", **me)] == ["a", "b"]
    assert do(store, "tags", "list", kind="issue", **me) == []


def test_tags_that_are_none_are_refused(store: Any, me: dict[str, str]) -> None:
    with store.begin() as tx:
        with pytest.raises(PayloadTooLarge):
            tx.telemetry.tags.record("link", "ä" * 2048 + "x", **me)
        tx.telemetry.tags.record("link", "ä" * 2048, **me)


def called(store: Any, me: dict[str, str]) -> list[Any]:
    calls = [("bash", 0), ("edit", None), ("bash", 1), ("edit", -9), ("bash", 0)]
    return [
        do(store, "tools", "record", key, exit_code=code, duration_ms=index, at=t(50 - index), **me)
        for index, (key, code) in enumerate(calls)
    ]


def test_the_last_calls_are_the_newest_first(store: Any, me: dict[str, str]) -> None:
    made = called(store, me)
    assert do(store, "tools", "last", **me) == made[::-1]
    assert do(store, "tools", "last", 2, **me) == made[:-3:-1]


def test_calls_of_one_tool_and_failures(store: Any, me: dict[str, str]) -> None:
    made = called(store, me)
    assert do(store, "tools", "last", tool_key="edit", **me) == [made[3], made[1]]
    assert do(store, "tools", "last", failures_only=True, **me) == [made[3], made[2]]
    assert do(store, "tools", "last", tool_key="bash", failures_only=True, **me) == [made[2]]
    assert do(store, "tools", "last", tool_key="other", **me) == []


def test_a_call_of_which_little_is_known(store: Any, me: dict[str, str], clock: FrozenClock) -> None:
    call = do(store, "tools", "record", "bash", **me)
    assert (call.exit_code, call.duration_ms, call.occurred_at) == (None, None, clock().replace(microsecond=0))


def test_older_calls_are_reached_page_by_page(store: Any, me: dict[str, str]) -> None:
    with store.begin() as tx:
        for number in range(7):
            tx.telemetry.tools.record("read", exit_code=number % 2, **me)
        everything = tx.telemetry.tools.last(**me)
        found: list[Any] = []
        while page := tx.telemetry.tools.last(3, before=found[-1].id if found else None, **me):
            found += page
        assert found == everything
        failed = tx.telemetry.tools.last(failures_only=True, before=everything[1].id, **me)
    assert failed == [call for call in everything[2:] if call.exit_code]


# Whose rows a call means: '' and the file's own id are one on SQLite, and a server wants to be told.


CALLS: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    ("status", "record", ("busy",), {}),
    ("status", "current", (), {}),
    ("status", "durations", (t(0), t(1)), {}),
    ("tags", "record", ("repo", "x"), {}),
    ("links", "due", (), {}),
    ("usage", "sample", (), {"at": t(1)}),
    ("usage", "totals", (), {}),
    ("tools", "record", ("bash",), {}),
    ("tools", "trim", (), {}),
    ("tasks", "poll", ([],), {}),
    ("tasks", "claim", ("x",), {}),
]


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]}.{call[1]}")
def test_a_server_wants_to_know_whose(store: Any, call: tuple[str, str, tuple[Any, ...], dict[str, Any]]) -> None:
    aggregate, verb, values, named = call
    with store.begin() as tx, pytest.raises(InvalidValue, match="_id"):
        getattr(getattr(tx.telemetry, aggregate), verb)(*values, **named)


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_server_refuses_a_raw_row_without_an_owner(store: Any, raw: Any) -> None:
    """The row of a program that set nothing; one that says whose it is in its session is let in."""
    with pytest.raises(Exception, match="instance_id"):
        raw.rows("INSERT INTO status_log (occurred_at, new_status) VALUES (1, 'busy')")
    raw.rows("SET persist.instance_id = 'box'")
    raw.rows("INSERT INTO status_log (occurred_at, new_status) VALUES (1, 'busy')")
    assert do(store, "status", "current", instance_id="box").new_status == "busy"


def test_values_show_the_owner_that_was_named(store: Any) -> None:
    assert do(store, "status", "record", "busy", instance_id="a").instance_id == "a"
    assert do(store, "tags", "record", "repo", "x", instance_id="a").instance_id == "a"
    assert do(store, "links", "record_error", "https://github.com/o/r/pull/1", "x", instance_id="a").instance_id == "a"
    assert do(store, "usage", "sample", at=t(1), instance_id="a").instance_id == "a"
    assert do(store, "tools", "record", "bash", instance_id="a").instance_id == "a"
    assert do(store, "status", "current", instance_id="b") is None


def test_a_files_own_rows_are_found_by_its_id_and_without_one(tmp_path: Any, open_raw: Any) -> None:
    with open_instance(tmp_path, "box") as store:
        raw = open_raw(f"sqlite:///{store.path}")
        raw.rows("INSERT INTO status_log (occurred_at, new_status) VALUES (1, 'busy')")
        for named in ({}, {"instance_id": "box"}):
            assert do(store, "status", "record", "busy", **named) is None
            assert do(store, "status", "current", **named).instance_id == "box"
            do(store, "usage", "sample", at=t(1), token_input=1, **named)
        do(store, "status", "record", "busy", instance_id="guest")
        assert do(store, "usage", "totals").token_input == 2
        assert raw.rows("SELECT DISTINCT instance_id FROM usage_samples") == [("",)]
        assert raw.rows("SELECT instance_id FROM status_log ORDER BY id") == [("",), ("guest",)]


def test_a_workspaces_tasks_likewise(tmp_path: Any, open_raw: Any) -> None:
    with open_workspace(tmp_path / "queue.db", "ws") as store:
        do(store, "tasks", "poll", [task("a")])
        assert do(store, "tasks", "poll", [task("a")], workspace_id="ws") == 0
        assert do(store, "tasks", "claim", "x", workspace_id="ws").workspace_id == "ws"
        assert open_raw(f"sqlite:///{store.path}").rows("SELECT workspace_id FROM tasks") == [("",)]
