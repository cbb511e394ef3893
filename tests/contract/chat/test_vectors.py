"""What the real `ai` package makes of a stream is what the store holds, at the end and whenever the recorder is cut off."""

from itertools import zip_longest
from typing import Any

import pytest

from persist.errors import Conflict, StreamProtocolError
from persist.settings import AiSdk
from tests.contract.chat.scenes import (
    VECTORS,
    Message,
    aborted_at,
    create,
    final,
    lead,
    record,
    recordable,
    same_message,
    say,
    shown,
    text,
)

OWNED = ("model", "agent", "system_prompt_digest", "stopped_at")

# Where the reducer, which knows one message, and the recorder, which knows the session, differ: a user message is none that an
# assistant's stream may continue, the result of an earlier message's call finds its part, and a message that the stream comes
# back to goes on. Each has a test of its own.
APART = {"resume-user-message", "start-other-id-forgets-tool-call", "start-three-messages", "fatal-new-message-forgets-approval"}
RECORDABLE = [vector for vector in VECTORS if vector["name"] not in APART]


def _differs(vector: dict[str, Any]) -> bool:
    name: str = vector["name"]
    return name.startswith(("approval", "reset", "resume", "text-open", "steering", "fatal"))


RECORDED = [vector for at, vector in enumerate(RECORDABLE) if vector["ai_sdk"] == AiSdk.V6 or _differs(vector) or at % 4 == 0]
"""Both majors go through one recorder: of 7 those that 6 reads otherwise, and a sample of the rest."""


def prepared(store: Any, vector: dict[str, Any]) -> str:
    """A session that holds what the vector continues."""
    session = create(store)
    if initial := vector.get("initial"):
        store.chat.messages.append(
            session, id=initial["id"], role=initial["role"], parts=initial["parts"], metadata=initial.get("metadata")
        )
    return session


def discard(store: Any, session: str) -> None:
    """The vectors share their message ids, which are unique in a database."""
    store.chat.sessions.delete(session)


def mismatch(found: list[Message], expected: list[Message], owned: tuple[str, ...] = ()) -> str | None:
    """What differs, in a few words; None when nothing does."""
    if len(found) != len(expected):
        return f"{len(found)} messages instead of {len(expected)}"
    for one, two in zip(found, expected, strict=True):
        if same_message(one, two, but=owned):
            continue
        parts = [pair for pair in zip_longest(one["parts"], two["parts"]) if pair[0] != pair[1]]
        return f"{one['id']}: {parts[0] if parts else (one.get('metadata'), two.get('metadata'))}"
    return None


def feed(store: Any, session: str, vector: dict[str, Any], **options: Any) -> int | None:
    """Record the vector -> where it was refused."""
    with store.record(session, ai_sdk=vector["ai_sdk"], **options) as recorder:
        for at, chunk in enumerate(recordable(vector)):
            try:
                recorder.feed(chunk)
            except StreamProtocolError:
                return at - lead(vector)
    return None


def test_the_final_messages_are_the_sdks(store: Any) -> None:
    """(c) 1, 4, 5"""
    wrong = {}
    for vector in RECORDED:
        session = prepared(store, vector)
        options = {"model": {"model_id": "m"}, "agent": "plan", "system_prompt": "Be brief."}
        refused = feed(store, session, vector, **options)
        assert refused == (vector["fatal"]["at"] if vector["fatal"] else None), vector["name"]
        ending = final(vector)
        finished = any(chunk["type"] == "finish" for chunk in vector["chunks"])
        written = [ending] if ending["parts"] or finished else []  # metadata alone makes no message before the finish
        expected = [*vector.get("previous_messages", []), *written]
        found = shown(store, session)
        if difference := mismatch(found, expected, OWNED):
            wrong[vector["name"]] = difference
        discard(store, session)
    assert not wrong, "\n".join(f"{name}: {difference}" for name, difference in wrong.items())


def test_every_cut_is_what_a_second_connection_sees(store: Any, other: Any) -> None:
    """(c) 2"""
    wrong = {}
    for vector in RECORDED:
        session = prepared(store, vector)
        cuts = {cut["consumed"]: cut["message"] for cut in vector["cuts"]}
        end = aborted_at(vector)
        with store.record(session, ai_sdk=vector["ai_sdk"]) as recorder:
            for at, chunk in enumerate(recordable(vector)):
                consumed = at + 1 - lead(vector)
                try:
                    recorder.feed(chunk)
                except StreamProtocolError:
                    break
                if consumed not in cuts or (end is not None and consumed > end):
                    continue
                found = shown(other, session)
                expected = cuts[consumed]
                if not expected["parts"] and (not found or found[-1]["parts"]):
                    continue  # its row may wait for its first part
                if difference := mismatch(found[-1:], [expected]):
                    wrong[f"{vector['name']} after {consumed}"] = difference
        discard(store, session)
    assert not wrong, "\n".join(f"{name}: {difference}" for name, difference in wrong.items())


def test_a_fatal_chunk_names_its_place_and_closes_the_recorder(store: Any, other: Any, session: str) -> None:
    """(c) 4: what came before it is kept, even what was only buffered."""
    recorder = store.record(session, save_on="turn")
    with recorder:
        recorder.feed({"type": "start", "messageId": "m"})
        recorder.feed_many(text("kept"))
        with pytest.raises(StreamProtocolError) as refused:
            recorder.feed({"type": "text-delta", "id": "t", "delta": "of no open text"})
        assert (refused.value.index, refused.value.chunk_type) == (4, "text-delta")
        assert shown(other, session)[0]["parts"] == [{"type": "text", "text": "kept", "state": "done"}]
        with pytest.raises(RuntimeError):
            recorder.feed({"type": "finish"})
    record(store, session, text("the next turn starts"))
    assert len(shown(store, session)) == 2


def test_an_abort_before_any_part_leaves_no_message(store: Any, clock: Any, session: str) -> None:
    at = clock.advance(seconds=9)
    record(store, session, [{"type": "start", "messageId": "m"}, {"type": "abort"}])
    assert shown(store, session) == []
    assert store.chat.sessions.get(session).updated_at == at


def test_only_an_assistant_message_can_be_continued(store: Any, session: str) -> None:
    user = say(store, session, "hi")
    with store.record(session) as recorder, pytest.raises(Conflict):
        recorder.feed({"type": "start", "messageId": user})
    assert len(shown(store, session)) == 1
