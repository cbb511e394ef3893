"""Messages with text that waits to be folded, and what others may have written into them."""

from contextlib import closing
from typing import Any

import pytest

from tests.contract.chat.scenes import create
from tests.contract.conftest import Raw

JSON = {
    "no type": "UPDATE chat_parts SET data_json = '{}' WHERE message_id = 'm-bad'",
    "a list": "UPDATE chat_parts SET data_json = '[]' WHERE message_id = 'm-bad'",
    "null": "UPDATE chat_parts SET data_json = 'null' WHERE message_id = 'm-bad'",
    "text that is a number": (
        'UPDATE chat_parts SET data_json = \'{"type": "text", "text": 5, "state": "streaming"}\' WHERE message_id = \'m-bad\''
    ),
}
"""JSON that is no part, or none that grows; either database takes it."""

ANYTHING = {
    "no JSON": "UPDATE chat_parts SET data_json = 'no JSON' WHERE message_id = 'm-bad'",
    "nothing": "UPDATE chat_parts SET data_json = '' WHERE message_id = 'm-bad'",
    "deep": "UPDATE chat_parts SET data_json = printf('%.*c', 9999, '[') WHERE message_id = 'm-bad'",
    "no UTF-8": "UPDATE chat_parts SET data_json = CAST(x'7bff' AS TEXT) WHERE message_id = 'm-bad'",
    "bytes": "UPDATE chat_parts SET data_json = CAST(x'ff' AS BLOB) WHERE message_id = 'm-bad'",
    "a piece of no UTF-8": "UPDATE chat_part_deltas SET delta = CAST(x'ff' AS TEXT) WHERE seq = 900 AND part_id = {part}",
    "a piece of bytes": "UPDATE chat_part_deltas SET delta = x'ff' WHERE seq = 900 AND part_id = {part}",
    "a piece without a number": "UPDATE chat_part_deltas SET seq = 'last' WHERE seq = 900 AND part_id = {part}",
}
"""What only SQLite can hold besides."""

EVERY = [
    pytest.param(*case, id=name)
    for name, case in (
        *((f"sqlite, {name}", ("sqlite", statement)) for name, statement in (JSON | ANYTHING).items()),
        *((f"postgres, {name}", ("postgres", statement)) for name, statement in JSON.items()),
    )
]
"""Where, and what: each that the database takes."""

OF_BAD = "(SELECT id FROM chat_parts WHERE message_id = 'm-bad')"


def two_waiting(store: Any, url: str) -> tuple[str, str]:
    """Two sessions, each with an answer 'so far' whose pieces ' and on' wait: messages m-bad and m-good."""
    sessions = []
    for message in ("m-bad", "m-good"):
        sessions.append(create(store))
        with store.record(sessions[-1]) as recorder:
            recorder.feed_many([{"type": "start", "messageId": message}, {"type": "text-start", "id": "t"}])
            recorder.feed({"type": "text-delta", "id": "t", "delta": "so far"})
    with closing(Raw(url)) as raw:
        raw.rows("DELETE FROM chat_part_deltas")
        for seq, piece in ((900, " and"), (901, " on")):
            raw.rows(
                "INSERT INTO chat_part_deltas (part_id, seq, created_at, delta)"
                " SELECT id, CAST(? AS BIGINT), 0, CAST(? AS TEXT) FROM chat_parts WHERE message_id IN ('m-bad', 'm-good')",
                seq,
                piece,
            )
    return sessions[0], sessions[1]


def spoil(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run it, and say what there is of the bad part then."""
    with closing(Raw(url)) as raw:
        if raw.is_sqlite:
            raw.rows("PRAGMA foreign_keys = OFF")
        raw.rows(statement.replace("{part}", OF_BAD))
        return rest(raw)


def rest(raw: Raw) -> list[tuple[Any, ...]]:
    """The bad part and every piece that waits, as they are stored."""
    if not raw.is_sqlite:
        waiting = raw.rows("SELECT part_id, seq, delta FROM chat_part_deltas ORDER BY part_id, seq")
        return raw.rows("SELECT CAST(data_json AS TEXT) FROM chat_parts WHERE message_id = 'm-bad'") + waiting
    waiting = raw.rows("SELECT hex(part_id), hex(seq), hex(delta) FROM chat_part_deltas ORDER BY part_id, seq")
    return raw.rows("SELECT hex(data_json), typeof(data_json) FROM chat_parts WHERE message_id = 'm-bad'") + waiting
