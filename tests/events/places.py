"""Rebuilding one database from another's log, comparing what the two hold, and a scene of all that chat does."""

from datetime import timedelta
from typing import Any

from persist import Store
from persist.db.changes.journal import logged_tables
from persist.events import rebuild
from persist.schema.metadata import metadata
from persist.testing import FrozenClock
from tests.contract.chat.scenes import MODEL, approval, call, create, output, record, say, step, text, turn
from tests.schema.catalog import Fact
from tests.schema.filling import transcript
from tests.schema.places import Place

TABLES = [table.name for table in logged_tables(metadata.sorted_tables)]


def raw_rows(url: str) -> dict[str, list[Fact]]:
    """Every row of every logged table, as the database stores it."""
    return Place(url).rows(*TABLES)


def rebuilt(source: str, target: str) -> str:
    """The target, made from the source's log."""
    with Store.open(source) as a, Store.open(target) as b:
        rebuild(a, b)
    return target


def assert_rebuilt_byte_for_byte(source: str, target: str) -> None:
    """A new database has the very rows of the old one."""
    rebuilt(source, target)
    found, expected = raw_rows(target), raw_rows(source)
    for table in TABLES:
        assert found[table] == expected[table], table


def seen(url: str) -> dict[str, Any]:
    """What a reader sees but for the log."""
    with Store.open(url) as store:
        return {kind: found for kind, found in transcript(store).items() if kind != "events"}


HARD = "Naïve\x00 text \ud83d \ufdd0 stays what it was."
USAGE: dict[str, Any] = {"input_tokens": 100, "output_tokens": 10, "cost_usd": 0.125}


def play(store: Store, clock: FrozenClock) -> list[str]:
    """The sessions it made; all but the deleted one."""
    session = create(store, metadata={"title": HARD}, permissions=[rule("bash")], workspace_root="/work")
    question = say(store, session, HARD)
    clock.advance(seconds=1)
    record(store, session, turn(*text("It ", HARD, "\ud83d", "\ude00 done"), id="answer"), system_prompt=HARD)
    with store.begin() as tx:
        chat = tx.chat
        chat.messages.record_step_usage("answer", 1, **USAGE)
        chat.messages.update_metadata("answer", {"note": HARD, "gone": None})
        chat.sessions.update_metadata(session, {"title": None, "more": [1, 0.5, 2**64 - 1]})
        chat.sessions.add_permission(session, rule("edit"))
        chat.prompts.put("another prompt")
        clock.advance(seconds=1)
        fork = chat.sessions.fork(session, question).id
        chat.sessions.archive(fork)
        other = chat.sessions.create(agent="plan", model=MODEL, owner="maria").id
        chat.sessions.archive(other)
        chat.sessions.unarchive(other)
        gone = chat.sessions.create(agent="plan", model=MODEL).id
        chat.messages.append(gone, role="user", parts=[{"type": "text", "text": "never mind"}])
        chat.sessions.delete(gone)
        chat.messages.enqueue(session, parts=[{"type": "text", "text": HARD}])
        canceled = chat.messages.enqueue(session, parts=[{"type": "text", "text": "no"}]).id
        chat.messages.cancel_queued(canceled)
        chat.messages.claim_queued(session)
    clock.advance(seconds=1)
    _tools(store, session)
    _dead(store, session)
    _reset(store, session)
    _stopped(store, session)
    with store.begin() as tx:
        tail = tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "on"}]).id
        tx.chat.messages.compact(session, summary=HARD, tail_start_id=tail, auto=True, summary_tokens=7)
        tx.chat.sessions.remove_permission(session, rule("edit"))
        tx.chat.sessions.rewind(session, tail)
        tx.chat.sessions.unrewind(session, tail)
    _failed(store, session)
    _posted(store, other, clock)
    _imported(store, other, clock)
    return [session, fork, other]


def _stopped(store: Store, session: str) -> None:
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start", "messageId": "stopped"}, *step(*text("stop"))])
        store.chat.sessions.request_stop(session)
        recorder.feed({"type": "abort"})


def rule(permission: str) -> dict[str, Any]:
    return {"permission": permission, "pattern": "*", "action": "ask", "source": "session"}


def _tools(store: Store, session: str) -> None:
    asked = [{"type": "start", "messageId": "tools"}, *step(call("bash", "c1", {"cmd": HARD}), approval("a1", "c1"))]
    record(store, session, asked)
    store.chat.messages.answer_approval(session, "a1", approved=True)
    record(store, session, [{"type": "start", "messageId": "tools"}, output("c1", {"out": HARD}), {"type": "finish"}])


def _dead(store: Store, session: str) -> None:
    """A turn that was given up in the middle of a part, and repaired."""
    chunks = [{"type": "start", "messageId": "dead"}, {"type": "start-step"}, *text("cut ", "off")[:-1], call("bash", "c9", {})]
    record(store, session, chunks)
    assert store.chat.messages.repair_interrupted(session, idle=timedelta(0)) == 1


def _reset(store: Store, session: str) -> None:
    """A step whose first attempt was discarded, once while the recorder had it and once by the next recorder."""
    attempt = [{"type": "start", "messageId": "reset"}, {"type": "start-step"}, *text("bad ", HARD)[:-1], call("bash", "c7", {})]
    good = [{"type": "reset-step"}, *text("good ", HARD), {"type": "finish-step"}]
    with store.record(session) as recorder:
        for chunk in (*attempt, *good, *attempt[1:]):
            recorder.feed(chunk)
    record(store, session, [attempt[0], *good, {"type": "finish"}])


def _posted(store: Store, session: str, clock: FrozenClock) -> None:
    """What a browser posts: questions, approvals, results, an edit, and an answer that is to be given again."""
    question = {
        "id": "posted",
        "role": "user",
        "parts": [{"type": "text", "text": HARD}, {"type": "data-x", "data": {"a": HARD}}],
    }
    store.chat.messages.sync(session, [question])
    asked = step(call("bash", "c1", {"cmd": HARD}), approval("a2", "c1"), call("locate", "c2", {}))
    record(store, session, [{"type": "start", "messageId": "gated"}, *asked, {"type": "finish"}])
    store.chat.messages.record_step_usage("gated", 1, **USAGE)
    clock.advance(seconds=1)
    start, gate, locate = store.chat.messages.get("gated")["parts"]
    gate = {**gate, "state": "approval-responded", "approval": {"id": "a2", "approved": False, "reason": HARD}}
    locate = {**locate, "state": "output-available", "output": {"at": HARD}}
    answer = {"id": "gated", "role": "assistant", "parts": [start, gate, locate]}
    assert store.chat.messages.sync(session, [question, answer, {**question, "id": "more"}]).changed
    clock.advance(seconds=1)
    edited = {**question, "parts": [{"type": "text", "text": "shorter"}], "metadata": {"note": HARD}}
    assert store.chat.messages.sync(session, [edited]).hidden == ["gated", "more"]
    record(store, session, turn(*text("again"), id="anew"))
    store.chat.messages.compact(session, summary=HARD, tail_start_id=None, auto=False, summary_tokens=3)
    assert len(store.chat.messages.sync(session, [edited], trigger="regenerate-message").hidden) == 2
    store.chat.sessions.rewind(session, before="posted")


def _imported(store: Store, session: str, clock: FrozenClock) -> None:
    """Messages of the past, one of them twice, and one deleted with which the tail of a compaction began."""
    then = clock() - timedelta(days=1)
    words = [{"type": "text", "text": HARD}]
    for _ in range(2):
        store.chat.messages.append(session, role="user", parts=words, id="old", metadata={"model": MODEL}, created_at=then)
    usage = {"usage": {"input": 3, "output": 1}}
    store.chat.messages.append(session, role="assistant", parts=words, id="old answer", metadata=usage, created_at=then)
    store.chat.messages.append(session, role="user", parts=words, id="now")
    store.chat.messages.compact(session, summary=HARD, tail_start_id="old", auto=False, summary_tokens=3)
    store.chat.messages.delete("old")


def _failed(store: Store, session: str) -> None:
    """A turn that ended with an error, with a file, a source, data and usage of its own."""
    with store.record(session, agent="build", model={"model_id": "small"}, save_on="step") as recorder:
        recorder.feed_many([{"type": "start", "messageId": "failed", "messageMetadata": {"a": HARD}}, {"type": "start-step"}])
        recorder.feed({"type": "data-note", "id": "d", "data": {"x": HARD}})
        recorder.feed({"type": "data-note", "id": "d", "data": {"x": 2}})
        recorder.feed_many(text("x" * 5000, HARD, "y" * 5000))
        recorder.step_usage(1, **USAGE)
        recorder.feed({"type": "finish-step"})
        recorder.feed({"type": "error", "errorText": HARD})
