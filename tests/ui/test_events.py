"""The pages of the log of events, and what they tell while it grows."""

import asyncio
from typing import Any

import pytest

from persist import AsyncStore, Store
from persist.ui import create_app
from tests.ui.visitor import Visitor


@pytest.fixture
def logging(state: Store) -> Store:
    state.switch_events(True)
    return state


def created(state: Store, name: str = "review", actor: str | None = "anna") -> str:
    with state.begin(actor=actor) as tx:
        return tx.workflows.runs.create(name, trigger_id="pr-1", current_phase="plan").id


def test_a_log_that_is_off_says_how_to_switch_it_on(state: Store, visitor: Visitor) -> None:
    shown = visitor.get("/events")
    assert shown.status == 200
    assert "The log of events is off" in shown.main
    assert "persist events on" in shown.main
    assert "data-live-rows" not in shown.text
    assert visitor.json("/events") == {"items": [], "cursor": None}


def test_events_are_shown_newest_first_and_json_is_that_of_watch(logging: Store, visitor: Visitor) -> None:
    id = created(logging)
    with logging.begin() as tx:
        tx.workflows.runs.cancel(id, reason="no")
    main = visitor.get("/events").main
    assert main.index("run.cancelled") < main.index("run.created")
    assert "anna" in main
    newest, oldest = visitor.json("/events")["items"]
    assert (oldest["type"], oldest["actor"], newest["stream_id"]) == ("run.created", "anna", f"workflow:{id}")
    assert set(oldest) == {"position", "stream_id", "seq", "type", "at", "actor", "data"}


def test_filters_are_patterns_and_stay_in_the_address(logging: Store, visitor: Visitor) -> None:
    created(logging, actor="anna")
    created(logging, actor="ben")
    with logging.begin(actor="anna") as tx:
        tx.events.append("audit", "looked.at", {"what": "door"})
    assert [one["type"] for one in visitor.json("/events", type="looked.*")["items"]] == ["looked.at"]
    assert [one["actor"] for one in visitor.json("/events", actor="ben")["items"]] == ["ben"]
    shown = visitor.get("/events", type="run.*", actor="anna").text
    assert 'value="run.*"' in shown
    assert "/events/live?type=run.%2A&amp;actor=anna&amp;after=" in shown
    assert "fits these filters" in visitor.get("/events", type="nothing").main


def test_all_events_are_on_pages_once(logging: Store, visitor: Visitor) -> None:
    with logging.begin() as tx:
        for number in range(23):
            tx.events.append("audit", "noted", {"number": number})
    seen, before = list[int](), None
    while True:
        page = visitor.json("/events", limit=5, **({} if before is None else {"before": before}))
        seen += [one["data"]["number"] for one in page["items"]]
        before = page["cursor"]
        if before is None:
            break
    assert seen == list(range(23))[::-1]
    assert "older" in visitor.get("/events", limit=5).main


def test_a_stream_is_shown_from_its_beginning(logging: Store, visitor: Visitor) -> None:
    with logging.begin() as tx:
        for number in range(7):
            tx.events.append("audit", "noted", {"number": number})
    first = visitor.json("/events", stream="audit", limit=5)
    rest = visitor.json("/events", stream="audit", limit=5, after=first["cursor"])
    assert [one["seq"] for one in first["items"] + rest["items"]] == [1, 2, 3, 4, 5, 6, 7]
    assert rest["cursor"] is None
    shown = visitor.get("/events", stream="audit", limit=5)
    assert "later" in shown.main
    assert "data-live-rows" not in shown.text
    assert 'data-at="last"' in visitor.get("/events", stream="audit").text


def test_one_event_shows_what_changed(logging: Store, visitor: Visitor) -> None:
    id = created(logging)
    (one,) = visitor.json("/events")["items"]
    shown = visitor.get(f"/events/{one['position']}")
    assert "Added: workflow_runs" in shown.main
    assert f'href="/runs/{id}"' in shown.text
    assert visitor.json(f"/events/{one['position']}") == one


def test_the_stream_of_a_chat_leads_to_the_chat(logging: Store, visitor: Visitor) -> None:
    with logging.begin() as tx:
        tx.chat.sessions.create(id="talk", agent="helper", model={})
        tx.events.append("audit", "noted", {})
    assert 'href="/chat/talk"' in visitor.get("/events", stream="talk").text
    assert "is about" not in visitor.get("/events", stream="audit").main


@pytest.mark.parametrize("position", ["0", "999", "x", "-1", "9" * 40])
def test_an_event_that_is_not_there_is_named(logging: Store, visitor: Visitor, position: str) -> None:
    created(logging)
    answer = visitor.get(f"/events/{position}")
    assert answer.status == 404
    assert position in answer.main


def test_streams_and_readers_are_listed(logging: Store, visitor: Visitor) -> None:
    id = created(logging)
    logging.events.consumers.create("mailer", types=["run.*"])
    main = visitor.get("/events/streams").main
    assert f"workflow:{id}" in main
    assert "mailer" in main
    (stream,) = visitor.json("/events/streams")["items"]
    assert (stream["stream_id"], stream["seq"], stream["type"]) == (f"workflow:{id}", 1, "run.created")


@pytest.mark.parametrize(
    "data", [None, "<script>x</script>", {"changes": [1]}, {"changes": [{"row": 3, "table": {}}]}, {"changes": {}}, [[]]]
)
def test_what_others_wrote_into_the_log_is_shown(logging: Store, visitor: Visitor, data: Any) -> None:
    with logging.begin(actor="<u>") as tx:
        event = tx.events.append("<img src=x>", "<em>", data)
    for path in ("/events", "/events?stream=%3Cimg+src%3Dx%3E", f"/events/{event.position}", "/events/streams"):
        shown = visitor.get(path)
        assert shown.status == 200
        assert not any(tag in shown.text for tag in ("<script>x", "<u>", "<img", "<em>"))


def test_events_come_in_while_somebody_looks(logging: Store, visitor: Visitor) -> None:
    created(logging, "seen")
    (seen,) = visitor.json("/events")["items"]
    created(logging, "missed")
    (missed,) = visitor.listen("/events/live", after=seen["position"])
    assert (missed.event, missed.data.count("<tr>")) == ("rows", 1)
    (came,) = visitor.listen("/events/live", 1, lambda: created(logging, "came"), after=missed.id)
    assert (came.event, came.data.count("<tr>")) == ("rows", 1)
    assert int(came.id or 0) > int(missed.id or 0) > seen["position"]


def test_a_viewer_gets_the_events_that_fit_his_filters(logging: Store, visitor: Visitor) -> None:
    def meanwhile() -> None:
        created(logging)
        with logging.begin(actor="ben") as tx:
            tx.events.append("audit", "noted", {"text": "<script>"})
            tx.events.append("audit", "other", {})

    (heard,) = visitor.listen("/events/live", 1, meanwhile, type="not*", actor="ben")
    assert heard.data.count("<tr>") == 1
    assert "&lt;script&gt;" in heard.data
    (heard,) = visitor.listen("/events/live", 1, stream="audit", seq=1)
    assert heard.data.count("<tr>") == 1
    assert "other" in heard.data


def test_addresses_of_rows_keep_the_prefix_of_a_mount(logging: Store, visit: Any) -> None:
    created(logging)
    (heard,) = visit(mounted="/state").listen("/events/live")
    assert 'href="/state/events/' in heard.data


def test_the_log_of_an_async_store_is_followed_too(database_url: str, logging: Store) -> None:
    runner = asyncio.Runner()
    store = runner.run(AsyncStore.open(database_url).__aenter__())
    visitor = Visitor(create_app(store), runner=runner)
    try:
        assert "No events yet" in visitor.get("/events").main
        (heard,) = visitor.listen("/events/live", 1, lambda: created(logging))
        assert "run.created" in heard.data
    finally:
        runner.run(store.close())
        visitor.close()
