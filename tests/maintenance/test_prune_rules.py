"""What each domain gives up, and what it keeps however old it is."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, update

from persist import Store
from persist.chat import models as chat
from persist.conversations.schemas import PruneReport
from persist.errors import NotFound
from persist.framework_state.app_sessions.schemas import ArtifactKey
from persist.maintenance import prune
from persist.maintenance.pruning import prune_conversations
from persist.programs import models as programs
from persist.settings import Settings
from persist.single_owner_files import create_run_file
from persist.testing import FrozenClock
from persist.workflows import models as workflows
from tests.contract.chat.scenes import create, step, text
from tests.contract.conftest import Raw
from tests.contract.conversations import making as talk
from tests.contract.conversations.scenes import message
from tests.contract.histories.scenes import chain, put, save
from tests.contract.messaging.scenes import add, end
from tests.contract.messaging.scenes import talk as messaging_session
from tests.contract.workflows.making import done, make_run, request, respond, start
from tests.maintenance.pruning_scenes import DAY, age, month_old
from tests.schema.places import Place

pytestmark = pytest.mark.one_database
SAID: Any = [{"type": "text", "text": "why?"}]


def raw_change(store: Store, statement: Any) -> None:
    with store.begin() as tx:
        tx._work._core(statement, None)


def test_chats_that_are_over_go_and_forks_outlive_them(store: Store, clock: FrozenClock) -> None:
    """One in which somebody records stays; a turn of a dead process goes with its chat."""
    running, idle, dead, forked = (create(store) for _ in range(4))
    turn = {"session_id": dead, "state": "running", "owner": "elsewhere/1/0", "started_at": clock(), "seen_at": clock()}
    raw_change(store, insert(chat.turns).values(**turn))
    question = store.chat.messages.append(forked, role="user", parts=SAID)
    with store.record(running) as recorder:
        recorder.feed({"type": "start"})
        age(clock)
        child = store.chat.sessions.fork(forked, question.id)
        assert month_old(store, "chat") == {"chat_sessions": 3, "chat_turns": 1, "chat_messages": 1, "chat_parts": 1}
        assert store.chat.sessions.get(running).id == running
    with pytest.raises(NotFound):
        store.chat.sessions.get(idle)
    assert (store.chat.sessions.get(child.id).parent_id, len(store.chat.messages.list(child.id))) == (forked, 1)


def test_a_system_prompt_goes_when_no_message_names_it(store: Store, clock: FrozenClock, url: str) -> None:
    old, young = create(store), create(store)

    def say(session: str, prompt: str) -> None:
        with store.record(session, system_prompt=prompt) as recorder:
            recorder.feed_many([{"type": "start"}, *step(*text("hi")), {"type": "finish"}])

    say(old, "both")
    say(old, "old")
    age(clock)
    say(young, "both")
    store.chat.prompts.put("new, and nobody named it yet")
    assert month_old(store, "system_prompts") == {}
    assert month_old(store, "chat")["system_prompts"] == 1
    with closing(Raw(url)) as raw:
        assert set(raw.rows("SELECT body FROM system_prompts")) == {("both",), ("new, and nobody named it yet",)}


def test_parents_and_children_outlive_each_other(store: Store, clock: FrozenClock) -> None:
    about: dict[str, Any] = {"trigger_id": "t", "current_phase": "p"}
    runs = store.workflows.runs
    over = runs.create("parent", **about)
    kept = runs.create("child", **about, parent_run_id=over.id)
    left = runs.create("parent", **about)
    gone = runs.create("child", **about, parent_run_id=left.id)
    for id in (over.id, gone.id):
        runs.finish(id, "succeeded")
    age(clock)
    assert month_old(store, "workflows") == {"workflow_runs": 2}
    assert runs.get(kept.id).parent_run_id == over.id
    assert ([run.id for run in runs.children(over.id).items], runs.family(over.id).by_status) == ([kept.id], {"running": 1})
    assert (runs.children(left.id).items, runs.family(left.id).runs) == ([], 1)
    assert runs.finish(kept.id, "succeeded").status == "succeeded"
    with pytest.raises(NotFound):
        runs.get(over.id)


def test_runs_go_with_what_is_theirs_once_they_have_ended(store: Store, clock: FrozenClock) -> None:
    """Executions and gates go, open ones too; a run that waits for children, and one with an execution that runs, stay."""
    kept = {make_run(store, status=status).id for status in ("running", "paused")}
    ended = [make_run(store).id for _ in range(4)]
    for _ in range(2):
        done(store, workflow_run_id=ended[0])
    respond(store, request(store, ended[0]))
    request(store, ended[0], gate="another")
    busy = start(store, workflow_run_id=ended[3])
    with store.begin() as tx:
        runs = tx.workflows.runs
        runs.finish(ended[0], "succeeded")
        runs.finish(ended[1], "failed")
        for id in ended[2:]:
            runs.cancel(id)
        runs.create("parent", trigger_id="t", current_phase="p", status="queued")
        lease = runs.claim("w", lease=timedelta(hours=1))
        assert lease is not None
        child = runs.create("child", trigger_id="t", current_phase="p", parent_run_id=lease.run_id, status="queued")
        assert runs.join(lease) is None
    age(clock)
    assert month_old(store, "workflows") == {"workflow_runs": 3, "executions": 2, "workflow_approvals": 2}
    assert {run.id for run in store.workflows.runs.list().items} == {*kept, ended[3], lease.run_id, child.id}
    store.workflows.executions.finish(busy, success=False)
    assert month_old(store, "workflows") == {"workflow_runs": 1, "executions": 1}


def test_executions_and_gates_without_a_run_count_by_themselves(store: Store, clock: FrozenClock) -> None:
    run, orphan = make_run(store).id, make_run(store).id
    abouts: list[dict[str, Any]] = [{"workflow_run_id": run}, {}, {"workflow_run_id": orphan}]
    for about in abouts:
        done(store, **about)
    answered, waiting = request(store, orphan), request(store, orphan)
    respond(store, answered)
    raw_change(store, delete(workflows.runs).where(workflows.runs.c.id == orphan))
    start(store)
    age(clock)
    young = done(store)
    assert month_old(store, "executions", keep=3) == {}
    assert month_old(store, "executions", keep=1) == {"executions": 2}
    assert store.workflows.executions.get(young).id == young
    assert month_old(store, "workflows") == {"workflow_approvals": 1}
    assert store.workflows.approvals.get(waiting).status == "pending"


def test_only_sessions_that_ended_go_with_their_messages(store: Store, clock: FrozenClock) -> None:
    over, active = messaging_session(store), messaging_session(store, thread_id="T1")
    for session in (over, active):
        add(store, session.id)
        add(store, session.id)
    end(store, over.id)
    age(clock)
    assert month_old(store, "messaging") == {"messaging_sessions": 1, "messaging_messages": 2}
    assert len(store.messaging.messages.history(active.id)) == 2


def test_a_session_stays_while_one_of_its_parts_is_written(store: Store, clock: FrozenClock) -> None:
    append = store.transcripts.entries.append
    for session, subpath in [("old", ""), ("old", "subagents/agent-1"), ("busy", ""), ("busy", "subagents/agent-1")]:
        append("p", session, [{"type": "x"}], subpath=subpath)
    age(clock)
    append("p", "busy", [{"type": "x"}], subpath="subagents/agent-2")
    assert month_old(store, "transcripts") == {"transcript_sessions": 1, "transcript_entries": 2}
    assert (store.transcripts.sessions.find("p", "old"), len(store.transcripts.entries.list("p", "busy"))) == (None, 1)
    assert store.transcripts.sessions.subpaths("p", "busy") == ["subagents/agent-1", "subagents/agent-2"]


def test_running_conversations_stay_and_shared_messages_too(store: Store, clock: FrozenClock) -> None:
    talk.talk(store, "old", "a", "b", "shared")
    talk.make_session(store, "running", status="running")
    age(clock)
    talk.talk(store, "new", "shared", "c")
    went = month_old(store, "conversations")
    assert went.pop("progression_members") > 0
    assert went == {"sessions": 1, "branches": 1, "progressions": 2, "messages": 2}
    assert talk.sessions(store) == ["new", "running"]
    assert talk.stored(store, "a", "b", "shared", "c") == ["shared", "c"]


def test_a_fork_loses_nothing_when_its_parent_goes(store: Store, clock: FrozenClock) -> None:
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


# What the exchange gives up, and what it keeps however old it is.


def sent(store: Store, recipient: str | None, content: str, **fields: Any) -> str:
    return str(store.conversations.exchange.send(sender="a", recipient=recipient, content=content, **fields).id)


def read_by(store: Store, owner: str, *ids: str) -> None:
    for id in ids:
        assert store.conversations.exchange.mark_read(owner, id)


def in_outbox(store: Store) -> list[Any]:
    return [one.content for one in store.conversations.exchange.outbox("a").items]


def test_what_was_sent_and_read_goes_by_age_and_what_was_not_read_waits(store: Store, clock: FrozenClock, url: str) -> None:
    read_by(store, "b", sent(store, "b", "read"), sent(store, "b", "read in a channel", channel="c"))
    sent(store, "b", "unread")
    read_by(store, "x", sent(store, "x", "others have read what came to them"))
    undated = f"UPDATE {Place(url).named('exchange_items')} SET sent_at = NULL WHERE channel IS NULL"
    Place(url).run(undated)  # it is as old as its message
    assert month_old(store, "exchange_items") == {}
    age(clock)
    read_by(store, "b", sent(store, "b", "new", channel="d"))
    went = month_old(store, "exchange_items", dry_run=True)
    assert in_outbox(store) == ["read", "read in a channel", "unread", "others have read what came to them", "new"]
    assert month_old(store, "exchange_items") == went == {"exchange_items": 3, "messages": 3}
    assert in_outbox(store) == ["unread", "new"]
    assert month_old(store, "conversations") == {}
    assert [one.content for one in store.conversations.exchange.inbox("b").items] == ["unread"]


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
    assert (talk.stored(store, id), in_outbox(store)) == ([id], [])
    read_by(store, "b", *[sent(store, "b", str(number)) for number in range(5)])  # places go on where they were
    age(clock)
    assert month_old(store, "exchange_items", keep=2) == {"exchange_items": 3, "messages": 3}
    assert in_outbox(store) == ["3", "4"]


def test_what_nobody_read_goes_where_a_setting_says_when(url: str, clock: FrozenClock) -> None:
    with Store.open(url, clock=clock, settings=Settings(conversations_unread_keep_days=50)) as store:
        sent(store, "gone", "unread")
        sent(store, None, "to all, unread")
        age(clock)
        assert month_old(store, "conversations") == {}
        age(clock, 20)
        assert prune(store, "conversations", older_than=70 * DAY).tables == {}
        assert month_old(store, "conversations") == {"exchange_items": 2, "messages": 2}


def test_the_newest_are_those_that_were_written_last(store: Store, clock: FrozenClock) -> None:
    """The status that an instance has, and what `keep` spares, whatever its clock said."""
    me: dict[str, Any] = {"instance_id": "a"}
    telemetry = store.telemetry
    for number, (status, at) in enumerate((("ahead", clock() + 10 * DAY), ("behind", clock()), ("now", clock()))):
        telemetry.status.record(status, at=at, **me)
        telemetry.tools.record(status, at=at, **me)
        telemetry.usage.sample(at=at + number * timedelta(seconds=1), token_input=number, **me)
    for word in ("idle", "busy", "idle"):
        telemetry.status.record(word, instance_id="b")
    age(clock)
    assert month_old(store, "status_log") == {"status_log": 3}
    assert month_old(store, "tool_history", keep=1) == {"tool_history": 1}
    assert month_old(store, "usage_samples", keep=1) == {"usage_samples": 1}
    age(clock)
    assert month_old(store, "telemetry", keep=1) == {"status_log": 1, "tool_history": 1, "usage_samples": 1}
    found = [telemetry.status.current(instance_id=instance) for instance in ("a", "b")]
    assert [one and one.new_status for one in found] == ["now", "idle"]
    assert [call.tool_key for call in telemetry.tools.last(**me)] == ["now"]
    assert telemetry.usage.totals(**me).token_input == 2


def test_keep_counts_within_an_instance(store: Store, clock: FrozenClock) -> None:
    for instance in "aaaaaaabbb":
        store.telemetry.tools.record("bash", instance_id=instance)
        clock.advance(seconds=1)
    age(clock)
    assert month_old(store, "tool_history", keep=4) == {"tool_history": 3}
    assert [len(store.telemetry.tools.last(instance_id=instance)) for instance in ("a", "b")] == [4, 3]


def test_tasks_that_are_over_and_links_that_nobody_looks_at_go(store: Store, clock: FrozenClock) -> None:
    me: dict[str, Any] = {"workspace_id": "w"}
    box: dict[str, Any] = {"instance_id": "box"}
    url = "https://github.com/example/project/issues/"
    names = ("queued", "in_progress", "completed", "failed", "cancelled")
    with store.begin() as tx:
        tasks = tx.telemetry.tasks
        tasks.poll([{"id": name, "source_id": "s", "kind": "k", "title": "t"} for name in names], **me)
        tasks.cancel("cancelled", **me)
        assert all(tasks.claim("box", max_parallel=9, **me) is not None for _ in range(4))
        tasks.complete("completed", **me)
        tasks.fail("failed", **me)
        tx.telemetry.links.upsert(f"{url}1", fetched_at=clock(), issue_state="open", **box)
        tx.telemetry.links.record_error(f"{url}2", "no answer", **box)
    age(clock)
    store.telemetry.links.record_error(f"{url}3", "no answer", **box)
    assert month_old(store, "telemetry") == {"tasks": 2, "github_link_statuses": 2}
    assert {task.id for task in store.telemetry.tasks.list(**me)} == {"queued", "in_progress", "failed"}


def test_a_webhook_of_a_task_that_is_gone_goes_and_those_of_others_stay(store: Store, clock: FrozenClock) -> None:
    tasks, webhooks = store.agent_tasks.tasks, store.agent_tasks.webhooks
    tasks.save("maria", "there", state="working", head=b"h", pieces=[])
    for task in ("there", "gone"):
        webhooks.set(task, "w", owner="maria", data=b"w")
    age(clock)
    assert month_old(store, "agent_tasks") == {"agent_task_webhooks": 1}
    assert [len(webhooks.list(task)) for task in ("there", "gone")] == [1, 0]


def test_a_sum_of_usage_goes_when_its_last_instant_is_old(store: Store, clock: FrozenClock) -> None:
    """Until then it may be of calls that stay: those of the hour and of the day in which the age ends."""
    noon = clock().replace(hour=12, minute=0, second=0, microsecond=0)
    for hours in (-30, -9, 2, 3, 8):
        store.usage.calls.record(model="m", instance_id="box", at=noon + timedelta(hours=hours, minutes=45), token_input=1)
    clock.advance(delta=noon + timedelta(days=7, hours=2, minutes=30) - clock())
    prune(store, "usage", older_than=timedelta(days=7))
    assert [one.calls for one in store.usage.by_hour().items] == [1, 1, 1]
    assert [one.calls for one in store.usage.by_day().items] == [4]


def test_an_ended_run_goes_with_all_of_it_and_names_its_attachments(store: Store, clock: FrozenClock) -> None:
    with store.begin() as tx:
        verbs = tx.programs
        for id in ("over", "running"):
            verbs.runs.create(id=id)
            frame = verbs.executions.begin(id, statement_index=1, statement_text="do")
            verbs.executions.begin(id, statement_index=2, statement_text="do", parent_id=frame.id)
            verbs.bindings.bind(id, "x", "1", kind="let")
            verbs.agents.start(id, "captain", resume=False)
            verbs.agents.add_segment(id, "captain", prompt="p", summary="s")
            verbs.imports.add(id, "alias", "https://example.com/p")
            verbs.subagents.start(id, isolation="file")
        verbs.runs.finish("over", "completed")
    of_run = programs.bindings.c.run_id == "over"
    raw_change(store, update(programs.bindings).where(of_run).values(attachment_path="attachments/x.md"))
    age(clock)
    report = prune(store, "programs", older_than=30 * DAY)
    once = ("run", "bindings", "agents", "agent_segments", "imports", "program_subagents")
    assert report.tables == {"execution": 2, **dict.fromkeys(once, 1)}
    assert report.files == ["over: attachments/x.md"]


def test_a_run_stays_in_its_own_file(tmp_path: Path, clock: FrozenClock) -> None:
    with create_run_file(tmp_path, clock=clock) as store:
        own = store.run_id or ""
        store.programs.bindings.bind(own, "x", "1", kind="let")
        store.programs.runs.finish(own, "completed")
        store.programs.runs.create(id="guest")
        store.programs.runs.finish("guest", "interrupted")
        age(clock)
        assert month_old(store, "programs") == {"run": 1}
        assert [run.id for run in store.programs.runs.list().items] == [own]
        assert len(store.programs.bindings.list(own)) == 1


# What nobody can read, or bind again, stops no prune: it stays, and the rest goes as a dry run says.


LONG = "x" * 700


@pytest.fixture
def writer(store: Store, url: str) -> Iterator[Raw]:
    with closing(Raw(url)) as writer:
        yield writer


def went(store: Store, what: str) -> dict[str, int]:
    """What is older than a month goes, as a dry run says before."""
    dry = month_old(store, what, dry_run=True)
    assert month_old(store, what) == dry
    return dry


def spoil(writer: Raw, what: str) -> None:
    """A label longer than any index takes, with all foreign keys kept."""
    if what == "branch":
        writer.rows("UPDATE branches SET id = ? WHERE id = 'b2'", LONG)
    else:
        writer.rows("INSERT INTO progressions (id, created_at) VALUES (?, 1)", LONG)
        table, id = ("branches", "b2") if what == "pool of a branch" else ("sessions", "s2")
        writer.rows(f"UPDATE {table} SET progression_id = ? WHERE id = ?", LONG, id)


@pytest.mark.parametrize("what", ["branch", "pool of a branch", "pool of a session"])
def test_a_session_with_a_label_that_is_too_long_is_left_alone(store: Store, writer: Raw, clock: FrozenClock, what: str) -> None:
    for number in range(5):
        store.conversations.sessions.create(id=f"s{number}", status="completed")
        store.conversations.branches.create(f"s{number}", id=f"b{number}")
    spoil(writer, what)
    age(clock)
    told = prune_conversations(store, keep_days=30, keep_n=0, dry_run=True)
    assert told == PruneReport(sessions=4, branches=4, progressions=8, messages=0)
    assert went(store, "conversations") == {"branches": 4, "progressions": 8, "sessions": 4}
    assert [session.id for session in store.conversations.sessions.list().items] == ["s2"]
    assert went(store, "conversations") == {}


def test_a_message_with_an_id_that_is_too_long_stays(store: Store, writer: Raw, clock: FrozenClock) -> None:
    store.conversations.messages.put_many([message(id) for id in "abc"])
    session = store.conversations.sessions.create(id="s", status="completed")
    store.conversations.progressions.replace(session.progression_id, ["a", "b"])
    for old in ("a", "c"):
        writer.rows("UPDATE messages SET id = ? WHERE id = ?", LONG + old, old)
    writer.rows("UPDATE progression_members SET message_id = ? WHERE message_id = 'a'", LONG + "a")
    age(clock)
    assert went(store, "messages") == {}
    assert went(store, "conversations") == {"messages": 1, "progression_members": 2, "progressions": 1, "sessions": 1}
    assert writer.count("messages") == 2


@pytest.mark.parametrize("length", [100, 2])
def test_a_row_with_a_key_that_is_too_long_stays_and_the_rest_goes(
    store: Store, writer: Raw, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """However many rows one look for candidates finds; keys of several columns, too."""
    for module in ("persist.maintenance.pruning", "persist.db.operations.pruning"):
        monkeypatch.setattr(f"{module}.MOST_CANDIDATES", length)
    for name in ("one", "two", "three", "four", "five"):
        run = store.workflows.runs.create(name, trigger_id=name, current_phase="plan")
        store.workflows.runs.finish(run.id, "succeeded")
        store.telemetry.tags.record("repo", "m", instance_id=name)
        clock.advance(seconds=1)
    writer.rows("UPDATE workflow_runs SET id = ? WHERE workflow_name = 'two'", LONG)
    writer.rows("UPDATE agent_tags SET instance_id = ? WHERE instance_id = 'one'", LONG)
    age(clock)
    assert went(store, "workflow_runs") == {"workflow_runs": 4}
    assert went(store, "telemetry") == {"agent_tags": 4}
    assert writer.rows("SELECT workflow_name FROM workflow_runs") == [("two",)]


def histories_that_share(store: Store) -> None:
    """Conversations that end in one tree of nine messages, at the ninth, fourth and third; runs of one message and of two."""
    with store.begin() as tx:
        put(tx, "long", "1", None, "i", chain("abcdefghi"))
        put(tx, "short", "1", None, "d", branches=["b"])
        put(tx, "shorter", "1", None, "c")
        save(tx, "s", 1, run="one")
        save(tx, "s", 1, run="two")
        save(tx, "st", 2, run="two")


@pytest.mark.parametrize(
    ("table", "id", "gone"),
    [("history_records", "long", 3), ("history_records", "short", 8), ("history_runs", "one", 11), ("history_runs", "two", 10)],
)
def test_what_a_history_that_nobody_can_read_holds_stays(
    store: Store, writer: Raw, clock: FrozenClock, table: str, id: str, gone: int
) -> None:
    """Its instant is older than any that persist writes, so that a condition in SQL takes it for old."""
    histories_that_share(store)
    writer.rows(f"UPDATE {table} SET updated_at = ? WHERE id = ?", -1e300 if table == "history_records" else -(2**62), id)
    age(clock)
    assert sum(went(store, what).get("history_entries", 0) for what in (table, "histories")) == gone
    assert writer.rows(f"SELECT id FROM {table}") == [(id,)]


@pytest.mark.parametrize(("table", "gone"), [("history_records", 7), ("history_runs", 2)])
def test_what_is_left_of_a_history_that_a_raw_writer_deleted_holds_entries(
    store: Store, writer: Raw, clock: FrozenClock, table: str, gone: int
) -> None:
    histories_that_share(store)
    if not writer.is_sqlite:
        writer.rows("SET session_replication_role = replica")
    writer.rows("DELETE FROM history_records WHERE id = 'short'")
    writer.rows("UPDATE history_snapshots SET run_id = 'gone' WHERE run_id = 'two' AND step_index = 1")
    age(clock)
    assert went(store, table)["history_entries"] == gone


def test_a_session_that_nobody_can_read_keeps_its_artifacts(store: Store, writer: Raw, clock: FrozenClock) -> None:
    for session in ("one", "two"):
        store.app_sessions.sessions.create("app", "maria", session)
        store.app_sessions.artifacts.save(ArtifactKey("app", "maria", session, "notes.txt"), "{}")
    writer.rows("UPDATE app_user_sessions SET updated_at = ? WHERE session_id = 'one'", -(2**62))
    age(clock)
    dry = went(store, "app_sessions")
    assert (dry["app_user_sessions"], dry["app_artifacts"]) == (1, 1)
    assert writer.rows("SELECT session_id FROM app_artifacts") == [("one",)]
