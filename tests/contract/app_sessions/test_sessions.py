"""Sessions of an application's users: events in order, state in three scopes, and writers that are told what they missed."""

from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound, PayloadTooLarge
from persist.framework_state.app_sessions.schemas import ArtifactKey, InHand, LoadedSession, NewEvent, NewMemory, StateChange
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.query_plans import Asked, plan, rows_read, scans

HARD = '{"b":NaN,"a":123456789012345678901234567890,"t":"\\u0000 \\ud83d"}'


def create(store: Any, session_id: str | None = "s", user_id: str = "u", **state: dict[str, str]) -> LoadedSession:
    with store.begin() as tx:
        made: LoadedSession = tx.app_sessions.sessions.create("app", user_id, session_id, state=StateChange(**state))
        return made


def append(store: Any, event: NewEvent, session_id: str = "s", user_id: str = "u", **given: Any) -> Any:
    return store.app_sessions.sessions.append("app", user_id, session_id, event, **given)


def load(store: Any, session_id: str = "s", user_id: str = "u", **given: Any) -> Any:
    return store.app_sessions.sessions.load("app", user_id, session_id, **given)


def event(id: str, timestamp: float = 1.0, data: str = "{}") -> NewEvent:
    return NewEvent(id, timestamp, data)


def test_a_session_is_read_as_it_was_written(store: Any, clock: FrozenClock) -> None:
    made = create(store, app={"a": HARD}, user={"u": "1"}, session={"z": "2", "b": "3"})
    assert made == load(store)
    clock.advance(seconds=5)
    written = append(store, NewEvent("e", 1.25, HARD, "ma\x00ria", "\ud83d"), expected=made.session.marker)
    found = load(store)
    assert found.session == written.session
    assert (found.session.revision, found.session.update_time, found.session.updated_at) == (1, 1.25, clock())
    (stored,) = found.events
    shown = (stored.id, stored.timestamp, stored.data, stored.author, stored.invocation_id)
    assert shown == ("e", 1.25, HARD, "ma\x00ria", "\ud83d")
    assert (found.state.app, found.state.user, list(found.state.session)) == ({"a": HARD}, {"u": "1"}, ["z", "b"])
    assert load(store, "other") is None


def test_an_id_is_taken_once_per_user_of_an_application(store: Any) -> None:
    create(store, session={"k": "1"})
    with pytest.raises(Conflict):
        create(store, app={"a": "1"}, session={"k": "2"})
    assert load(store).state == StateChange(session={"k": "1"})
    create(store, user_id="other")
    assert create(store, None).session.session_id != create(store, None).session.session_id


def test_entries_are_merged_by_key_in_every_scope(store: Any) -> None:
    create(store, "s", app={"a": "1", "b": "1"}, user={"a": "1"}, session={"a": "1", "b": "1"})
    create(store, "t", app={"c": "1"})
    create(store, "s", "other")
    change = StateChange(app={"b": "2"}, user={"b": "2"}, session={"b": "2", "c": "2"})
    append(store, event("e"), state=change)
    mine, sibling, other = load(store), load(store, "t"), load(store, "s", "other")
    assert mine.state == StateChange(
        app={"a": "1", "b": "2", "c": "1"}, user={"a": "1", "b": "2"}, session={"a": "1", "b": "2", "c": "2"}
    )
    assert (sibling.state.app, sibling.state.user, sibling.state.session) == (mine.state.app, mine.state.user, {})
    assert (other.state.app, other.state.user) == (mine.state.app, {})
    assert list(mine.state.session) == ["a", "b", "c"]
    assert store.app_sessions.sessions.user_state("app", "u") == mine.state.user
    assert store.app_sessions.sessions.user_state("app", "nobody") == {}


def test_only_a_writer_who_missed_something_is_refused(store: Any) -> None:
    first = create(store).session.marker
    second = append(store, event("1"), expected=first).session.marker
    with pytest.raises(Conflict) as refused:
        append(store, event("2"), expected=first, state=StateChange(app={"a": "1"}))
    assert refused.value.constraint == "app_user_sessions.revision"
    assert load(store).state == StateChange()
    third = append(store, event("2", 0.5), expected=second).session.marker
    append(store, event("3", 0.5), expected=third)
    append(store, event("4"))
    assert load(store).session.revision == 4
    with pytest.raises(NotFound):
        append(store, event("5"), "unknown")


def test_a_session_that_was_made_again_is_another_one(store: Any) -> None:
    marker = create(store).session.marker
    with store.begin() as tx:
        assert tx.app_sessions.sessions.delete("app", "u", "s")
        assert not tx.app_sessions.sessions.delete("app", "u", "s")
    with pytest.raises(NotFound):
        append(store, event("1"), expected=marker)
    create(store)
    with pytest.raises(Conflict):
        append(store, event("1"), expected=marker)


def test_a_writer_without_a_marker_is_judged_by_what_it_has_in_hand(store: Any) -> None:
    created = create(store).session.update_time
    with pytest.raises(Conflict):
        append(store, event("0"), expected=InHand(["unknown"], created))
    append(store, event("1", created + 1), expected=InHand([], 0.0))
    for outdated in (InHand([], created), InHand(["0"], created + 1)):
        with pytest.raises(Conflict):
            append(store, event("2"), expected=outdated)
    append(store, event("2", created), expected=InHand(["0", "1"], created))
    append(store, event("3", created), expected=InHand([], created))
    assert load(store).session.revision == 3


def test_an_event_that_is_there_is_not_stored_again(store: Any) -> None:
    marker = create(store).session.marker
    append(store, event("1"), expected=marker, state=StateChange(session={"a": "1"}))
    append(store, event("2"), state=StateChange(session={"a": "2"}))
    again = append(store, event("1"), expected=marker, state=StateChange(session={"a": "1"}))
    assert (again.was_there, again.is_newest, again.session.revision) == (True, False, 2)
    assert append(store, event("2"), expected="whatever").is_newest
    assert load(store).state.session == {"a": "2"}
    assert not append(store, event("1", data="[]")).was_there
    assert [one.id for one in load(store).events] == ["1", "2", "1"]


def test_events_are_in_the_order_of_appending_and_timestamps_filter_only(store: Any) -> None:
    create(store)
    for id, timestamp in (("c", 2.0), ("b", 2.0), ("a", 1.0), ("d", 2.0), ("e", 1.0)):
        append(store, event(id, timestamp))

    def ids(**given: Any) -> str:
        return "".join(one.id for one in load(store, **given).events)

    assert ids() == "cbade"
    assert [ids(recent=count) for count in (0, 1, 3, 9)] == ["", "e", "ade", "cbade"]
    assert [ids(since=since) for since in (0, 1.0, 1.5, 2.0, 3)] == ["cbade", "cbade", "cbd", "cbd", ""]
    assert ids(since=1.0, recent=2) == "de"
    assert ids(since=2.0, recent=2) == "bd"


def test_the_last_events_are_read_by_the_index(store: Any, raw: Raw, asked: list[Asked], database_url: str) -> None:
    create(store)
    with store.begin() as tx:
        for number in range(300):
            tx.app_sessions.sessions.append("app", "u", "s", event(f"{number}", 1.0 + number))
    if not raw.is_sqlite:
        raw.rows("ANALYZE app_session_events")
    asked.clear()
    assert [one.id for one in load(store, recent=2).events] == ["298", "299"]
    looks = [statement for statement in asked if "app_session_events.position" in statement[0]]
    if raw.is_sqlite:
        assert [scans(database_url, look) for look in looks] == [[]]
    else:
        assert [rows_read(database_url, look) <= 3 for look in looks] == [True], plan(database_url, looks[0])


def test_an_application_lists_the_session_that_was_used_last_as_the_last(store: Any, clock: FrozenClock) -> None:
    for id, ahead in (("1", 60.0), ("2", 0.0)):
        create(store, id)
        append(store, event("e", clock().timestamp() + ahead), id)
        clock.advance(seconds=1)
    assert [one.session.session_id for one in store.app_sessions.sessions.of_app("app")] == ["1", "2"]


def test_lists(store: Any, clock: FrozenClock) -> None:
    for user, id in (("b", "1"), ("a", "2"), ("a", "1")):
        create(store, id, user, session={"of": f'"{user}{id}"'})
        clock.advance(seconds=1)
    append(store, event("e", clock().timestamp()), "1", "b", state=StateChange(user={"k": "1"}, app={"k": "2"}))
    sessions = store.app_sessions.sessions
    of_all, of_one, none = sessions.of_app("app"), sessions.of_app("app", "b"), sessions.of_app("nothing")
    first = sessions.list(limit=2)
    pages = [*first.items, *sessions.list(limit=2, after=first.cursor).items]
    assert [(one.session.user_id, one.session.session_id) for one in of_all] == [("a", "2"), ("a", "1"), ("b", "1")]
    assert [one.state.user for one in of_all] == [{}, {}, {"k": "1"}]
    assert of_one == of_all[2:]
    assert (of_one[0].events, of_one[0].state.session, of_one[0].state.app, none) == ([], {"of": '"b1"'}, {"k": "2"}, [])
    assert [(one.user_id, one.session_id) for one in pages] == [("b", "1"), ("a", "1"), ("a", "2")]
    assert store.app_sessions.sessions.get(pages[0].id) == pages[0]
    with pytest.raises(NotFound):
        store.app_sessions.sessions.get("unknown")


def test_a_user_is_erased_with_everything(store: Any, raw: Any) -> None:
    for user in ("u", "other"):
        create(store, "s", user, user={"k": "1"}, session={"k": "1"}, app={"k": "1"})
        append(store, event("e"), "s", user)
        with store.begin() as tx:
            tx.app_sessions.artifacts.save(ArtifactKey("app", user, None, "f"), "{}")
            tx.app_sessions.memories.add("app", user, "s", [NewMemory("e", "{}", "hi", ["hi"])])
    with store.begin() as tx:
        assert tx.app_sessions.sessions.erase_user("app", "u") == 7
        assert tx.app_sessions.sessions.erase_user("app", "u") == 0
    tables = (
        "user_sessions",
        "session_events",
        "session_state",
        "user_state",
        "artifacts",
        "artifact_versions",
        "memories",
        "state",
    )
    assert [raw.count(f"app_{table}") for table in tables] == [1] * len(tables)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"event": NewEvent("e", float("nan"), "{}")}, "event.timestamp"),
        ({"event": NewEvent("e", 10**400, "{}")}, "event.timestamp"),
        ({"event": NewEvent("e", 1.0, "{")}, "event.data"),
        ({"event": NewEvent("e", 1.0, "[" * 100_000)}, "event.data"),
        ({"event": NewEvent("", 1.0, "{}")}, "event.id"),
        ({"event": NewEvent("a\x00", 1.0, "{}")}, "event.id"),
        ({"event": {"id": "e"}}, "event"),
        ({"state": StateChange(app={"a\x00": "1"})}, "state.app key"),
        ({"state": StateChange(user={"a": "x"})}, "state.user.a"),
        ({"state": {"a": "1"}}, "state"),
        ({"expected": 5}, "expected"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is(store: Any, given: dict[str, Any], path: str) -> None:
    create(store)
    with pytest.raises(InvalidValue) as refused:
        append(store, **{"event": event("e"), **given})
    assert refused.value.path == path
    assert load(store).session.revision == 0


def test_a_long_key_is_refused(store: Any) -> None:
    create(store)
    with pytest.raises(PayloadTooLarge):
        append(store, event("e"), state=StateChange(session={"k" * 601: "1"}))
    assert load(store).events == []
