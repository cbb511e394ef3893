"""The pages of sessions on chat platforms."""

from persist import Store
from persist.testing import FrozenClock
from tests.ui.visitor import Visitor


def made(state: Store, platform: str = "slack", channel: str = "ops", thread: str | None = None) -> str:
    return state.messaging.sessions.get_or_create(platform=platform, channel_id=channel, user_id="maria", thread_id=thread).id


def test_sessions_are_listed_filtered_and_paged(state: Store, visitor: Visitor, clock: FrozenClock) -> None:
    assert "tx.messaging.sessions.get_or_create begins one" in visitor.get("/messaging").main
    first = made(state, thread="t1")
    clock.advance(seconds=60)
    made(state, platform="matrix", channel="lobby")
    state.messaging.sessions.deactivate(first)
    main = visitor.get("/messaging").main
    assert main.index("lobby matrix - maria active") < main.index("ops slack t1 maria over")
    assert "lobby" not in visitor.get("/messaging", state="over").main
    assert "No sessions like this." in visitor.get("/messaging", platform="irc").main
    assert [one["id"] for one in visitor.json("/messaging", platform="slack")["items"]] == [first]
    page = visitor.json("/messaging", limit=1)
    assert [one["id"] for one in visitor.json("/messaging", limit=1, after=page["cursor"])["items"]] == [first]
    assert visitor.get("/messaging", state="gone").status == 400


def test_a_session_says_what_was_said_from_the_newest_back(state: Store, visitor: Visitor) -> None:
    id = made(state)
    assert "Nothing was said yet." in visitor.get(f"/messaging/{id}").main
    said = [state.messaging.messages.add(id, role="user", content=f"line {number}.") for number in range(55)]
    state.messaging.sessions.set_agent_session(id, "ses_1")
    page = visitor.get(f"/messaging/{id}")
    assert ("line 54." in page.main, "line 5." in page.main, "line 4." in page.main) == (True, True, False)
    assert 'href="/chat/ses_1"' in page.text
    earlier = visitor.get(f"/messaging/{id}", before=said[5].id).main
    assert ("line 4." in earlier, "line 5." in earlier, "newest messages" in earlier) == (True, False, True)
    found = visitor.json(f"/messaging/{id}")
    assert (found["session"]["id"], len(found["messages"])) == (id, 50)
    assert visitor.get(f"/messaging/{id}", before="x").status == 400


def test_a_missing_session_is_named(visitor: Visitor) -> None:
    answer = visitor.get("/messaging/none")
    assert (answer.status, "There is no messaging session" in answer.main) == (404, True)


def test_hostile_and_long_text_is_shown_in_part(state: Store, visitor: Visitor) -> None:
    id = made(state, channel='"><img src=x onerror=alert(1)>')
    message = state.messaging.messages.add(id, role="assistant", content="<b>\u202e" + "x" * 100_000)
    page = visitor.get(f"/messaging/{id}")
    assert ("<img" in page.text, "<b>\\u202e" in page.text, "\u202e" in page.text) == (False, False, False)
    assert "34,468 characters more" in page.main
    assert len(visitor.get(f"/messaging/{id}", whole=str(message.id)).text) > 100_000
