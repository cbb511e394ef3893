"""What each domain gives up, and what it keeps however old it is."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Insert, delete, insert

from persist import Store
from persist.chat import models as chat
from persist.errors import NotFound
from persist.maintenance import prune
from persist.settings import Settings
from persist.testing import FrozenClock
from persist.workflows import models as workflows
from tests.contract.chat.scenes import create, step, text
from tests.contract.conftest import Raw
from tests.contract.conversations import making as talk
from tests.contract.messaging.scenes import add, end
from tests.contract.messaging.scenes import talk as messaging_session
from tests.contract.workflows.making import done, make_run, request, respond, start
from tests.maintenance.pruning_scenes import DAY, age, month_old
from tests.schema.places import Place


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    with Store.open(database_url, clock=clock) as store:
        yield store


def dead_turn(session: str, clock: FrozenClock) -> Insert:
    values = {"session_id": session, "state": "running", "owner": "elsewhere/1/0", "started_at": clock(), "seen_at": clock()}
    return insert(chat.turns).values(**values)


# ---------------------------------------------------------------- chat


def test_a_chat_in_which_somebody_records_stays(store: Store, clock: FrozenClock) -> None:
    running, idle = create(store), create(store)
    recorder = store.record(running)
    with recorder:
        recorder.feed({"type": "start"})
        age(clock)
        assert month_old(store, "chat") == {"chat_sessions": 1}
        with store.read() as tx:
            assert tx.chat.sessions.get(running).id == running
            with pytest.raises(NotFound):
                tx.chat.sessions.get(idle)


def test_a_chat_whose_turn_died_goes_with_the_turn(store: Store, clock: FrozenClock) -> None:
    session = create(store)
    with store.begin() as tx:
        tx._work._core(dead_turn(session, clock), None)
    age(clock)
    assert month_old(store, "chat") == {"chat_sessions": 1, "chat_turns": 1}


def test_forks_outlive_the_chat_they_came_from(store: Store, clock: FrozenClock) -> None:
    session = create(store)
    with store.begin() as tx:
        question = tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "why?"}])
    age(clock)
    with store.begin() as tx:
        child = tx.chat.sessions.fork(session, question.id)
    assert month_old(store, "chat") == {"chat_sessions": 1, "chat_messages": 1, "chat_parts": 1}
    with store.read() as tx:
        assert tx.chat.sessions.get(child.id).parent_id == session
        assert len(tx.chat.messages.list(child.id)) == 1


def test_a_system_prompt_goes_when_no_message_names_it(store: Store, clock: FrozenClock, database_url: str) -> None:
    old, young = create(store), create(store)
    with store.record(old, system_prompt="both") as recorder:
        recorder.feed_many([{"type": "start"}, *step(*text("hi")), {"type": "finish"}])
    with store.record(old, system_prompt="old") as recorder:
        recorder.feed_many([{"type": "start"}, *step(*text("hi")), {"type": "finish"}])
    age(clock)
    with store.record(young, system_prompt="both") as recorder:
        recorder.feed_many([{"type": "start"}, *step(*text("hi")), {"type": "finish"}])
    with store.begin() as tx:
        tx.chat.prompts.put("new, and nobody named it yet")
    assert month_old(store, "system_prompts") == {}
    assert month_old(store, "chat")["system_prompts"] == 1
    with closing(Raw(database_url)) as raw:
        assert set(raw.rows("SELECT body FROM system_prompts")) == {("both",), ("new, and nobody named it yet",)}


# ---------------------------------------------------------------- workflows


def test_parents_and_children_outlive_each_other(store: Store, clock: FrozenClock) -> None:
    with store.begin() as tx:
        runs = tx.workflows.runs
        about: dict[str, Any] = {"trigger_id": "t", "current_phase": "p"}
        over = runs.create("parent", **about)
        kept = runs.create("child", **about, parent_run_id=over.id)
        left = runs.create("parent", **about)
        gone = runs.create("child", **about, parent_run_id=left.id)
        for id in (over.id, gone.id):
            runs.finish(id, "succeeded")
    age(clock)
    assert month_old(store, "workflows") == {"workflow_runs": 2}
    with store.begin() as tx:
        runs = tx.workflows.runs
        assert runs.get(kept.id).parent_run_id == over.id
        assert [run.id for run in runs.children(over.id).items] == [kept.id]
        assert runs.family(over.id).by_status == {"running": 1}
        assert (runs.children(left.id).items, runs.family(left.id).runs) == ([], 1)
        assert runs.finish(kept.id, "succeeded").status == "succeeded"
        with pytest.raises(NotFound):
            runs.get(over.id)


def test_a_run_that_waits_for_its_children_stays_and_so_do_they(store: Store, clock: FrozenClock) -> None:
    with store.begin() as tx:
        runs = tx.workflows.runs
        runs.create("parent", trigger_id="t", current_phase="p", status="queued")
        lease = runs.claim("w", lease=timedelta(hours=1))
        assert lease is not None
        runs.create("child", trigger_id="t", current_phase="p", parent_run_id=lease.run_id)
        assert runs.join(lease) is None
    age(clock)
    assert month_old(store, "workflows") == {}


def test_runs_that_have_not_ended_stay(store: Store, clock: FrozenClock) -> None:
    kept = [make_run(store, status=status).id for status in ("queued", "running", "paused")]
    ended = [make_run(store).id for _ in range(3)]
    with store.begin() as tx:
        tx.workflows.runs.finish(ended[0], "succeeded")
        tx.workflows.runs.finish(ended[1], "failed")
        tx.workflows.runs.cancel(ended[2])
    age(clock)
    assert month_old(store, "workflows") == {"workflow_runs": 3}
    with store.read() as tx:
        assert {run.id for run in tx.workflows.runs.list().items} == set(kept)


def test_a_run_goes_with_its_executions_and_gates_open_ones_too(store: Store, clock: FrozenClock) -> None:
    run = make_run(store).id
    done(store, workflow_run_id=run)
    done(store, workflow_run_id=run)
    respond(store, request(store, run))
    request(store, run, gate="another")
    with store.begin() as tx:
        tx.workflows.runs.finish(run, "succeeded")
    age(clock)
    assert month_old(store, "workflow_runs") == {"workflow_runs": 1, "executions": 2, "workflow_approvals": 2}


def test_a_run_with_an_unfinished_execution_stays(store: Store, clock: FrozenClock) -> None:
    run = make_run(store).id
    running = start(store, workflow_run_id=run)
    with store.begin() as tx:
        tx.workflows.runs.cancel(run)
    age(clock)
    assert month_old(store, "workflows") == {}
    with store.begin() as tx:
        tx.workflows.executions.finish(running, success=False)
    assert month_old(store, "workflows") == {"workflow_runs": 1, "executions": 1}


def test_an_execution_counts_by_itself_only_without_a_run(store: Store, clock: FrozenClock) -> None:
    run = make_run(store).id
    done(store, workflow_run_id=run)
    done(store)
    orphan = make_run(store).id
    done(store, workflow_run_id=orphan)
    with store.begin() as tx:
        tx._work._core(delete(workflows.runs).where(workflows.runs.c.id == orphan), None)
    start(store)
    age(clock)
    young = done(store)
    assert month_old(store, "executions", keep=3) == {}
    assert month_old(store, "executions", keep=1) == {"executions": 2}
    with store.read() as tx:
        assert tx.workflows.executions.get(young).id == young


def test_an_open_gate_without_a_run_still_waits(store: Store, clock: FrozenClock) -> None:
    run = make_run(store).id
    answered, open_ = request(store, run), request(store, run)
    respond(store, answered)
    with store.begin() as tx:
        tx._work._core(delete(workflows.runs).where(workflows.runs.c.id == run), None)
    age(clock)
    assert month_old(store, "workflows") == {"workflow_approvals": 1}
    with store.read() as tx:
        assert tx.workflows.approvals.get(open_).status == "pending"


# ---------------------------------------------------------------- messaging


def test_only_sessions_that_ended_go_with_their_messages(store: Store, clock: FrozenClock) -> None:
    over, active = messaging_session(store), messaging_session(store, thread_id="T1")
    for session in (over, active):
        add(store, session.id)
        add(store, session.id)
    end(store, over.id)
    age(clock)
    assert month_old(store, "messaging") == {"messaging_sessions": 1, "messaging_messages": 2}
    with store.read() as tx:
        assert len(tx.messaging.messages.history(active.id)) == 2


# ---------------------------------------------------------------- transcripts


def test_a_session_stays_while_one_of_its_parts_is_written(store: Store, clock: FrozenClock) -> None:
    def append(session: str, subpath: str = "") -> None:
        with store.begin() as tx:
            tx.transcripts.entries.append("p", session, [{"type": "x"}], subpath=subpath)

    for session in ("old", "busy"):
        append(session)
        append(session, "subagents/agent-1")
    age(clock)
    append("busy", "subagents/agent-2")
    assert month_old(store, "transcripts") == {"transcript_sessions": 1, "transcript_entries": 2}
    with store.read() as tx:
        assert tx.transcripts.sessions.find("p", "old") is None
        assert len(tx.transcripts.entries.list("p", "busy")) == 1
        assert tx.transcripts.sessions.subpaths("p", "busy") == ["subagents/agent-1", "subagents/agent-2"]


# ---------------------------------------------------------------- conversations


def test_running_conversations_stay_and_shared_messages_too(store: Store, clock: FrozenClock) -> None:
    """(c) 27, 28"""
    talk.talk(store, "old", "a", "b", "shared")
    talk.make_session(store, "running", status="running")
    age(clock)
    talk.talk(store, "new", "shared", "c")
    went = month_old(store, "conversations")
    assert went == {
        "sessions": 1,
        "branches": 1,
        "progressions": 2,
        "progression_members": went["progression_members"],
        "messages": 2,
    }
    assert talk.sessions(store) == ["new", "running"]
    assert talk.stored(store, "a", "b", "shared", "c") == ["shared", "c"]


def test_a_fork_loses_nothing_when_its_parent_goes(store: Store, clock: FrozenClock) -> None:
    """(c) 29"""
    talk.talk(store, "old", "a", "b", "c")
    age(clock)
    talk.make_session(store, "new")
    talk.fork_into(store, "new", "old", 2, id="fork")
    assert month_old(store, "conversations")["sessions"] == 1
    assert talk.shown(store, "fork") == ["a", "b"]


def test_a_message_that_just_came_may_still_be_named(store: Store, clock: FrozenClock) -> None:
    talk.put(store, "m")
    assert prune(store, "conversations", older_than=timedelta(0)).tables == {}
    age(clock, 2)
    assert prune(store, "conversations", older_than=3 * DAY).tables == {}
    assert prune(store, "conversations", older_than=timedelta(0)).tables == {"messages": 1}


def test_a_sum_of_usage_goes_when_its_last_instant_is_old(database_url: str, clock: FrozenClock) -> None:
    """Until then it may be of calls that stay: those of the hour and of the day in which the age ends."""
    noon = clock().replace(hour=12, minute=0, second=0, microsecond=0)
    with Store.open(database_url, clock=clock) as store:
        for hours in (-30, -9, 2, 3, 8):
            store.usage.calls.record(model="m", instance_id="box", at=noon + timedelta(hours=hours, minutes=45), token_input=1)
        clock.advance(delta=noon + timedelta(days=7, hours=2, minutes=30) - clock())
        prune(store, "usage", older_than=timedelta(days=7))
        assert [one.calls for one in store.usage.by_hour().items] == [1, 1, 1]
        assert [one.calls for one in store.usage.by_day().items] == [4]


# What the exchange gives up, and what it keeps however old it is.


def sent(store: Store, recipient: str | None, content: str, **fields: Any) -> str:
    with store.begin() as tx:
        return tx.conversations.exchange.send(sender="a", recipient=recipient, content=content, **fields).id


def read_by(store: Store, owner: str, *ids: str) -> None:
    with store.begin() as tx:
        for id in ids:
            assert tx.conversations.exchange.mark_read(owner, id)


def in_outbox(store: Store) -> list[Any]:
    with store.read() as tx:
        return [one.content for one in tx.conversations.exchange.outbox("a").items]


def test_what_was_sent_and_read_goes_by_age_and_what_was_not_read_waits(store: Store, clock: FrozenClock) -> None:
    read_by(store, "b", sent(store, "b", "read"), sent(store, "b", "read in a channel", channel="c"))
    sent(store, "b", "unread")
    read_by(store, "x", sent(store, "x", "others have read what came to them"))
    age(clock)
    read_by(store, "b", sent(store, "b", "new", channel="d"))
    went = prune(store, "exchange_items", older_than=30 * DAY, dry_run=True).tables
    assert in_outbox(store) == ["read", "read in a channel", "unread", "others have read what came to them", "new"]
    assert month_old(store, "exchange_items") == went == {"exchange_items": 3, "messages": 3}
    assert in_outbox(store) == ["unread", "new"]
    assert month_old(store, "conversations") == {}
    with store.read() as tx:
        assert [one.content for one in tx.conversations.exchange.inbox("b").items] == ["unread"]


def test_one_to_all_goes_when_every_reader_has_read_it(store: Store, clock: FrozenClock) -> None:
    news = sent(store, None, "to all")
    age(clock)
    assert month_old(store, "exchange_items") == {}  # nobody read it
    read_by(store, "b", news)
    read_by(store, "c", sent(store, "c", "to c", channel="other"))
    assert month_old(store, "exchange_items") == {}  # c reads, and has not read this
    read_by(store, "c", news)
    assert month_old(store, "exchange_items") == {"exchange_items": 1, "messages": 1}


def test_what_a_pool_shows_stays_when_it_goes_from_the_exchange(store: Store, clock: FrozenClock) -> None:
    session = talk.make_session(store, "s", status="running")
    id = sent(store, "b", "kept", session_id=session.id)
    read_by(store, "b", id)
    age(clock)
    assert month_old(store, "exchange_items") == {"exchange_items": 1}
    assert talk.stored(store, id) == [id]
    assert in_outbox(store) == []
    read_by(store, "b", sent(store, "b", "after"))  # places go on where they were
    assert in_outbox(store) == ["after"]


def test_the_newest_are_kept_however_old(store: Store, clock: FrozenClock) -> None:
    read_by(store, "b", *[sent(store, "b", str(number)) for number in range(5)])
    age(clock)
    assert month_old(store, "exchange_items", keep=2) == {"exchange_items": 3, "messages": 3}
    assert in_outbox(store) == ["3", "4"]


def test_what_nobody_read_goes_where_a_setting_says_when(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock, settings=Settings(conversations_unread_keep_days=50)) as store:
        sent(store, "gone", "unread")
        sent(store, None, "to all, unread")
        age(clock)
        assert month_old(store, "conversations") == {}
        age(clock, 20)
        assert prune(store, "conversations", older_than=70 * DAY).tables == {}
        assert month_old(store, "conversations") == {"exchange_items": 2, "messages": 2}


def test_what_was_sent_without_an_instant_is_as_old_as_its_message(store: Store, clock: FrozenClock, database_url: str) -> None:
    read_by(store, "b", sent(store, "b", "old"))
    place = Place(database_url)
    place.run(f"UPDATE {place.named('exchange_items')} SET sent_at = NULL")
    assert month_old(store, "exchange_items") == {}
    age(clock)
    assert month_old(store, "exchange_items") == {"exchange_items": 1, "messages": 1}
