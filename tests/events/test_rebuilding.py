"""A new database from another's log: the very rows, of every domain, on both databases."""

import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from persist import Store
from persist.chat.reducer.parts import LONG
from persist.errors import Conflict
from persist.events import rebuild
from persist.testing import FrozenClock
from tests.contract.chat.scenes import create, record, say, text, turn
from tests.contract.conversations.making import fork_into
from tests.contract.events.scenes import assert_gapless, events
from tests.events.places import TABLES, assert_rebuilt_byte_for_byte, play, raw_rows, rebuilt, seen
from tests.schema.filling_conversations import fill_conversations, fill_usage
from tests.schema.filling_frameworks import fill_frameworks
from tests.schema.filling_machines import fill_programs, fill_telemetry
from tests.schema.filling_workflows import fill_messaging, fill_workflows
from tests.seeded_databases import fill_once
from tests.subprocesses import spawning

FROM = ["the start", "halfway", "the end", "the start, with a gap"]


def filled(url: str, clock: FrozenClock, since: str) -> None:
    """Something of everything, with the log on from the start, from halfway on, only at the end, or off for a while."""

    def make(url: str) -> None:
        with Store.open(url, clock=clock) as store:
            if since.startswith("the start"):
                store.switch_events(True)
            play(store, clock)
            if since.endswith("a gap"):
                store.switch_events(False)
                unseen = store.chat.sessions.list(limit=100).items[0].id
                say(store, unseen, "unseen")
            if since != "the end":
                store.switch_events(True)
            for fill in (fill_workflows, fill_conversations, fill_telemetry, fill_programs, fill_messaging, fill_usage):
                fill(store, clock)
            fill_frameworks(store)
            store.switch_events(True)

    fill_once(url, clock, f"played with a log of {since}", make)


@pytest.mark.parametrize("since", FROM)
def test_a_database_with_something_of_everything(
    database_url: str, new_database: Callable[[], str], since: str, clock: FrozenClock
) -> None:
    filled(database_url, clock, since)
    assert_rebuilt_byte_for_byte(database_url, new_database())
    assert {table for table, rows in raw_rows(database_url).items() if not rows} == {"chat_part_deltas"}


@pytest.mark.parametrize("since", FROM[:2])
def test_the_other_kind_of_database_reads_the_same(database_url: str, other_kind: str, since: str, clock: FrozenClock) -> None:
    filled(database_url, clock, since)
    rebuilt(database_url, other_kind)
    assert seen(other_kind) == seen(database_url)


def test_a_session_alone_reads_as_it_did(database_url: str, new_database: Callable[[], str], clock: FrozenClock) -> None:
    with Store.open(database_url, events=True, clock=clock) as store:
        sessions = play(store, clock)

        def look(one: Store) -> Any:
            with one.read() as tx:
                return [
                    tx.chat.sessions.get(sessions[0]),
                    tx.chat.messages.list(sessions[0], include_hidden=True),
                    tx.chat.messages.queued(sessions[0]),
                ]

        with Store.open(new_database()) as target:
            rebuild(store, target, sessions[0])
            assert look(target) == look(store)
            assert [session.id for session in target.chat.sessions.list(include_archived=True).items] == sessions[:1]


@pytest.mark.parametrize(
    "stream", ["telemetry:box-1", "workspace:project", "program:20260102-030405-abc123", "workflows", "chat"]
)
def test_a_stream_alone_has_the_rows_that_say_they_are_its_own(
    database_url: str, new_database: Callable[[], str], clock: FrozenClock, stream: str
) -> None:
    filled(database_url, clock, "the start")
    target = new_database()
    with Store.open(database_url) as a, Store.open(target) as b:
        rebuild(a, b, stream)
    mine, theirs = raw_rows(target), raw_rows(database_url)
    assert any(mine.values())
    for table in set(TABLES) - {"exchange_cursors"}:  # its first row is there from the start, and counts
        assert set(mine[table]) <= set(theirs[table]), table


def test_a_turn_that_still_runs_reads_as_far_as_it_came(
    database_url: str, new_database: Callable[[], str], clock: FrozenClock
) -> None:
    with Store.open(database_url, events=True, clock=clock) as store, Store.open(new_database()) as target:
        session = create(store)
        with store.record(session) as recorder:
            recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
            for piece in ("one ", "\ud83d", "\ude00 two"):
                recorder.feed({"type": "text-delta", "id": "t", "delta": piece})
            rebuild(store, target)
            with store.read() as ours, target.read() as theirs:
                assert theirs.chat.messages.list(session) == ours.chat.messages.list(session)


def test_the_order_of_a_progression_and_its_array(database_url: str, new_database: Callable[[], str], clock: FrozenClock) -> None:
    """What was shown before a place changed is not taken for what is there now."""
    with Store.open(database_url, events=True, clock=clock) as store, store.begin() as tx:
        order = tx.conversations.progressions
        order.create("short", ids=["a", "b", "c"])
        order.insert("short", 1, "x")
        order.remove("short", "b")
        order.create("long", ids=[f"m{n}" for n in range(300)])
        for n in range(300, 340):
            order.append("long", f"m{n}")  # until there are 320 the array lags
        order.insert("long", 335, "x")
        order.remove("long", "m299")
        order.remove("long", "m10")
    assert_rebuilt_byte_for_byte(database_url, new_database())


@pytest.mark.parametrize("ending", [[], [{"type": "text-end", "id": "t"}]], ids=["open", "done"])
def test_text_that_grew_in_the_database(database_url: str, new_database: Callable[[], str], ending: list[Any]) -> None:
    every = "".join(map(chr, range(1, 0x2FF))) + "\ufdd1\uffff😀"
    with Store.open(database_url, events=True) as store, store.record(create(store)) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
        for number in range(2 * LONG // len(every) // 8):
            recorder.feed({"type": "text-delta", "id": "t", "delta": f"{number}{every * 8}"})
        recorder.feed_many(ending)
    assert_rebuilt_byte_for_byte(database_url, new_database())


def test_a_part_that_two_recorders_wrote_one_after_the_other(database_url: str, new_database: Callable[[], str]) -> None:
    with Store.open(database_url, events=True) as store:
        session = create(store)
        for pieces in (['{"command"', ':"l'], ["s ", "-l", '"}']):
            with store.record(session) as recorder:
                recorder.feed({"type": "start", "messageId": "m"})
                if len(pieces) == 2:
                    recorder.feed({"type": "tool-input-start", "toolCallId": "c", "toolName": "bash"})
                for piece in pieces:
                    recorder.feed({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": piece})
    assert_rebuilt_byte_for_byte(database_url, new_database())


def test_many_conversations_that_went_at_once(database_url: str, new_database: Callable[[], str], clock: FrozenClock) -> None:
    with Store.open(database_url, events=True, clock=clock) as store:
        for number in range(3):
            with store.begin() as tx:
                tx.conversations.sessions.create(id=f"old {number}", status="completed")
                tx.conversations.branches.create(f"old {number}", id=f"branch {number}")
                for word in ("one", "two"):
                    message = {"id": f"{word} {number}", "created_at": 1.5, "role": "user", "content": word}
                    tx.conversations.messages.record(f"branch {number}", message)
        clock.advance(delta=timedelta(days=100))
        with store.begin() as tx:
            before = tx.events.read("*")
            tried = tx.conversations.sessions.prune(keep_n=1, dry_run=True)
            assert tx.conversations.sessions.prune(keep_n=1) == tried
        with store.read() as tx:
            later = tx.events.read("*", after=before[-1].position)
            assert {event.type for event in later} == {"session.pruned"}
            assert len(later) == len({event.stream_id for event in later})
        assert tried.sessions == 2
    assert_rebuilt_byte_for_byte(database_url, new_database())


def test_a_line_of_forks_whose_elders_went_at_once(
    database_url: str, new_database: Callable[[], str], clock: FrozenClock
) -> None:
    """What a younger branch inherits is written for it after other rows went, in one verb with several streams."""
    with Store.open(database_url, events=True, clock=clock) as store:
        with store.begin() as tx:
            tx.conversations.sessions.create(id="one", status="completed")
            tx.conversations.branches.create("one", id="one")
            for word in ("a", "b", "c"):
                tx.conversations.messages.record("one", {"id": word, "created_at": 1.5, "role": "user", "content": word})
        for parent, name in (("one", "two"), ("two", "three"), ("three", "four")):
            clock.advance(seconds=1)
            store.conversations.sessions.create(id=name, status="completed")
            fork_into(store, name, parent, 3, id=name)
        clock.advance(delta=timedelta(days=100))
        with store.begin() as tx:
            tx.conversations.sessions.update("four", name="in use")
            assert tx.conversations.sessions.prune(keep_n=0).sessions == 3
        pruned = [event for event in store.events.read("*") if event.type == "session.pruned"]
        for stream in {event.stream_id for event in pruned}:
            continued = [event.data.get("more", False) for event in pruned if event.stream_id == stream]
            assert continued == [True] * (len(continued) - 1) + [False]
    assert_rebuilt_byte_for_byte(database_url, new_database())


def test_what_was_rebuilt_is_gone_on_with(database_url: str, new_database: Callable[[], str], clock: FrozenClock) -> None:
    filled(database_url, clock, "the start")
    again, third = rebuilt(database_url, new_database()), new_database()
    clock.advance(seconds=3600)
    with Store.open(again, events=True, clock=clock) as store:
        session = create(store)
        record(store, session, turn(*text("on")))
        with store.begin() as tx:
            talk = tx.messaging.sessions.get_or_create(platform="web", channel_id="c", user_id="u")
            tx.messaging.messages.add(talk.id, role="user", content="next")
            tx.conversations.sessions.create(id="conv-3")
            tx.conversations.branches.create("conv-3", id="third")
            tx.conversations.exchange.send(sender="third", recipient=None, content="next", session_id="conv-3")
            tx.telemetry.status.record("idle", instance_id="box-1")
    assert_rebuilt_byte_for_byte(again, third)


# A target that keeps a log of its own: it is off while the rows are made, on afterwards, and on whatever went wrong.


@pytest.fixture
def source_url(database_url: str, clock: FrozenClock) -> str:
    with Store.open(database_url, events=True, clock=clock) as store:
        play(store, clock)
        fill_workflows(store, clock)
    return database_url


@pytest.fixture
def target_url(new_database: Callable[[], str]) -> str:
    """It logs, and has had a session."""
    url = new_database()
    with Store.open(url, events=True) as store:
        former = create(store, id="former")
        store.chat.sessions.delete(former)
    return url


def assert_logs(url: str) -> None:
    """What is written goes on in its log."""
    with Store.open(url) as store:
        last = events(store)[-1].position
        session = create(store)
        assert [(event.position, event.stream_id, event.type) for event in events(store, after=last)] == [
            (last + 1, session, "session.created")
        ]


def test_its_log_goes_on_with_what_was_made(source_url: str, target_url: str, new_database: Callable[[], str]) -> None:
    rebuilt(source_url, target_url)
    found, expected = raw_rows(target_url), raw_rows(source_url)
    for table in TABLES:
        assert found[table] == expected[table], table
    with Store.open(target_url) as store:
        log = events(store)
    assert_gapless(log)
    assert [event.type for event in log[:2]] == ["session.created", "session.deleted"]
    assert {event.type for event in log[2:]} == {"snapshot"}
    assert_rebuilt_byte_for_byte(target_url, new_database())
    assert_logs(target_url)


def test_readers_and_observers_of_the_target_are_told(source_url: str, target_url: str) -> None:
    told: list[Any] = []
    with Store.open(source_url) as source, Store.open(target_url) as target:
        target.on_commit(told.extend)
        rebuild(source, target)
        assert told == events(target, after=2)
        assert target.logs_events


def test_one_stream(source_url: str, target_url: str) -> None:
    with Store.open(source_url) as source, Store.open(target_url) as target:
        say(source, create(source, id="alone"), "hi")
        rebuild(source, target, "alone")
        assert {event.stream_id for event in events(target, after=2)} >= {"former", "alone"}
    assert_logs(target_url)


def test_a_rebuild_that_fails_leaves_the_log_on_and_nothing_in_it(source_url: str, target_url: str) -> None:
    before = raw_rows(target_url)
    with Store.open(source_url) as source, source.begin() as tx:
        tx.conversations.sessions.create(id="a")
        tx.conversations.branches.create("a", id="b")
        tx.conversations.messages.record("b", {"id": "m", "created_at": 1.5, "role": "user", "content": "x"})
        tx.conversations.sessions.create(id="c")
        tx.conversations.branches.create("c", id="d", system_msg_id="m")
    with Store.open(source_url) as source, Store.open(target_url) as target:
        log, scopes = events(target), dict(target.runtime.scopes)
        with pytest.raises(Conflict, match="leans on rows"):
            rebuild(source, target, "conversation:c")
        assert events(target) == log
        assert target.runtime.scopes == scopes
    assert raw_rows(target_url) == before
    assert_logs(target_url)


def test_a_rebuild_that_is_killed_leaves_the_log_on_and_nothing_in_it(source_url: str, target_url: str) -> None:
    before = raw_rows(target_url)
    with Store.open(target_url) as target:
        log = events(target)
    with spawning("tests.events.rebuild_worker", target_url) as spawn:
        process = spawn("rebuild", source_url)
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert raw_rows(target_url) == before
    with Store.open(target_url) as target:
        assert events(target) == log
    assert_logs(target_url)
    with Store.open(target_url) as target, target.begin() as tx:
        for session in tx.chat.sessions.list(limit=100).items:
            tx.chat.sessions.delete(session.id)
    rebuilt(source_url, target_url)
