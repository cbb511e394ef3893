"""Messages: added to a session, and the newest of them read back in the order in which they were said."""

from typing import Any

import pytest

from persist.errors import InvalidValue, NotFound, PayloadTooLarge
from persist.messaging.schemas import MessagingRole
from persist.settings import Settings
from tests.contract.conftest import Raw
from tests.contract.messaging.scenes import NOWHERE, add, end, history, stored, talk, words


@pytest.fixture
def talking(store: Any) -> str:
    """The id of a session."""
    return talk(store).id


def test_a_message_has_every_published_column(store: Any, clock: Any, raw: Raw, talking: str) -> None:
    at = clock.advance(seconds=5)
    made = add(store, talking, "Hello", role="assistant", platform_message_id="1767.001")
    assert type(made.id) is int
    assert (made.session_id, made.role, made.content) == (talking, MessagingRole.ASSISTANT, "Hello")
    assert (made.timestamp, made.platform_message_id) == (at, "1767.001")
    assert history(store, talking) == [made]
    assert raw.rows("SELECT id, session_id, role, content, platform_message_id FROM messaging_messages") == [
        (made.id, talking, "assistant", "Hello", "1767.001")
    ]
    if raw.is_sqlite:
        assert raw.value("SELECT timestamp FROM messaging_messages") == "2026-01-02T03:04:10.678Z"


def test_what_the_platform_delivers_again_is_there_already(store: Any, clock: Any, talking: str) -> None:
    first = add(store, talking, "Hello", platform_message_id="1767.001")
    clock.advance(seconds=5)
    assert add(store, talking, "Hello, edited", platform_message_id="1767.001") == first
    assert history(store, talking) == [first]
    with store.begin() as tx:
        second = tx.messaging.messages.add(talking, role="user", content="Again", platform_message_id="1767.002")
        assert tx.messaging.messages.add(talking, role="user", content="Again", platform_message_id="1767.002") == second
    assert store.messaging.messages.add(talking, role="user", content="Again", platform_message_id="1767.002") == second
    assert history(store, talking) == [first, second]


def test_the_platforms_id_is_a_key_of_the_session_and_the_role(store: Any, talking: str) -> None:
    other = talk(store, user_id="U2").id
    said = [
        add(store, id, words, role=role, platform_message_id="1767.001")
        for id, words, role in [(talking, "Is it?", "user"), (talking, "It is.", "assistant"), (other, "Is it?", "user")]
    ]
    assert len({message.id for message in said}) == 3
    assert [add(store, one.session_id, role=one.role, platform_message_id="1767.001") for one in said] == said
    assert history(store, talking) == said[:2]
    assert [add(store, talking).id for _ in range(2)] == [message.id for message in history(store, talking)[2:]]


def test_a_message_without_its_key_is_not_recognised(store: Any, raw: Raw, talking: str) -> None:
    """As an older persist stored it, perhaps twice."""
    add(store, talking, "old", platform_message_id="1767.001")
    raw.rows("UPDATE messaging_messages SET unique_message_id = NULL")
    new = add(store, talking, "new", platform_message_id="1767.001")
    assert words(history(store, talking)) == ["old", "new"]
    assert add(store, talking, "newer", platform_message_id="1767.001") == new


def test_adding_does_not_touch_the_session(store: Any, clock: Any, talking: str) -> None:
    before = stored(store, talking)
    clock.advance(seconds=5)
    add(store, talking)
    assert stored(store, talking) == before


def test_an_ended_session_still_takes_messages(store: Any, talking: str) -> None:
    end(store, talking)
    add(store, talking, "one more thing")
    assert words(history(store, talking)) == ["one more thing"]


def test_content_has_a_cap(open_store: Any) -> None:
    store = open_store(settings=Settings(max_text_bytes=10))
    session = talk(store).id
    add(store, session, "é" * 5)
    with pytest.raises(PayloadTooLarge) as refused:
        add(store, session, "é" * 5 + "!")
    assert (refused.value.path, refused.value.size, refused.value.limit) == ("content", 11, 10)
    assert words(history(store, session)) == ["é" * 5]


def test_history_is_the_newest_oldest_first(store: Any, clock: Any, talking: str) -> None:
    for number in range(10):
        clock.advance(seconds=1)
        add(store, talking, f"m{number}")
    assert words(history(store, talking, limit=4)) == ["m6", "m7", "m8", "m9"]
    assert words(history(store, talking, limit=1)) == ["m9"]
    assert words(history(store, talking, limit=1000)) == [f"m{number}" for number in range(10)]


def test_messages_of_one_millisecond_keep_their_order(store: Any, talking: str) -> None:
    made = [add(store, talking, f"m{number}") for number in range(6)]
    assert len({message.timestamp for message in made}) == 1
    assert [message.id for message in made] == sorted({message.id for message in made})
    assert history(store, talking) == made
    assert history(store, talking, limit=2) == made[-2:]


def test_an_answer_of_a_host_whose_clock_is_behind_follows_its_question(store: Any, clock: Any, talking: str) -> None:
    asked = add(store, talking, "question")
    clock.advance(seconds=-0.5)
    answered = add(store, talking, "answer", role="assistant")
    other = talk(store, user_id="U2").id
    assert (answered.timestamp, add(store, other).timestamp) == (asked.timestamp, clock())
    assert history(store, talking) == [asked, answered]
    assert history(store, talking, before=answered.id) == [asked]
    clock.advance(seconds=1)
    assert add(store, talking).timestamp == clock()


def test_the_instants_of_other_programs_order_what_they_wrote(store: Any, clock: Any, raw: Raw, talking: str) -> None:
    made = [add(store, talking, text) for text in ("first", "second", "third")]
    for message, instant in zip(made, ("9999-12-31T23:59:59.999Z", "2020-01-01T00:00:00.000Z", "no instant"), strict=True):
        if raw.is_sqlite or instant != "no instant":
            raw.rows("UPDATE messaging_messages SET timestamp = ? WHERE id = ?", instant, message.id)
    assert add(store, talking, "now").timestamp == clock()
    found = words(history(store, talking))
    assert found == (["second", "now", "first"] if raw.is_sqlite else ["second", "third", "now", "first"])


def test_fifty_are_read_unless_asked(store: Any, talking: str) -> None:
    with store.begin() as tx:
        for number in range(51):
            tx.messaging.messages.add(talking, role="user", content=f"m{number}")
    assert words(history(store, talking)) == [f"m{number}" for number in range(1, 51)]


def test_older_messages_are_reached_page_by_page(store: Any, talking: str, clock: Any) -> None:
    """Also where several came in one millisecond."""
    for number in range(7):
        clock.advance(seconds=number % 2)
        add(store, talking, str(number))
    everything = history(store, talking)
    found: list[Any] = []
    while page := history(store, talking, limit=3, before=found[0].id if found else None):
        found = [*page, *found]
    assert found == everything
    with store.read() as tx:
        for before in (everything[-1].id + 1, 0):
            with pytest.raises(NotFound) as missing:
                tx.messaging.messages.history(talking, before=before)
            assert missing.value.kind == "messaging message"
        with pytest.raises(NotFound) as missing:
            tx.messaging.messages.history(NOWHERE, before=everything[0].id)
        assert missing.value.kind == "messaging session"
        wrong: list[Any] = [-1, True, "1", 2**63]
        for place in wrong:
            with pytest.raises(InvalidValue):
                tx.messaging.messages.history(talking, before=place)
