"""A refused verb has written nothing, and its transaction goes on: also where its statements travel together."""

from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, NotFound, PersistError
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, record, say, shown, text
from tests.contract.conftest import Raw
from tests.contract.faces import on_one_face

RULE = {"permission": "edit", "pattern": "*", "action": "allow", "source": "session"}
COMPACTION = {"type": "data-compaction", "data": {"summary": "s", "tail_start_id": None}}
Call = Callable[[Any, str], Any]
REFUSED: dict[str, tuple[type[PersistError], Call]] = {
    "sessions.create": (Conflict, lambda tx, at: tx.chat.sessions.create(agent="build", model=MODEL, id=at)),
    "sessions.update_metadata": (NotFound, lambda tx, _: tx.chat.sessions.update_metadata("nobody", {"a": 1})),
    "sessions.archive": (NotFound, lambda tx, _: tx.chat.sessions.archive("nobody")),
    "sessions.unarchive": (NotFound, lambda tx, _: tx.chat.sessions.unarchive("nobody")),
    "sessions.delete": (NotFound, lambda tx, _: tx.chat.sessions.delete("nobody")),
    "sessions.add_permission": (NotFound, lambda tx, _: tx.chat.sessions.add_permission("nobody", RULE)),
    "sessions.fork, no session": (NotFound, lambda tx, _: tx.chat.sessions.fork("nobody", "said")),
    "sessions.fork, no message": (NotFound, lambda tx, at: tx.chat.sessions.fork(at, "nothing")),
    "sessions.rewind, no session": (NotFound, lambda tx, _: tx.chat.sessions.rewind("nobody", "said")),
    "sessions.rewind, no message": (NotFound, lambda tx, at: tx.chat.sessions.rewind(at, "nothing")),
    "sessions.rewind, an answer": (InvalidValue, lambda tx, at: tx.chat.sessions.rewind(at, "answered")),
    "sessions.unrewind": (NotFound, lambda tx, at: tx.chat.sessions.unrewind(at, "nothing")),
    "messages.append": (NotFound, lambda tx, _: tx.chat.messages.append("nobody", role="assistant", parts=[COMPACTION])),
    "messages.update_metadata": (NotFound, lambda tx, _: tx.chat.messages.update_metadata("nothing", {"a": 1})),
    "messages.compact, no session": (
        NotFound,
        lambda tx, _: tx.chat.messages.compact("nobody", summary="s", tail_start_id=None, auto=True, summary_tokens=1),
    ),
    "messages.compact, no message": (
        NotFound,
        lambda tx, at: tx.chat.messages.compact(at, summary="s", tail_start_id="nothing", auto=True, summary_tokens=1),
    ),
    "messages.enqueue, no session": (NotFound, lambda tx, _: tx.chat.messages.enqueue("nobody", parts=[])),
    "messages.enqueue, a taken id": (Conflict, lambda tx, at: tx.chat.messages.enqueue(at, parts=[], id="answered")),
    "messages.claim_queued": (NotFound, lambda tx, _: tx.chat.messages.claim_queued("nobody")),
    "messages.answer_approval": (NotFound, lambda tx, _: tx.chat.messages.answer_approval("nobody", "a", approved=True)),
    "messages.record_step_usage": (
        NotFound,
        lambda tx, _: tx.chat.messages.record_step_usage("nothing", 0, input_tokens=1, output_tokens=1),
    ),
}


def tables(raw: Raw) -> list[Any]:
    return [
        sorted(raw.rows(f"SELECT * FROM {name}"), key=repr)
        for name in ("chat_sessions", "chat_messages", "chat_parts", "chat_step_usage")
    ]


@on_one_face
@each("name", REFUSED)
def test_a_refused_verb_has_written_nothing_and_the_transaction_goes_on(store: Any, raw: Raw, name: str) -> None:
    error, call = REFUSED[name]
    session = create(store)
    say(store, session, "question", id="said")
    say(store, session, "answer", role="assistant", id="answered")
    before = tables(raw)
    with store.begin() as tx, pytest.raises(error):
        call(tx, session)
    assert tables(raw) == before
    with store.begin() as tx:
        with pytest.raises(error):
            call(tx, session)
        kept = tx.chat.messages.append(session, role="user", parts=[])
    assert [message["id"] for message in shown(store, session)] == ["said", "answered", kept.id]
    store.chat.sessions.delete(session)


def test_a_fork_copies_text_that_no_recorder_folded(store: Any, raw: Raw, session: str) -> None:
    """The parent is folded first, so that its copies have all of the text."""
    message = record(store, session, text("whole"))
    (part,) = raw.rows("SELECT id FROM chat_parts")
    raw.rows(f"INSERT INTO chat_part_deltas (part_id, seq, created_at, delta) VALUES ('{part[0]}', 1000, 0, ' text')")
    with store.begin() as tx:
        child = tx.chat.sessions.fork(session, message)
    assert raw.rows("SELECT * FROM chat_part_deltas") == []
    assert [[part["text"] for part in found["parts"]] for found in shown(store, child.id)] == [["whole text"]]


def test_a_compaction_that_waits_counts_from_the_time_it_is_claimed(store: Any, session: str) -> None:
    say(store, session, "answer", role="assistant", metadata={"usage": {"input": 5}})
    with store.begin() as tx:
        tx.chat.messages.enqueue(session, parts=[COMPACTION])
        assert tx.chat.sessions.get(session).prompt_tokens == 5
        tx.chat.messages.claim_queued(session)
        assert tx.chat.sessions.get(session).prompt_tokens == 0


def test_a_message_before_the_compaction_is_not_counted_when_its_usage_changes(store: Any, session: str) -> None:
    """By any of the three that change it: a patch, a step, a recorder."""
    old = say(store, session, "answer", role="assistant", metadata={"usage": {"input": 5}})
    with store.begin() as tx:
        tx.chat.messages.compact(session, summary="s", tail_start_id=None, auto=False, summary_tokens=3)
        tx.chat.messages.update_metadata(old, {"usage": {"input": 7}})
        assert tx.chat.sessions.get(session).prompt_tokens == 3
        tx.chat.messages.record_step_usage(old, 0, input_tokens=11, output_tokens=0)
        assert tx.chat.sessions.get(session).prompt_tokens == 3
    other = say(store, session, "another", role="assistant", metadata={"usage": {"input": 1}})
    with store.begin() as tx:
        assert tx.chat.sessions.get(session).prompt_tokens == 4
        tx.chat.messages.compact(session, summary="s", tail_start_id=None, auto=False, summary_tokens=3)
    with store.record(session) as recorder:
        recorder.feed_many(
            [
                {"type": "start", "messageId": other},
                {"type": "message-metadata", "messageMetadata": {"usage": {"input": 9}}},
                {"type": "finish"},
            ]
        )
    with store.read() as tx:
        assert tx.chat.sessions.get(session).prompt_tokens == 3
        assert tx.chat.messages.get(other)["metadata"]["usage"]["input"] == 9


def test_a_message_id_that_is_taken_is_named(store: Any) -> None:
    session, other = create(store), create(store)
    message = say(store, session, "one")
    for at in (session, other):
        with pytest.raises(Conflict) as refused, store.begin() as tx:
            tx.chat.messages.append(at, role="user", parts=[], id=message)
        assert refused.value.constraint == "pk_chat_messages"
        assert str(refused.value) == f"The id {message!r} is taken by another message."
    assert len(shown(store, session)) == 1
