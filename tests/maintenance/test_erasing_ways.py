"""What an erasure finds in the tables it finds in the event log and in the quarantine, too: each kind, in each of its ways."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from persist import Store
from persist.db.changes.journal import place_of
from persist.framework_state.histories.schemas import Message, NewEntry
from persist.maintenance import doctor, erase, prune
from persist.maintenance.erasure_plans import kinds
from persist.testing import START, FrozenClock
from tests.cases import each
from tests.contract.conftest import Raw
from tests.maintenance.erasing_scenes import events, places_of
from tests.maintenance.erasing_ways import SCENES, SECRET, TABLES_BY_NAME, forget, set_aside
from tests.seeded_databases import with_file

KINDS = {name: kind for name, kind in kinds(trial=False).items() if place_of(kind.table) is not None}
WAYS = [(name, by) for name, kind in KINDS.items() for by in dict.fromkeys(way.selector for way in kind.ways()) or [""]]
ROWS = [name for name in TABLES_BY_NAME if name not in ("event_log", "event_heads", "event_positions", "quarantine")]
GONE: dict[str, Callable[[str], Iterable[str]]] = {
    "all else": lambda table: {*ROWS} - {table},
    "everything": lambda table: ROWS,
    "set aside": lambda table: ROWS,
}
"""The tables whose rows are gone from them before."""
LEFT = {("all else", table) for table in ("progressions", "progression_members")}
"""What a shell leaves if it deletes all that leads there: docs/erasing.md, "What no selector finds"."""


def cases(before: str) -> Iterator[tuple[str, str]]:
    """Each way with all else gone, and each scene with everything gone, whatever is in it."""
    seen = set()
    for table, by in WAYS:
        scene = SCENES.get((table, by))
        if ("all else", table) not in LEFT if before == "all else" else id(scene) not in seen:
            seen.add(id(scene))
            yield table, by


SAID = (SECRET, b64encode(SECRET.encode()).decode(), SECRET.encode().hex())
"""What a scene says, as it stands in a column, and as bytes stand in the log and in the quarantine."""
SEEDS = {name: [str(row) for row in table.info.get("seed", ())] for name, table in TABLES_BY_NAME.items()}


@pytest.mark.parametrize("before", GONE)
def test_what_is_gone_is_found_as_what_is_there(url: str, before: str) -> None:
    """Each selector and each kind once, at least."""
    chosen, seen = [], set[str]()
    for table, by in cases(before):
        if before == "everything" or not {table, by} <= seen:
            seen |= {table, by}
            chosen.append((table, by))
    check_each(url, before, chosen[::6])


@pytest.mark.parametrize("before", GONE)
def test_each_way_of_each_kind(url: str, before: str) -> None:
    """For a kind that has no scene nobody knows whether the log and the quarantine still have it."""
    check_each(url, before, cases(before))


def check_each(url: str, before: str, chosen: Iterable[tuple[str, str]]) -> None:
    with Store.open(with_file(url), events=before != "set aside") as store, closing(Raw(url)) as raw:
        seeds = {name: raw.rows(f"SELECT * FROM {name}") for name in ROWS}

        @each(("table", "by"), chosen)
        def find(table: str, by: str) -> None:
            selectors, make = SCENES[table, by]
            tables = [table]
            if before != "all else":
                tables = [name for (name, _), scene in SCENES.items() if scene is SCENES[table, by]]
            with store.begin() as tx:
                make(tx)
            assert all(raw.count(f'"{name}"') > len(SEEDS[name]) for name in tables)
            (set_aside if before == "set aside" else forget)(raw, *GONE[before](table))
            assert places_of(url, *SAID)
            erase(store, **selectors)
            assert places_of(url, *SAID) == set()
            aside = [name for (name,) in raw.rows("SELECT table_name FROM quarantine")]
            for name in tables:
                assert named_in_log(store, name) == []
                assert raw.count(f'"{name}"') + aside.count(name) <= len(SEEDS[name])
            begin_anew(raw, seeds)

        find()


def begin_anew(raw: Raw, rows: dict[str, list[Any]]) -> None:
    """Put there what was there, and nothing else."""
    forget(raw, *ROWS, "quarantine")
    for table, of in rows.items():
        for row in of:
            raw.rows(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)


def named_in_log(store: Store, table: str) -> list[Any]:
    """The changes of the log that name rows of a table, but for those that every database has."""
    changes = [change for event in events(store) for change in event.data.get("changes", ())]
    return [change for change in changes if change["table"] == table and change.get("key") != {"owner": "", "channel": ""}]


@pytest.mark.one_database
def test_memories_below_a_namespace_that_were_deleted_leave_the_log(logged: Store, url: str) -> None:
    with logged.begin() as tx:
        for namespace in (("people", "maria"), ("people", "maria", "below"), ("people", "mariana")):
            tx.checkpoints.memories.put(namespace, "k", {"of": "-".join(namespace)})
            tx.checkpoints.memories.delete(namespace, "k")
    assert erase(logged, namespace="people.maria").events == 4
    assert ("event_log", "data") not in places_of(url, "people-maria-below")
    assert ("event_log", "data") in places_of(url, "people-mariana")


def test_copies_of_memories_below_a_namespace_leave_the_quarantine(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store, store.begin() as tx:
        tx.checkpoints.memories.put(("people", "maria", "below"), "k", {"a": 1})
    with closing(Raw(sqlite_url)) as raw:
        raw.rows("UPDATE memories SET value_json = 'no JSON, but a SECRET'")
    with Store.open(sqlite_url) as store:
        assert [finding.fixed for finding in doctor(store, fix=True)] == [True]
        assert places_of(sqlite_url, "SECRET") == {("quarantine", "contents")}
        assert erase(store, namespace="people.maria").tables == {"quarantine": 1}
        assert places_of(sqlite_url, "SECRET") == set()


@pytest.mark.parametrize("spoilt", ["e1", "e2", "e3"])
def test_messages_of_a_history_go_once_nothing_ends_in_their_tree(sqlite_url: str, spoilt: str) -> None:
    """The first, one between, or the last one is in the quarantine: the others, and its copy, are still found."""
    places = (("e1", None), ("e2", "e1"), ("e3", "e2"))
    entries = [NewEntry(id, parent, Message({"t": "SECRET"}, extra={})) for id, parent in places]
    about: dict[str, Any] = {"revision": "1", "expected_revision": None, "updated_at": START}
    with Store.open(sqlite_url) as store, store.begin() as tx:
        for id in ("h1", "h2"):
            tx.histories.records.put(id, head_id="e3", entries=entries, **about)
    with closing(Raw(sqlite_url)) as raw:
        raw.rows("UPDATE history_entries SET message_json = 'no JSON, but a SECRET' WHERE id = ?", spoilt)
    with Store.open(sqlite_url) as store:
        doctor(store, fix=True)
        assert erase(store, session_id="h1").tables == {"history_records": 1}  # the other one has them, too
        assert erase(store, session_id="h2").tables == {"history_entries": 2, "history_records": 1, "quarantine": 1}
        assert places_of(sqlite_url, "SECRET") == set()


@pytest.mark.one_database
def test_a_run_of_a_session_that_was_pruned_leaves_the_log(logged: Store, url: str, clock: FrozenClock) -> None:
    with logged.begin() as tx:
        runs, executions = tx.workflows.runs, tx.workflows.executions
        pruned = runs.create("w", trigger_id="t", current_phase="p", context={"a": "SECRET"})
        begun = executions.start(skill="s", trigger_type="chat", trigger_id="t", workflow_run_id=pruned.id)
        executions.set_session(begun.id, "ours")
        executions.finish(begun.id, success=True)
        runs.cancel(pruned.id)
    clock.advance(seconds=200_000)
    assert prune(logged, "workflows", older_than=timedelta(days=1)).tables["workflow_runs"] == 1
    erase(logged, session_id="ours")
    assert places_of(url, "SECRET") == set()


@pytest.mark.one_database
def test_a_webhook_that_was_deleted_leaves_the_log_with_its_task(logged: Store, url: str) -> None:
    with logged.begin() as tx:
        tasks, webhooks = tx.agent_tasks.tasks, tx.agent_tasks.webhooks
        for owner, context in (("o", "ours"), ("p", "theirs")):
            tasks.save(owner, "t1", state="s", head=b"x", pieces=[], context_id=context, status_key="1")
            webhooks.set("t1", "w1", owner=owner, data=f"SECRET of {owner}".encode())
            webhooks.delete("t1", owner=owner)
    erase(logged, session_id="ours")
    left = {owner: places_of(url, b64encode(f"SECRET of {owner}".encode()).decode()) for owner in ("o", "p")}
    assert left == {"o": set(), "p": {("event_log", "data")}}


@pytest.mark.one_database
def test_a_session_of_an_application_that_was_deleted_leads_on(logged: Store, url: str) -> None:
    id = "11111111-2222-3333-4444-555555555555"
    with logged.begin() as tx:
        tx.app_sessions.sessions.create("app", "maria", id)
        tx.replay_streams.messages.append(id, "1", "SECRET")
        tx.app_sessions.sessions.delete("app", "maria", id)
    assert erase(logged, owner="maria").tables == {"replay_messages": 1, "replay_sessions": 1}
    assert places_of(url, "SECRET") == set()


@pytest.mark.one_database
def test_letters_and_messages_of_a_conversation_that_was_deleted_go(logged: Store, url: str) -> None:
    with logged.begin() as tx:
        domain, said = tx.conversations, {"created_at": 1.5, "role": "user", "content": {"a": "SECRET"}}
        for id, user in (("ours", "maria"), ("theirs", "peter")):
            domain.sessions.create(id=id, user=user)
            domain.branches.create(id, id=f"{id}-branch")
        domain.messages.record("ours-branch", {"id": "m1", **said})
        domain.messages.record("ours-branch", {"id": "shown", **said, "content": {"a": "shown by both"}})
        domain.progressions.append(domain.branches.get("theirs-branch").progression_id, "shown")
        for sender, recipient in (("ours-branch", "theirs-branch"), ("theirs-branch", "theirs-branch")):
            domain.exchange.send(sender=sender, recipient=recipient, content={"a": f"from {sender}"})
        domain.sessions.delete("ours")
    tables = erase(logged, user_id="maria").tables
    assert tables == {"exchange_items": 1, "messages": 2}
    assert [one.id for one in logged.conversations.branches.history("theirs-branch")] == ["shown"]
    assert {words: places_of(url, words) for words in ("SECRET", "from ours-branch")} == {
        "SECRET": set(),
        "from ours-branch": set(),
    }
    assert places_of(url, "from theirs-branch") == {("event_log", "data"), ("messages", "content")}


@pytest.mark.one_database
def test_a_row_that_is_there_says_itself_whose_it_is(logged: Store) -> None:
    """The log still says that an execution was of the session, and what a host writes there may say anything."""
    with logged.begin() as tx:
        run = tx.workflows.runs.create("w", trigger_id="t", current_phase="p")
        begun = tx.workflows.executions.start(skill="s", trigger_type="chat", trigger_id="t", workflow_run_id=run.id)
        for session in ("ours", "theirs"):
            tx.workflows.executions.set_session(begun.id, session)
        peters = tx.chat.sessions.create(agent="a", model={}, owner="peter").id
        for row in ({"id": peters, "owner": "maria"}, {"scope": "s", "seq": "no number", "owner": "maria"}):
            table = "usage_calls" if "seq" in row else "chat_sessions"
            tx.events.append("audit", "noted", {"changes": [{"table": table, "op": "put", "row": row}]})
    assert erase(logged, owner="maria", session_id="ours").total == 0
