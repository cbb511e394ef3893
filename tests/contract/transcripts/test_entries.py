"""Entries of transcripts: order, uuids, parts, exact values, summaries, the last ones, and what may not be stored."""

import json
import math
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from persist import Store
from persist.errors import InvalidValue, NotFound, PayloadTooLarge
from persist.framework_state.transcripts import repository
from persist.maintenance import doctor
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.conftest import Raw
from tests.query_plans import Asked, plan, rows_read, scans

HARD: dict[str, Any] = {
    "z": "\x00 and \ud83d and \udc00 alone, \ufdd0 too, Naïve 😀",
    "a": [math.inf, -math.inf, 0.1, -0.0, 1e16, 1e300, 5e-324],
    "\x00key": {"": None, "true": True},
    "big": [2**63, -(2**63) - 1, 2**64, 10**100],
}


def append(store: Any, *entries: Any, project: str = "p", session: str = "s", **options: Any) -> int:
    return int(store.transcripts.entries.append(project, session, list(entries), **options))


def stored(store: Any, project: str = "p", session: str = "s", **part: str) -> list[Any]:
    return list(store.transcripts.entries.list(project, session, **part))


def one(store: Any, project: str = "p", session: str = "s") -> Any:
    return store.transcripts.sessions.find(project, session)


def uuids(*names: str) -> list[Any]:
    return [{"type": "x", "uuid": name} for name in names]


def count(previous: Any, new: list[Any]) -> Any:
    return {"count": (previous or {"count": 0})["count"] + len(new)}


def test_entries_come_back_in_their_order_and_as_they_were(store: Any) -> None:
    nan = {"type": "x", "value": math.nan}
    assert append(store, HARD, *uuids("b", "a")) == 3
    assert append(store, {"type": "y"}, nan) == 2
    found = stored(store)
    assert found[:4] == [HARD, *uuids("b", "a"), {"type": "y"}]
    assert list(found[0]) == list(HARD)
    assert [type(number) for number in found[0]["a"]] == [float] * 7
    assert math.copysign(1, found[0]["a"][3]) == -1
    assert math.isnan(found[4]["value"])


def test_a_uuid_is_stored_once_in_its_part(store: Any) -> None:
    assert append(store, *uuids("a", "b", "a")) == 2
    assert append(store, *uuids("b", "a", "c")) == 1
    assert append(store, *uuids("a"), subpath="subagents/1") == 1
    assert append(store, *uuids("a"), session="s2") == append(store, *uuids("a"), project="q") == 1
    assert stored(store) == uuids("a", "b", "c")
    assert stored(store, subpath="subagents/1") == uuids("a")


def hooks(uuid: str = "h") -> list[Any]:
    """Lines of a session log that share a uuid, as Claude Code writes what hooks add: each is an entry of its own."""
    bodies: list[Any] = [{"z": 1, "a": [1]}, {"z": 1, "a": [2]}, {"z": 1.0, "a": [1]}]
    return [{"type": "attachment", "uuid": uuid, "attachment": body} for body in bodies]


def test_entries_that_share_a_uuid_and_differ_are_kept_in_their_place(store: Any) -> None:
    first, second, third = hooks()
    lines = [*uuids("a"), first, *uuids("b"), second, third, *uuids("c")]
    assert append(store, *lines[:4], fold=count) == 4  # then the answer is lost, and batches come again that overlap
    assert append(store, *lines[1:5], fold=count) == 1
    for once in (False, True):
        assert append(store, *lines, second, fold=count, once=once) == (0 if once else 1)
        assert stored(store) == lines
    assert one(store).summary == {"count": 6}
    turned = {key: first[key] for key in reversed(first)}
    assert append(store, turned, third, subpath="part") == 2
    assert append(store, first, second, third, subpath="part") == 1
    assert stored(store, subpath="part") == [turned, third, second]


def test_an_entry_is_kept_beside_a_spoilt_one_of_its_uuid(store: Any, raw: Raw) -> None:
    append(store, *uuids("a", "b"))
    raw.rows("UPDATE transcript_entries SET entry = 'no json' WHERE uuid = 'a'")
    if raw.is_sqlite:
        raw.rows("UPDATE transcript_entries SET entry = CAST(x'80' AS TEXT) WHERE uuid = 'a'")
    assert append(store, *uuids("a", "b")) == 1
    assert append(store, *uuids("a", "b")) == 0
    assert stored(store) == uuids("b", "a")


def test_an_entry_is_digested_once_when_it_is_appended(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[Any] = []
    digest = repository._canonical

    def noted(entry: Any) -> Any:
        digested.append(entry)
        return digest(entry)

    monkeypatch.setattr(repository, "_canonical", noted)
    given = uuids("a", "b", "a")
    assert append(store, *given) == 2
    assert digested == given


@pytest.mark.parametrize("uuid", ["\x00", "\ud83d", "\ufdd0", "é" * 5000, "x" * 501])
def test_any_text_is_a_uuid(store: Any, uuid: str) -> None:
    assert append(store, *uuids(uuid)) == 1
    assert append(store, *uuids(uuid)) == 0
    assert append(store, *uuids(uuid + "!")) == 1
    assert [append(store, *hooks(uuid)) for _ in "ab"] == [3, 0]
    assert stored(store) == [*uuids(uuid, uuid + "!"), *hooks(uuid)]


@pytest.mark.parametrize("none", [{}, {"uuid": None}, {"uuid": ""}, {"uuid": 1}, {"uuid": ["a"]}])
def test_an_entry_without_a_uuid_is_appended_every_time(store: Any, none: dict[str, Any]) -> None:
    assert append(store, none, none) == 2
    assert append(store, none) == 1
    assert stored(store) == [none] * 3


def test_an_entry_of_a_file_is_there_as_often_as_in_the_file(store: Any) -> None:
    title = {"type": "title", "title": "x"}
    file = [title, *uuids("a"), title, {"type": "tag"}]
    append(store, *uuids("a"), {"title": "x", "type": "title"})
    assert append(store, *file, once=True) == 2
    assert append(store, *file, once=True) == 0
    assert stored(store) == [*uuids("a"), title, title, {"type": "tag"}]
    assert append(store, *file, title, once=True, subpath="part") == 5


def test_nothing_is_appended_of_nothing(store: Any) -> None:
    assert append(store) == 0
    assert one(store) is None
    assert stored(store) == []


def test_parts_and_projects_are_apart(store: Any) -> None:
    places = [("a/b", "c", ""), ("a", "b/c", ""), ("a", "b", ""), ("a", "b", "c"), ("a", "b", "c/d"), ("a", "b", "C")]
    for number, (project, session, part) in enumerate(places):
        append(store, {"n": number}, project=project, session=session, subpath=part)
    for number, (project, session, part) in enumerate(places):
        assert stored(store, project, session, subpath=part) == [{"n": number}]
    assert store.transcripts.sessions.subpaths("a", "b") == ["C", "c", "c/d"]
    assert store.transcripts.sessions.subpaths("a", "b/c") == store.transcripts.sessions.subpaths("z", "z") == []
    assert [one.session_id for one in store.transcripts.sessions.mains("a")] == ["b", "b/c"]


def test_the_last_entries(store: Any) -> None:
    append(store, *uuids(*"abc"))
    append(store, {"type": "between"}, subpath="part")
    append(store, *uuids(*"de"))
    tail = store.transcripts.entries.tail
    assert tail("p", "s", 2) == uuids("d", "e")
    assert tail("p", "s", 4) == uuids("b", "c", "d", "e")
    assert tail("p", "s", 2**60) == uuids(*"abcde")
    assert tail("p", "s", 0) == tail("p", "nobody", 3) == []
    assert tail("p", "s", 9, subpath="part") == [{"type": "between"}]


def test_the_last_entries_are_read_by_the_index(store: Any, raw: Raw, asked: list[Asked], database_url: str) -> None:
    append(store, *uuids(*map(str, range(2000))))
    if not raw.is_sqlite:
        raw.rows("ANALYZE transcript_entries")
    asked.clear()
    assert store.transcripts.entries.tail("p", "s", 3) == uuids("1997", "1998", "1999")
    looks = [statement for statement in asked if "transcript_entries" in statement[0]]
    assert looks
    for look in looks:
        if raw.is_sqlite:
            assert scans(database_url, look) == []
        else:
            assert rows_read(database_url, look) <= 4, plan(database_url, look)


def test_many_entries_that_are_there_are_found_by_a_plan_for_so_many(database_url: str, raw: Raw, asked: list[Asked]) -> None:
    """A plan for lists of any length compares each entry of the part with each label: the square of their number."""
    given = [*uuids(*map(str, range(100))), *hooks()]
    with Store.open(database_url) as store, store.begin() as tx:
        assert [tx.transcripts.entries.append("p", "s", given) for _ in range(12)] == [103, *[0] * 11]
        if not raw.is_sqlite:
            kept = "SELECT count(*), sum(generic_plans) FROM pg_prepared_statements WHERE statement ~ 'transcript_entries.* ANY '"
            assert [tuple(row) for row in tx._work.select(text(kept))] == [(0, None)]
    if raw.is_sqlite:
        looks = [statement for statement in asked if "transcript_entries" in statement[0]]
        assert looks
        assert [scans(database_url, look) for look in looks] == [[]] * len(looks)


def test_a_summary_is_folded_of_new_entries_of_the_main_part(store: Any) -> None:
    append(store, *uuids("a", "b"), fold=count)
    append(store, *uuids("b", "c"), fold=count)
    append(store, *uuids("b", "c"), fold=count)
    append(store, *uuids("z"), fold=count, subpath="part")
    assert one(store).summary == {"count": 3}


def test_a_summary_is_folded_anew_after_entries_without_one(store: Any) -> None:
    append(store, *uuids("a", "b"))
    assert one(store).summary is None
    append(store, *uuids("c"), fold=count)
    assert one(store).summary == {"count": 3}
    append(store, *uuids("d"))
    assert one(store).summary is None
    append(store, *uuids("d"), fold=count)  # nothing new, and so nothing to fold
    append(store, *uuids("e"), subpath="part")
    append(store, *uuids("f"), fold=count)
    assert one(store).summary == {"count": 5}


def test_a_part_that_was_written_first_is_no_main_part(store: Any, clock: FrozenClock) -> None:
    append(store, *uuids("a"), fold=count, subpath="part")
    found = one(store)
    assert (found.main_at, found.summary, found.length, found.updated_at) == (None, None, 1, clock())
    clock.advance(seconds=1)
    append(store, *uuids("a"), fold=count)
    assert (one(store).main_at, one(store).summary) == (clock(), {"count": 1})


def test_a_summary_comes_back_as_it_was(store: Any) -> None:
    append(store, {}, fold=lambda previous, new: HARD)
    assert json.dumps(one(store).summary) == json.dumps(HARD)


def test_a_fold_that_fails_leaves_nothing_behind(store: Any) -> None:
    def fail(previous: Any, new: list[Any]) -> Any:
        raise LookupError("no")

    with pytest.raises(LookupError), store.begin() as tx:
        tx.transcripts.entries.append("p", "s", uuids("a"), fold=fail)
    assert one(store) is None


def test_instants_never_go_back(store: Any, clock: FrozenClock) -> None:
    append(store, *uuids("a"))
    at = clock()
    clock.advance(seconds=-60)
    append(store, *uuids("b"))
    assert (one(store).created_at, one(store).updated_at, one(store).main_at) == (at, at, at)
    clock.advance(seconds=120)
    append(store, *uuids("c"), subpath="part")
    assert (one(store).updated_at, one(store).main_at) == (at + timedelta(seconds=60), at)


def test_lists_are_newest_first_in_pages(store: Any, clock: FrozenClock) -> None:
    for number in range(5):
        append(store, {}, project=f"p{number % 2}", session=f"s{number}")
        clock.advance(seconds=1)
    with store.read() as tx:
        first = tx.transcripts.sessions.list(limit=3)
        last = tx.transcripts.sessions.list(limit=3, after=first.cursor)
        mine = tx.transcripts.sessions.list(project="p1")
        (found,) = tx.transcripts.sessions.list(session_id="s2").items
        assert tx.transcripts.sessions.get(found.id) == found == tx.transcripts.sessions.find("p0", "s2")
        assert [each.session_id for each in tx.transcripts.sessions.mains("p0")] == ["s4", "s2", "s0"]
        with pytest.raises(NotFound):
            tx.transcripts.sessions.get("trn_nobody")
        with pytest.raises(InvalidValue):
            tx.transcripts.sessions.list(project="p1", after=first.cursor)
    assert [each.session_id for each in (*first.items, *last.items)] == ["s4", "s3", "s2", "s1", "s0"]
    assert last.cursor is None
    assert [each.session_id for each in mine.items] == ["s3", "s1"]


def test_a_session_goes_with_its_parts_and_a_part_alone(store: Any, raw: Raw) -> None:
    def delete(project: str, session: str, **part: str) -> bool:
        return bool(store.transcripts.sessions.delete(project, session, **part))

    for part in ("", "a", "b"):
        append(store, *uuids("x", "y"), subpath=part)
    append(store, {}, session="s2")
    append(store, {}, project="p2")
    append(store, {}, project="p2", session="only a part", subpath="a")
    assert delete("p", "s", subpath="a")
    assert not delete("p", "s", subpath="a")
    assert (stored(store, subpath="a"), len(stored(store)), len(stored(store, subpath="b"))) == ([], 2, 2)
    assert delete("p", "s")
    assert not delete("p", "s")
    assert stored(store) == stored(store, subpath="b") == []
    assert delete("p2", "only a part", subpath="a")
    assert one(store, "p2", "only a part") is None
    assert raw.count("transcript_sessions") == raw.count("transcript_entries") == 2
    append(store, *uuids("x"))
    assert stored(store) == uuids("x")


@each(
    ("entry", "reason"),
    [
        ("text", r"entries\[1\]: expected a dict"),
        (["list"], r"entries\[1\]"),
        (None, r"entries\[1\]"),
        ({"a": {1: "x"}}, r"entries\[1\]\.a: the key 1 is not a string"),
        ({"a": [{"b": (1,)}]}, r"entries\[1\]\.a\[0\]\.b: tuple"),
        ({"a": b"x"}, r"entries\[1\]\.a: bytes"),
        ({"a": {1, 2}}, "set"),
        ({"a": 10**5000}, "it is no JSON"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(store: Any, entry: Any, reason: str) -> None:
    with store.begin() as tx:
        with pytest.raises(InvalidValue, match=reason):
            tx.transcripts.entries.append("p", "s", [*uuids("a"), entry])
        tx.transcripts.entries.append("p", "s", uuids("b"))
    assert stored(store) == uuids("b")


def test_depth_and_size_have_their_limits(store: Any, open_store: Any) -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    circle: dict[str, Any] = {}
    circle["me"] = circle
    for bad in (deep, circle):
        with pytest.raises(InvalidValue, match="nested too deep"):
            append(store, bad)
    with pytest.raises(PayloadTooLarge):
        append(store, {"a": "x" * (64 * 2**20)})


def test_an_entry_that_another_program_spoilt_is_left_out(store: Any, raw: Raw, caplog: pytest.LogCaptureFixture) -> None:
    append(store, *uuids("a", "b", "c"))
    raw.rows("UPDATE transcript_entries SET entry = 'no json' WHERE uuid = 'a'")
    raw.rows("UPDATE transcript_entries SET entry = '[1]' WHERE uuid = 'b'")
    assert stored(store) == uuids("c")
    assert "left out" in caplog.text


# What `doctor` says of transcripts that another program wrote to, and mends.


def test_a_length_behind_its_entries_is_counted_anew(database_url: str) -> None:
    with Store.open(database_url) as store:
        raw = Raw(database_url)
        store.transcripts.entries.append("p", "s", [{"type": "a"}, {"type": "b"}], subpath="part")
        raw.rows("UPDATE transcript_sessions SET length = 1")
        (finding,) = [found for found in doctor(store, fix=True) if found.code == "transcript_length"]
        assert finding.fixed
        assert "entry at 1" in finding.message
        assert [found for found in doctor(store) if found.code == "transcript_length"] == []
        with store.begin() as tx:
            tx.transcripts.entries.append("p", "s", [{"type": "c"}], subpath="part")
            assert [entry["type"] for entry in tx.transcripts.entries.list("p", "s", subpath="part")] == ["a", "b", "c"]
        raw.rows("UPDATE transcript_entries SET entry = 'no json' WHERE position = 0")
        raw.rows("UPDATE transcript_sessions SET summary = '{' ")
        assert {found.code for found in doctor(store)} == {"unreadable"}
        raw.close()
