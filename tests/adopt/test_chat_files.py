"""Chat databases of other implementations: ids of their own, parts that share a place, columns beside the published ones."""

from collections.abc import Callable

from persist import Store
from persist.schema.adopt import Settled
from tests.adopt.files import Foreign
from tests.adopt.shapes import CHAT

Make = Callable[..., Foreign]

ROWS = """
INSERT INTO chat_sessions (id, title, agent, model_json, metadata_json, created_at, updated_at) VALUES
    ('S-1', 'From a column', 'build', '{"provider_id": "p", "model_id": "m"}', '{}', 1700000000000, 1700000000009),
    ('S-2', 'Other', 'build', '{}', '{"title": "Its own"}', 1700000000000, 1700000000008);
INSERT INTO chat_messages (id, session_id, role, metadata_json, hidden_at, created_at, updated_at) VALUES
    ('a', 'S-1', 'user', '{}', NULL, 1700000000001, 1700000000001),
    ('b', 'S-1', 'assistant', '{"agent": "plan"}', NULL, 1700000000002, 1700000000002),
    ('c', 'S-1', 'user', '{}', 1700000000004, 1700000000003, 1700000000003);
INSERT INTO chat_parts (id, message_id, session_id, "index", type, data_json, created_at, updated_at) VALUES
    ('1', 'a', 'S-1', 0, 'text', '{"type":"text","text":"hi"}', 1, 1),
    ('2', 'b', 'S-1', 0, 'step-start', '{"type":"step-start"}', 1, 1),
    ('4', 'b', 'S-1', 1, 'text', '{"type":"text","text":"second"}', 1, 1),
    ('3', 'b', 'S-1', 1, 'text', '{"type":"text","text":"first"}', 1, 1),
    ('5', 'b', 'S-1', 2, 'text', '{"type":"text","text":"third"}', 1, 1),
    ('6', 'b', 'S-1', 9, 'text', '{"type":"text","text":"last"}', 1, 1);
"""


def test_parts_that_share_a_place_get_the_next_free_ones(foreign: Make) -> None:
    file = foreign(CHAT + ROWS)
    report = file.adopt()
    file.assert_kept(report, but=["chat_parts", "chat_messages", "chat_sessions"])
    places = file.rows("""SELECT id, "index" FROM chat_parts WHERE message_id = 'b' ORDER BY 2""")
    assert places == [("2", 0), ("3", 1), ("4", 2), ("5", 3), ("6", 9)]
    assert Settled("chat_parts", "parts that shared a place in their message got the next free ones", 2) in report.settled


def test_transcripts_are_what_they_were(foreign: Make) -> None:
    file = foreign(CHAT + ROWS)
    file.adopt()
    with Store.open(file.url) as store:
        with store.read() as tx:
            first, second = (tx.chat.sessions.get(id) for id in ("S-1", "S-2"))
            assert (first.metadata["title"], second.metadata["title"]) == ("From a column", "Its own")
            messages = tx.chat.messages.list("S-1")
            assert [message["id"] for message in messages] == ["a", "b"]  # the third was hidden in a column
            assert [part.get("text") for part in messages[1]["parts"]] == [None, "first", "second", "third", "last"]
        with store.record("S-1") as recorder:
            recorder.feed({"type": "start", "messageId": "new"})
            recorder.feed({"type": "text-start", "id": "t"})
            recorder.feed({"type": "text-delta", "id": "t", "delta": "more"})
            recorder.feed({"type": "finish"})
        with store.begin() as tx:
            assert tx.chat.messages.list("S-1")[-1]["parts"][0]["text"] == "more"
            assert tx.chat.sessions.fork("S-1", "a").parent_id == "S-1"
            tx.chat.sessions.delete("S-1")
    assert file.rows("SELECT count(*) FROM chat_parts WHERE session_id = 'S-1'") == [(0,)]


def test_what_the_metadata_says_already_is_not_overwritten(foreign: Make) -> None:
    file = foreign(CHAT + ROWS)
    report = file.adopt()
    copied = [settled for settled in report.settled if settled.rule.startswith("the column")]
    assert [(settled.table, settled.count) for settled in copied] == [("chat_sessions", 1), ("chat_messages", 1)]


def test_text_that_is_no_json_is_noted(foreign: Make) -> None:
    broken = ROWS.replace("""'{"type":"step-start"}'""", "'{broken'").replace('"text":"hi"', '"number":18446744073709551616')
    report = foreign(CHAT + broken).adopt()
    assert [(notice.subject, notice.count) for notice in report.notices] == [
        ("chat_parts.data_json", 1),
        ("chat_parts.data_json", 1),
        ("chat_sessions.title", 2),
        ("chat_messages.hidden_at", 1),
    ]
