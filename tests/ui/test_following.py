"""What a chat's page is told while it is looked at: each character once, from the place on that the page has reached."""

import asyncio
import re
from collections.abc import Callable
from contextlib import ExitStack, aclosing, suppress
from typing import Any, cast
from urllib.parse import parse_qsl

import pytest

from persist import AsyncStore, PersistError, Store
from persist.store.transaction import Transaction
from persist.ui import create_app
from persist.ui.following import told_of_chat
from persist.ui.views import Listening, Site, Told
from tests.ui.visitor import Heard, Visitor

pytestmark = pytest.mark.usefixtures("notifying")
Chunk = dict[str, Any]


@pytest.fixture
def notifying(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is outside of tests: recorders on Postgres notify followers. Turns that are over are looked for more often."""
    monkeypatch.setenv("PERSIST_NOTIFY_FOLLOWERS", "true")
    monkeypatch.setattr("persist.chat.following.turn_watch._ENDED_EVERY", 0.1)


@pytest.fixture
def chat(state: Store) -> str:
    with state.begin() as tx:
        return tx.chat.sessions.create(agent="build", model={"id": "m"}).id


def start(id: str = "answer") -> Chunk:
    return {"type": "start", "messageId": id}


def words(*pieces: str, kind: str = "text", ends: bool = False) -> list[Chunk]:
    begun: list[Chunk] = [{"type": f"{kind}-start", "id": kind}]
    told: list[Chunk] = [{"type": f"{kind}-delta", "id": kind, "delta": piece} for piece in pieces]
    return [*begun, *told, *([{"type": f"{kind}-end", "id": kind}] if ends else [])]


def record(state: Store, chat: str, *chunks: Chunk) -> None:
    with state.record(chat) as recorder:
        recorder.feed_many([*chunks, {"type": "finish"}])


def grown(heard: list[Heard], place: int) -> str:
    """The text of a part as a page builds it: of each piece what it does not have yet."""
    text = ""
    for one in heard:
        if one.event == "text" and one.data["place"] == place:
            missing = one.data["upto"] - len(text)
            assert missing <= len(one.data["delta"]), "a piece is missing"
            text += one.data["delta"][-missing:] if missing > 0 else ""
    return text


def test_an_idle_page_is_told_of_the_next_answer_however_short(state: Store, visitor: Visitor, chat: str) -> None:
    live = re.findall(r'data-live="([^"]*)"', visitor.get(f"/chat/{chat}").text)[0].replace("&amp;", "&")
    path, _, query = live.partition("?")
    given = dict(parse_qsl(query))
    (first, *_) = visitor.listen(path, 1, lambda: record(state, chat, start(), *words("Once.", ends=True)), **given)
    assert (first.event, first.data["message"]) in (("start", "answer"), ("over", None))
    (again,) = visitor.listen(path, 1, **given)
    assert (again.event, again.data) == ("over", {"message": None})


def test_a_page_goes_on_from_what_it_shows(state: Store, visitor: Visitor, chat: str) -> None:
    with state.record(chat) as recorder:
        recorder.feed_many([start(), {"type": "start-step"}, *words("Once ", "upon ")])
        page = visitor.get(f"/chat/{chat}").text
        assert '<div class="grows live" data-text="text">Once upon </div>' in page
        assert 'data-place="1" data-at="10"' in page
        live = re.findall(r'data-live="([^"]*)"', page)[0]
        cursor = live.partition("after=")[2]
        heard = visitor.listen(
            f"/chat/{chat}/live", 1, lambda: recorder.feed({"type": "text-delta", "id": "text", "delta": "a 🐸"}), after=cursor
        )
        (told,) = heard
        assert (told.event, told.data) == ("text", {"message": "answer", "place": 1, "kind": "text", "delta": "a 🐸", "upto": 13})
        assert visitor.listen(f"/chat/{chat}/live", 1, lambda: recorder.feed({"type": "finish"}), after=told.id)[0].event in (
            "part",
            "over",
        )


def test_a_page_without_a_place_is_told_everything(state: Store, visitor: Visitor, chat: str) -> None:
    with state.record(chat) as recorder:
        recorder.feed_many([start(), *words("I ", "think.", kind="reasoning", ends=True), *words("Hel", "lo")])
        recorder.feed({"type": "tool-input-start", "toolCallId": "c", "toolName": "bash"})
        recorder.feed({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"comm'})
        recorder.feed({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": 'and": 1'})
        for cursor in ("", "odd", "%00"):
            heard = visitor.listen(f"/chat/{chat}/live", 6, after=cursor)
            assert [one.event for one in heard] == ["start", "text", "part", "text", "part", "text"]
            assert [grown(heard, place) for place in range(3)] == ["I think.", "Hello", '{"command": 1']
            assert [one.data["kind"] for one in heard if one.event == "text"] == ["reasoning", "text", "input"]
        recorder.feed({"type": "finish"})


def test_a_viewer_who_comes_back_lacks_nothing(state: Store, visitor: Visitor, chat: str) -> None:
    heard = list[Heard]()
    with state.record(chat) as recorder:
        recorder.feed_many([start(), *words("0 ")])
        for number in range(1, 12):
            recorder.feed({"type": "text-delta", "id": "text", "delta": f"{number} "})
            heard += visitor.listen(f"/chat/{chat}/live", 1, after=heard[-1].id if heard else "")
        recorder.feed({"type": "finish"})
    assert grown(heard, 0) == "".join(f"{number} " for number in range(12))


def told_until(store: Store, chat: str, done: Callable[[list[Told]], Any]) -> list[Told]:
    """What a viewer is told; `done` is called after each event, on a thread, and says when it was enough."""

    async def read(function: Callable[[Transaction], Any]) -> Any:
        with store.read() as tx:
            return function(tx)

    async def run() -> list[Told]:
        told = list[Told]()
        async with asyncio.timeout(30):
            async with aclosing(cast(Any, told_of_chat(Listening(store, Site(), {"id": chat}, {}, read, None)))) as events:
                async for one in events:
                    told.append(one)
                    if await asyncio.to_thread(done, told):
                        break
        return told

    return asyncio.run(run())


def test_the_next_turn_is_told_in_the_same_stream(state: Store, chat: str) -> None:
    first, second = state.record(chat), ExitStack()

    def go_on(told: list[Told]) -> bool:
        if told[-1] == Told("text", {"message": "one", "place": 0, "kind": "text", "delta": "Yes", "upto": 3}, told[-1].id):
            first.feed({"type": "finish"})
            first.close()
            second.enter_context(state.record(chat)).feed_many([start("two"), *words("No")])
        return told[-1].event == "text" and told[-1].data["message"] == "two"

    with first, second:
        first.feed_many([start("one"), *words("Yes")])
        told = told_until(state, chat, go_on)
    assert [(one.event, one.data["message"]) for one in told if one.event != "part"] == [
        ("start", "one"),
        ("text", "one"),
        ("over", "one"),
        ("start", "two"),
        ("text", "two"),
    ]


def test_a_store_that_closes_ends_what_is_told(database_url: str, state: Store, chat: str) -> None:
    other = Store.open(database_url)

    def close(told: list[Told]) -> None:
        if len(told) == 2:
            other.close()

    with state.record(chat) as recorder:
        recorder.feed_many([start(), *words("Once ")])
        assert [one.event for one in told_until(other, chat, close)] == ["start", "text"]
        recorder.feed({"type": "finish"})


def test_a_chat_that_is_deleted_ends_what_is_told(state: Store, chat: str) -> None:
    def delete(told: list[Told]) -> None:
        if told[-1].event == "text":
            state.chat.sessions.delete(chat)

    with suppress(PersistError), state.record(chat) as recorder:
        recorder.feed_many([start(), *words("Once ")])
        assert [one.event for one in told_until(state, chat, delete)][:2] == ["start", "text"]


def test_pages_over_an_asynchronous_store_follow_a_chat(state: Store, chat: str, database_url: str) -> None:
    runner = asyncio.Runner()
    store = runner.run(AsyncStore.open(database_url).__aenter__())
    visitor = Visitor(create_app(store), runner=runner)
    with state.record(chat) as recorder:
        recorder.feed_many([start(), *words("Once ")])
        path, _, query = re.findall(r'data-live="([^"]*)"', visitor.get(f"/chat/{chat}").text)[0].partition("?")

        def go_on() -> None:
            recorder.feed({"type": "text-delta", "id": "text", "delta": "upon"})

        (told,) = visitor.listen(path, 1, go_on, **dict(parse_qsl(query.replace("&amp;", "&"))))
        assert (told.event, told.data["delta"], told.data["upto"]) == ("text", "upon", 9)
        recorder.feed({"type": "finish"})
    runner.run(store.close())
    visitor.close()
