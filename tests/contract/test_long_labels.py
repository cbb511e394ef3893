"""Identifiers and names that are searched by: as long on one database as on the other, and no longer."""

import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Column, Index, Table, UniqueConstraint
from sqlalchemy.sql.visitors import iterate

from persist.db.schema.column_types import LABEL_BYTES, LONG_LABEL_BYTES, Label
from persist.errors import Conflict, InvalidValue, PayloadTooLarge
from persist.framework_state.app_sessions.schemas import ArtifactKey, NewMemory, StateChange
from persist.framework_state.checkpoints.schemas import Blob, Write
from persist.maintenance import doctor
from persist.schema.metadata import metadata
from tests.cases import each
from tests.contract.faces import on_one_face

ROOM = 2704
"""What a server's index takes of one row, in bytes, were it not compressed."""

TOO_LONG = 4097


def text(size: int) -> str:
    """Of so many bytes, which nothing makes smaller."""
    return secrets.token_hex(size)[:size]


def _indexes(table: Table) -> list[tuple[str, list[Column[Any]]]]:
    scope = [table.c[table.info["key_scope"]]] if "key_scope" in table.info else []
    keys = [("key", [*scope, *table.primary_key.columns])]
    keys += [(str(one.name), [*one.columns]) for one in table.constraints if isinstance(one, UniqueConstraint)]
    return keys + [(str(index.name), _columns(index)) for index in table.indexes]


def _columns(index: Index) -> list[Column[Any]]:
    terms: list[Any] = list(index.expressions)
    return [part for term in terms for part in iterate(term) if isinstance(part, Column)]


def test_the_longest_labels_fit_every_index() -> None:
    too_long = []
    for table in metadata.sorted_tables:
        for name, columns in _indexes(table):
            room = sum(column.type.maximum + 4 if isinstance(column.type, Label) else 16 for column in columns)
            if room + 16 > ROOM and table.name != "agent_tags":  # see its model
                too_long.append((table.name, name, room))
    assert too_long == []


VERBS: dict[str, Callable[[Any, str], Any]] = {
    "chat": lambda tx, id: tx.chat.sessions.create(id=id, agent="a", model={}),
    "agent": lambda tx, agent: tx.chat.sessions.create(agent=agent, model={}),
    "run": lambda tx, id: tx.workflows.runs.create(id, trigger_id=id, id=id, current_phase=id),
    "messaging": lambda tx, id: tx.messaging.sessions.get_or_create(platform=id, channel_id=id, thread_id=id, user_id=id),
    "conversation": lambda tx, id: tx.conversations.sessions.create(id=id, agent_name=id),
    "write": lambda tx, id: tx.checkpoints.states.put_writes(
        id, id, [Write(0, id, Blob(id, b""))], task_id=id, task_path=id, namespace=id
    ),
    "memory": lambda tx, id: tx.checkpoints.memories.put((id,), id, {}),
    "transcript": lambda tx, id: tx.transcripts.entries.append(id, id, [{"uuid": id}], subpath=id),
    "app session": lambda tx, id: tx.app_sessions.sessions.create(id, id, id, state=StateChange(user={id: "1"})),
    "artifact": lambda tx, id: tx.app_sessions.artifacts.save(ArtifactKey(id, id, id, id), "{}"),
    "remark": lambda tx, id: tx.app_sessions.memories.add(id, id, id, [NewMemory(id, "{}", "", [])]),
    "agent task": lambda tx, id: tx.agent_tasks.tasks.save(id, id, state=id, head=b"", pieces=[], context_id=id),
    "webhook": lambda tx, id: tx.agent_tasks.webhooks.set(id, id, owner=id, data=b""),
    "replay": lambda tx, id: tx.replay_streams.messages.append(id, id, None),
    "program": lambda tx, id: tx.programs.runs.create(id=id),
    "tag": lambda tx, id: tx.telemetry.tags.record("repo", id, instance_id=id),
    "override": lambda tx, id: tx.workflows.workflow_overrides.set(id, enabled=False),
}


@on_one_face
@each("verb", VERBS)
def test_a_label_has_so_many_bytes_at_most(store: Any, verb: str) -> None:
    write = VERBS[verb]
    with store.begin() as tx:
        with pytest.raises(PayloadTooLarge) as caught:
            write(tx, text(TOO_LONG))
        assert caught.value.size == TOO_LONG
    with store.begin() as tx:
        write(tx, text(LABEL_BYTES))


def test_bytes_count_and_not_characters(store: Any) -> None:
    with store.begin() as tx:
        tx.chat.sessions.create(id="é" * (LABEL_BYTES // 2), agent="a", model={})
        with pytest.raises(InvalidValue, match=f"{LABEL_BYTES + 2} bytes is over the limit of {LABEL_BYTES}") as caught:
            tx.chat.sessions.create(id="é" * (LABEL_BYTES // 2 + 1), agent="a", model={})
        assert caught.value.path == "id"
        assert len(tx.chat.sessions.list().items) == 1  # the transaction goes on


def test_paths_and_addresses_may_be_longer(store: Any) -> None:
    root = "/" + text(LONG_LABEL_BYTES - 1)
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model={}, workspace_root=root)
        assert [one.id for one in tx.chat.sessions.list(workspace_root=root).items] == [session.id]


# An id that is taken is refused before anything is written, so that the transaction goes on (decision: ON CONFLICT).


def _run(tx: Any, id: str) -> object:
    return tx.workflows.runs.create("build", trigger_id="t", current_phase="p", id=id)


def _execution(tx: Any, id: str) -> object:
    return tx.workflows.executions.start(trigger_type="cli", trigger_id="t", skill="build:plan", id=id)


def _approval(tx: Any, id: str) -> object:
    run = tx.workflows.runs.create("build", trigger_id="t", current_phase="p")
    return tx.workflows.approvals.request(run.id, gate="g", summary="s", id=id)


def _session(tx: Any, id: str) -> object:
    return tx.chat.sessions.create(agent="agent", model={"providerID": "p", "modelID": "m"}, id=id)


def _progression(tx: Any, id: str) -> object:
    return tx.conversations.progressions.create(id, ids=["a secret"])


def _thread(tx: Any, id: str) -> object:
    return tx.checkpoints.states.put(id, "1", head=Blob("b", b"a secret"), values={"c": ("1", Blob("b", b"a secret"))})


def _writes(tx: Any, id: str) -> object:
    return tx.checkpoints.states.put_writes(id, "1", [Write(0, "c", Blob("b", b"a secret"))], task_id="t")


def _copied(tx: Any, id: str) -> object:
    tx.checkpoints.states.put("source", "1", head=Blob("b", b"a secret"))
    return tx.checkpoints.threads.copy("source", id)


@each("create", [_run, _execution, _approval, _session], ids=lambda verb: verb.__name__)
def test_a_taken_id_is_refused_and_the_transaction_goes_on(store: Any, create: Callable[[Any, str], object]) -> None:
    with store.begin() as tx:
        create(tx, "mine")
    with store.begin() as tx:
        before = tx.workflows.runs.create("before", trigger_id="t", current_phase="p")
        with pytest.raises(Conflict) as caught:
            create(tx, "mine")
        assert "'mine' is taken" in str(caught.value)
        assert (caught.value.constraint or "").startswith("pk_")
        after = tx.workflows.runs.create("after", trigger_id="t", current_phase="p")
    with store.read() as tx:
        assert [tx.workflows.runs.get(run.id).workflow_name for run in (before, after)] == ["before", "after"]


def _conversation(tx: Any, id: str) -> object:
    return tx.conversations.sessions.create(id=id)


def _say(tx: Any, id: str) -> object:
    return tx.chat.messages.append(id, role="user", parts=[{"type": "text", "text": "a secret"}])


def _message(tx: Any, id: str) -> object:
    with suppress(Conflict):
        tx.chat.sessions.create(agent="agent", model={}, id="conversation")
    return tx.chat.messages.append("conversation", role="user", parts=[{"type": "text", "text": "a secret"}], id=id)


def _replay(tx: Any, id: str) -> object:
    return tx.replay_streams.messages.append(id, "stream", "a secret")


def _event(tx: Any, id: str) -> object:
    return tx.histories.run_events.append(
        id, "began", step_index=0, at=datetime(2026, 1, 2, tzinfo=UTC), metadata={"a": "secret"}
    )


LEFT: dict[str, tuple[Callable[[Any, str], object], Callable[[Any, str], object], Callable[[Any, str], object]]] = {
    "chat_sessions": (_session, _say, lambda tx, id: tx.chat.messages.list(id)),
    "sessions": (
        _conversation,
        lambda tx, id: tx.conversations.branches.create(id, id="b"),
        lambda tx, id: tx.conversations.branches.list(id),
    ),
    "chat_messages": (_message, lambda tx, id: None, lambda tx, id: tx.chat.messages.list("conversation")[0]["parts"][1:]),
    "replay_sessions": (_replay, lambda tx, id: None, lambda tx, id: tx.replay_streams.messages.list(id, "stream")[1:]),
    "history_runs": (_event, lambda tx, id: None, lambda tx, id: tx.histories.run_events.list(id)[1:]),
    "progressions": (_progression, lambda tx, id: None, lambda tx, id: tx.conversations.progressions.get(id)[1:]),
    "workflow_runs": (_run, lambda tx, id: tx.workflows.effects.begin(id, "send"), lambda tx, id: tx.workflows.effects.list(id)),
}
"""By table: what makes a row of a chosen id, what makes a row below it, and what shows those below."""


@each("table", LEFT)
def test_an_id_under_which_rows_of_a_former_row_are_left_is_refused(sqlite_store: Any, table: str) -> None:
    make, add, shown = LEFT[table]
    with sqlite_store.begin() as tx:
        make(tx, "mine")
        add(tx, "mine")
    with closing(sqlite3.connect(sqlite_store.runtime.dialect.path)) as raw, raw:
        raw.execute(f"DELETE FROM {table} WHERE id = 'mine'")
    with pytest.raises(Conflict, match="persist doctor --fix"), sqlite_store.begin() as tx:
        make(tx, "mine")
    doctor(sqlite_store, fix=True)
    with sqlite_store.begin() as tx:
        make(tx, "mine")
        assert not shown(tx, "mine")


@each("make", [_thread, _writes, _copied], ids=lambda verb: verb.__name__)
def test_every_way_to_a_thread_refuses_the_id_of_a_former_one(sqlite_store: Any, make: Callable[[Any, str], object]) -> None:
    sqlite_store.checkpoints.states.put("mine", "former", head=Blob("b", b"a secret"))
    with closing(sqlite3.connect(sqlite_store.runtime.dialect.path)) as raw, raw:
        raw.execute("DELETE FROM checkpoint_threads WHERE id = 'mine'")
    with pytest.raises(Conflict, match="persist doctor --fix"), sqlite_store.begin() as tx:
        make(tx, "mine")
    doctor(sqlite_store, fix=True)
    with sqlite_store.begin() as tx:
        make(tx, "mine")
        assert tx.checkpoints.states.page(thread_id="mine", id="former") == []


def test_every_way_to_a_message_refuses_the_id_of_a_former_one(sqlite_store: Any) -> None:
    store, said = sqlite_store, [{"type": "text", "text": "mine"}]
    other = store.chat.sessions.create(agent="a", model={}).id

    def record(id: str) -> None:
        with store.record(other) as recorder:
            recorder.feed_many([{"type": "start", "messageId": id}, {"type": "text-start", "id": "t"}])

    ways: list[Callable[[str], object]] = [
        lambda id: store.chat.messages.append(other, role="user", parts=said, id=id),
        lambda id: store.chat.messages.enqueue(other, parts=said, id=id),
        lambda id: store.chat.messages.sync(other, [{"id": id, "role": "user", "parts": said}]),
        record,
    ]
    for number, way in enumerate(ways):
        with store.begin() as tx:
            _message(tx, f"m{number}")
        with closing(sqlite3.connect(store.runtime.dialect.path)) as raw, raw:
            raw.execute("DELETE FROM chat_messages WHERE id = ?", (f"m{number}",))
        with pytest.raises(Conflict, match="persist doctor --fix"):
            way(f"m{number}")
        assert store.chat.messages.list(other) == []
