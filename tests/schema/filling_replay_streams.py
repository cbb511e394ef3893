"""Something of every table of replay streams, made through the public API, and what a reader sees of it."""

from typing import Any

from persist import Store
from persist.store.transaction import Transaction

HARD = "Naïve\x00 text \ud83d stays what it was."


def fill_replay_streams(store: Store) -> None:
    """A session with two streams, of which one begins with a marker, and a session with a stream of the same name."""
    with store.begin() as tx:
        append = tx.replay_streams.messages.append
        append("client-1", "1", None)
        append("client-1", "1", HARD)
        append("client-1", "", '{"n": 1}')
        append("client-2", "1", '{"n": 2}')


def replay_streams_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    streams = tx.replay_streams
    found = streams.sessions.list().items
    return {
        "replay_sessions": {one.id: one.model_dump(mode="json") for one in found},
        "replay_messages": {
            message.id: message.model_dump(mode="json")
            for one in found
            for stream in ("1", "")
            for message in streams.messages.list(one.id, stream)
        },
    }
