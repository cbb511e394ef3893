"""What the tests of chat share: streams to record, the vectors of the AI SDK, and short ways to say the usual things."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from persist.chat.reducer import reduce
from tests.streams.vectors import VECTORS as VECTORS

Chunk = dict[str, Any]
Message = dict[str, Any]

MODEL = {"provider_id": "anthropic", "model_id": "claude"}


def text(*pieces: str, id: str = "t") -> list[Chunk]:
    """A text part in as many deltas as there are pieces."""
    deltas = [{"type": "text-delta", "id": id, "delta": piece} for piece in pieces]
    return [{"type": "text-start", "id": id}, *deltas, {"type": "text-end", "id": id}]


def step(*chunks: Chunk) -> list[Chunk]:
    return [{"type": "start-step"}, *chunks, {"type": "finish-step"}]


def turn(*chunks: Chunk, id: str | None = None) -> list[Chunk]:
    """A whole stream: start, one step, finish."""
    start: Chunk = {"type": "start"} if id is None else {"type": "start", "messageId": id}
    return [start, *step(*chunks), {"type": "finish", "finishReason": "stop"}]


def call(name: str, call_id: str, arguments: Any = None) -> Chunk:
    return {"type": "tool-input-available", "toolCallId": call_id, "toolName": name, "input": arguments}


def approval(approval_id: str, call_id: str) -> Chunk:
    return {"type": "tool-approval-request", "approvalId": approval_id, "toolCallId": call_id}


def output(call_id: str, value: Any) -> Chunk:
    return {"type": "tool-output-available", "toolCallId": call_id, "output": value}


def create(store: Any, **fields: Any) -> str:
    """A new session's id."""
    session = store.chat.sessions.create(**{"agent": "build", "model": MODEL, **fields})
    return str(session.id)


def say(store: Any, session_id: str, words: str, *, role: str = "user", **fields: Any) -> str:
    """A new message's id."""
    message = store.chat.messages.append(session_id, role=role, parts=[{"type": "text", "text": words}], **fields)
    return str(message.id)


def record(store: Any, session_id: str, chunks: Iterable[Chunk], **options: Any) -> str | None:
    """Record a stream chunk by chunk -> the id of its (last) message."""
    with store.record(session_id, **options) as recorder:
        for chunk in chunks:
            recorder.feed(chunk)
        message_id: str | None = recorder.message_id
    return message_id


def shown(store: Any, session_id: str, **options: Any) -> list[Message]:
    messages: list[Message] = store.chat.messages.list(session_id, **options)
    return messages


def words(messages: Iterable[Message]) -> list[str]:
    """The text of each message."""
    return ["".join(part.get("text", "") for part in message["parts"]) for message in messages]


def session_of(store: Any, session_id: str) -> Any:
    return store.chat.sessions.get(session_id)


def rollup(store: Any, session_id: str) -> tuple[int, int, int, int, int, int]:
    """prompt, completion, reasoning, cache_read, cache_write, total."""
    found = session_of(store, session_id)
    return (
        found.prompt_tokens,
        found.completion_tokens,
        found.reasoning_tokens,
        found.cache_read,
        found.cache_write,
        found.total_tokens,
    )


def eventually(check: Callable[[], bool], *, seconds: float = 20.0) -> bool:
    """Whether it came true before a generous deadline."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def recordable(vector: dict[str, Any]) -> list[Chunk]:
    """The chunks to feed: one that continues a message names it first, and a frame after an abort counts for nothing."""
    initial = vector.get("initial")
    chunks = list(vector["chunks"])
    return [{"type": "start", "messageId": initial["id"]}, *chunks] if initial else chunks


def lead(vector: dict[str, Any]) -> int:
    """How many chunks `recordable` put before those of the vector."""
    return 1 if vector.get("initial") else 0


def aborted_at(vector: dict[str, Any]) -> int | None:
    return next((at for at, chunk in enumerate(vector["chunks"]) if chunk["type"] == "abort"), None)


def final(vector: dict[str, Any]) -> Message:
    """The message in the end. The SDK goes on after an abort, the recorder does not."""
    at = aborted_at(vector)
    return vector["message"] if at is None else reduce(vector["chunks"][: at + 1], vector.get("initial"), ai_sdk=vector["ai_sdk"])


def same_message(found: Message, expected: Message, *, but: Iterable[str] = ()) -> bool:
    """Equal, but for metadata keys of the recorder's own and the id minted where the stream named none."""
    metadata = {key: value for key, value in found.get("metadata", {}).items() if key not in but}
    wanted = {key: value for key, value in (expected.get("metadata") or {}).items() if key not in but}
    named = found["id"] == expected["id"] if expected["id"] else len(found["id"]) == 30
    return named and metadata == wanted and (found["role"], found["parts"]) == (expected["role"], expected["parts"])
