"""Files that keep progressions as arrays, and message content in columns that make numbers of text."""

from collections.abc import Callable

import pytest

from persist import Store
from persist.schema.adopt import Settled
from tests.adopt.files import Foreign
from tests.adopt.shapes import CONVERSATIONS, NEWER_CONVERSATIONS

Make = Callable[..., Foreign]

TYPES = """
INSERT INTO message_types VALUES (0, '__unknown__'), (1, 'lionagi.protocols.messages.system.System'),
    (2, 'lionagi.protocols.messages.instruction.Instruction'), (6, 'my.own.Class');
"""
ROWS = """
INSERT INTO messages (id, created_at, content, role, lion_class, embedding) VALUES
    ('m0', 1700000000.25, '42', 'user', 2, X'0000803f'), ('m1', 1700000001.0, '3.5', 'user', 6, NULL),
    ('m2', 1700000002.0, '"42"', 'user', 0, NULL), ('m3', 1700000003.0, '{"a": [1]}', 'user', 1, NULL),
    ('m4', 1700000004.0, '1180591620717411303424', 'user', 1, NULL);
INSERT INTO progressions VALUES ('p1', 1700000000.0, '["m0", "m1", "m0", "gone"]'), ('p2', 1700000000.0, '["m1","m2"]'),
    ('p3', 1700000000.0, '[]');
INSERT INTO sessions (id, created_at, name, progression_id, updated_at, status, started_at) VALUES
    ('s1', 1700000000.0, 'one', 'p1', 1700000009.0, 'running', 1700000005.0),
    ('s2', 1700000001.0, 'two', 'p3', 1700000008.0, NULL, NULL);
INSERT INTO branches (id, created_at, session_id, progression_id, node_metadata) VALUES
    ('b1', 1700000000.0, 's1', 'p2', '{"provider": "x"}'),
    ('b2', 1700000001.0, 's1', 'p3', '{"parent_branch_id": "b1", "forked_at_ord": 1}');
INSERT INTO plays VALUES ('play', 's2');
"""
SHAPES = pytest.mark.parametrize("script", [CONVERSATIONS, NEWER_CONVERSATIONS], ids=["schema-1", "schema-4"])


@SHAPES
def test_arrays_become_members_and_everything_stays(foreign: Make, script: str) -> None:
    file = foreign(script + TYPES + ROWS)
    report = file.adopt()
    file.assert_kept(report, but=["message_types"])
    assert report.moved == 6
    assert file.rows("SELECT ord, message_id FROM progression_members WHERE progression_id = 'p1' ORDER BY ord") == [
        (0, "m0"),
        (1, "m1"),
        (2, "m0"),
        (3, "gone"),
    ]
    assert file.rows("SELECT folded FROM progressions ORDER BY id") == [(4,), (2,), (0,)]
    assert file.rows("SELECT value FROM schema_meta") == [("1" if script is CONVERSATIONS else "4",)]


@SHAPES
def test_content_is_read_as_it_was_written(foreign: Make, script: str) -> None:
    file = foreign(script + TYPES + ROWS)
    report = file.adopt()
    with Store.open(file.url, read_only=True) as store, store.read() as tx:
        found = tx.conversations.messages.get_many([f"m{number}" for number in range(4)])
        contents = [found[f"m{number}"].content for number in range(4)]
        assert contents == [42, 3.5, "42", {"a": [1]}]
        assert [type(content) for content in contents] == [int, float, str, dict]
        assert found["m0"].embedding == [1.0]
        assert found["m1"].lion_class_str == "my.own.Class"
    assert [(notice.subject, notice.count) for notice in report.notices] == [
        ("messages.content", 1),
        ("schema_meta", 1),
        ("plays", 1),
    ]


@SHAPES
def test_sessions_and_branches_live_on(foreign: Make, script: str) -> None:
    file = foreign(script + TYPES + ROWS)
    file.adopt()
    with Store.open(file.url) as store, store.begin() as tx:
        assert [item.id for item in tx.conversations.branches.history("b2")] == ["m1"]
        assert tx.conversations.progressions.append("p1", "m2")
        assert not tx.conversations.progressions.append("p1", "m0")
        assert tx.conversations.sessions.set_status("s1", "completed", reason="done")
        assert tx.conversations.sessions.transitions("s1")[-1].reason_code is None
        assert tx.conversations.sessions.get("s1").last_message_at == tx.conversations.sessions.get("s1").started_at
        put = tx.conversations.messages.put({"id": "new", "role": "user", "content": 7, "created_at": 1.0})
        assert tx.conversations.messages.get("new") == put
    assert file.rows("SELECT typeof(content) FROM messages WHERE id = 'new'") == [("integer",)]


def test_numbers_of_classes_are_made_the_published_ones(foreign: Make) -> None:
    moved = TYPES.replace("(1, 'lionagi", "(2, 'lionagi", 1).replace(
        "(2, 'lionagi.protocols.messages.i", "(3, 'lionagi.protocols.messages.i"
    )
    moved = moved.replace("(6, 'my", "(1, 'my")
    rows = ROWS.replace("'user', 6", "'user', 1_").replace("'user', 1,", "'user', 2_,").replace("'user', 2,", "'user', 3,")
    file = foreign(CONVERSATIONS + moved + rows.replace("1_", "1").replace("2_", "2"))
    report = file.adopt()
    assert file.rows("SELECT type_id, lion_class FROM message_types WHERE type_id IN (1, 2, 6) ORDER BY 1") == [
        (1, "lionagi.protocols.messages.system.System"),
        (2, "lionagi.protocols.messages.instruction.Instruction"),
        (6, "my.own.Class"),
    ]
    assert file.rows("SELECT id, lion_class FROM messages ORDER BY id") == [("m0", 2), ("m1", 6), ("m2", 0), ("m3", 1), ("m4", 1)]
    assert report.settled == (
        Settled("message_types", "message classes got their published numbers", 3),
        Settled("messages", "messages follow the numbers of their classes", 4),
    )


def test_an_array_that_cannot_be_read_is_noted_and_stays(foreign: Make) -> None:
    file = foreign(CONVERSATIONS + "INSERT INTO progressions VALUES ('p', 1.0, '[1, 2]'), ('q', 1.0, 'nonsense')")
    report = file.adopt()
    file.assert_kept(report, but=["message_types"])
    assert ("progressions.collection", 2) in [(notice.subject, notice.count) for notice in report.notices]
    assert report.moved == 0


def test_long_progressions_keep_their_order(foreign: Make) -> None:
    ids = [f"m{number}" for number in range(12_000)]
    text = "[" + ",".join(f'"{id}"' for id in ids) + "]"
    file = foreign(CONVERSATIONS + f"INSERT INTO progressions VALUES ('p', 1.0, '{text}')")
    file.adopt()
    with Store.open(file.url) as store, store.read() as tx:
        assert tx.conversations.progressions.get("p") == ids
