"""One thing of each kind for each way in which an erasure finds it, and what becomes of rows before it.

Nothing else is in the database. What a scene writes says a secret, and in no other way than the one of the scene is it found.
"""

from base64 import b64encode
from collections.abc import Callable
from json import dumps
from typing import Any

from persist.db.operations.erasing import HISTORY, LINK, LOGS, NAMED, NAMESPACE, OWNER, SESSION, USER
from persist.framework_state.agent_tasks.schemas import Piece
from persist.framework_state.app_sessions.schemas import ArtifactKey, NewMemory, StateChange
from persist.framework_state.checkpoints.schemas import Blob
from persist.framework_state.histories.schemas import Message, NewEntry
from persist.testing import START
from tests.contract.conftest import Raw
from tests.maintenance.erasing_scenes import TABLES, secret_of

SECRET = secret_of("maria")
SAID = {"secret": SECRET}
TEXT = [{"type": "text", "text": SECRET}]
OURS = "ours"
"""The id of a session, which a host chose."""
BY_OWNER: dict[str, Any] = {OWNER: "maria"}
BY_USER: dict[str, Any] = {USER: "maria"}
BY_SESSION: dict[str, Any] = {SESSION: OURS}
BY_SPACE: dict[str, Any] = {NAMESPACE: "people.maria"}

Scene = tuple[dict[str, Any], Callable[[Any], object]]
"""What somebody erases by, and what is written before."""


def both(*makes: Callable[[Any], object]) -> Callable[[Any], object]:
    """A scene of several things."""
    return lambda tx: [make(tx) for make in makes]


def chat(tx: Any, id: str | None = OURS, owner: str | None = None, **metadata: str) -> None:
    """A chat with a message."""
    session = tx.chat.sessions.create(agent="a", model={}, owner=owner, id=id, metadata=SAID)
    tx.chat.messages.append(session.id, role="user", parts=TEXT, metadata=metadata or None)


def person_of_an_agent(tx: Any, user: str = "maria") -> str:
    """A messaging session whose agent's session is known later."""
    session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C1", user_id=user, thread_id=SECRET)
    tx.messaging.messages.add(session.id, role="user", content=SECRET, platform_message_id="1")
    tx.messaging.sessions.set_agent_session(session.id, OURS)
    return str(session.id)


def execution(tx: Any, session: str = OURS, run: str | None = None) -> None:
    """An execution whose session is known later."""
    begun = tx.workflows.executions.start(skill="s", trigger_type="chat", trigger_id="t", workflow_run_id=run)
    tx.workflows.executions.set_session(begun.id, session)
    tx.workflows.executions.finish(begun.id, success=False, error=SECRET)


def run(tx: Any, *sessions: str) -> None:
    """A run with an execution of each of the sessions."""
    id = tx.workflows.runs.create("w", trigger_id="t", current_phase="p", context=SAID).id
    for session in sessions:
        execution(tx, session, id)


def usage(tx: Any, **of: str) -> None:
    """A call that counts towards a budget."""
    budget = "owner:maria" if "owner" in of else f"instance:{OURS}"
    tx.usage.budgets.set(budget, "day", 1)
    tx.usage.calls.record(model=SECRET, error=SECRET, cost_usd_micros=5, **of)


def history(tx: Any, id: str = OURS, scope: str | None = None) -> None:
    """A history of one message."""
    entry, about = NewEntry("e1", None, Message(SAID, extra=SAID)), {"revision": "1", "expected_revision": None}
    tx.histories.records.put(id, head_id="e1", entries=[entry], scope=scope, updated_at=START, **about)


def history_run(tx: Any, of: str = OURS) -> None:
    """A run of a history."""
    tx.histories.runs.register("history run", conversation_id=of, agent_name=SECRET, started_at=START, metadata=SAID)


def thread(tx: Any, id: str = OURS) -> None:
    """A thread of checkpoints."""
    blob = Blob("json", SECRET.encode())
    tx.checkpoints.states.put(id, "1", head=blob, metadata=SAID, versions={"a": "1"}, values={"a": ("1", [blob])})


def memory(tx: Any, *below: str) -> None:
    """A memory of a namespace."""
    tx.checkpoints.memories.put(("people", "maria", *below), "k", SAID, embeddings={"text": b"\x00\x00\x80?"})


def transcript(tx: Any, id: str = OURS) -> None:
    """A transcript of a session."""
    tx.transcripts.entries.append("-w", id, [{"type": "user", "uuid": "u", **SAID}], fold=lambda *_: SAID)


def task(tx: Any, owner: str, context: str) -> None:
    """A task of an agent, and a webhook that watches it."""
    pieces = [Piece("history", 0, 0, SECRET.encode())]
    tx.agent_tasks.tasks.save(owner, "t1", state="s", head=b"x", pieces=pieces, context_id=context, status_key="1")
    tx.agent_tasks.webhooks.set("t1", "w1", owner=owner, data=SECRET.encode())


def application(tx: Any, user: str, session: str) -> None:
    """A session of an application with an artifact and a memory."""
    text, app = dumps(SAID), tx.app_sessions
    app.sessions.create("app", user, session, state=StateChange(app={}, user={"k": text}, session={"k": text}))
    app.artifacts.save(ArtifactKey("app", user, session, "a.txt"), text, data=SECRET.encode())
    app.memories.add("app", user, session, [NewMemory("m", text, SECRET, [SECRET])])


def conversation(tx: Any, id: str = OURS, user: str | None = None) -> None:
    """A conversation with a message of each kind, and letters from and to its branch."""
    said = {"created_at": 1.5, "role": "user", "content": SAID}
    domain = tx.conversations
    domain.messages.put({"id": "system", **said})
    domain.sessions.create(id=id, user=user, name=SECRET, status="running")
    domain.branches.create(id, id="branch", name=SECRET, system_msg_id="system")
    domain.messages.record("branch", {"id": "said", **said})
    domain.messages.put({"id": "shown", **said})
    domain.progressions.append(domain.branches.get("branch").progression_id, "shown")
    domain.sessions.set_status(id, "failed", reason_code="x", reason=SECRET, evidence_refs=SAID)
    domain.exchange.send(sender="branch", recipient="friend", content=SAID)
    sent = domain.exchange.send(sender="friend", recipient="branch", content=SAID)
    domain.exchange.mark_read("branch", sent.id)


_STATE = StateChange(app={}, user={}, session={"k": dumps(SAID)})
_USAGE_TABLES = ("usage_calls", "usage_rollups", "usage_spending", "usage_budgets")
_USAGE: dict[str, Scene] = {
    OWNER: (BY_OWNER, lambda tx: usage(tx, owner="maria", instance_id="another")),
    SESSION: (BY_SESSION, lambda tx: usage(tx, instance_id=OURS)),
}
_APPLICATION_TABLES = ("app_user_sessions", "app_artifacts", "app_user_state", "app_memories")
_APPLICATION: dict[str, Scene] = {
    OWNER: (BY_OWNER, lambda tx: application(tx, "maria", "s")),
    USER: (BY_USER, lambda tx: application(tx, "maria", "s")),
}
_LETTERS = ("exchange_items", "exchange_cursors", "status_transitions")
_CONVERSATION: Scene = (BY_USER, lambda tx: conversation(tx, user="maria"))
_TASK: dict[str, Scene] = {
    OWNER: (BY_OWNER, lambda tx: task(tx, "maria", "c")),
    SESSION: (BY_SESSION, lambda tx: task(tx, "o", OURS)),
}
_HISTORY: Scene = (BY_SPACE, both(lambda tx: history(tx, scope="people.maria"), history_run))

SCENES: dict[tuple[str, str], Scene] = {
    ("workflow_runs", SESSION): (BY_SESSION, lambda tx: run(tx, OURS)),
    ("workflow_runs", LINK): (BY_OWNER, both(lambda tx: chat(tx, owner="maria"), lambda tx: run(tx, OURS))),
    ("executions", SESSION): (BY_SESSION, execution),
    ("executions", LINK): (BY_OWNER, both(lambda tx: chat(tx, owner="maria"), execution)),
    **{(table, by): scene for table in _USAGE_TABLES for by, scene in _USAGE.items()},
    ("history_runs", SESSION): (BY_SESSION, history_run),
    ("history_runs", HISTORY): _HISTORY,
    ("history_records", SESSION): (BY_SESSION, history),
    ("history_records", NAMESPACE): _HISTORY,
    ("history_entries", "history entry"): _HISTORY,
    ("checkpoint_threads", SESSION): (BY_SESSION, thread),
    ("memories", NAMESPACE): (BY_SPACE, both(memory, lambda tx: memory(tx, "below"), lambda tx: memory(tx, "below", "it"))),
    ("replay_sessions", SESSION): (BY_SESSION, lambda tx: tx.replay_streams.messages.append(OURS, "1", SECRET)),
    ("transcript_sessions", SESSION): (BY_SESSION, transcript),
    ("transcript_sessions", LOGS): (BY_SESSION, both(lambda tx: run(tx, OURS, "phase"), lambda tx: transcript(tx, "phase"))),
    ("status_log", SESSION): (BY_SESSION, lambda tx: tx.telemetry.status.record("idle", metadata=SAID, instance_id=OURS)),
    ("run", SESSION): (BY_SESSION, lambda tx: tx.programs.runs.create(id=OURS, program_source=SECRET)),
    ("agent_task_webhooks", OWNER): _TASK[OWNER],
    ("agent_task_webhooks", "agent task"): _TASK[SESSION],
    ("agent_task_records", OWNER): _TASK[OWNER],
    ("agent_task_records", SESSION): _TASK[SESSION],
    **{(table, by): scene for table in _APPLICATION_TABLES for by, scene in _APPLICATION.items()},
    ("app_user_sessions", SESSION): (BY_SESSION, lambda tx: tx.app_sessions.sessions.create("app", "u", OURS, state=_STATE)),
    ("app_artifacts", SESSION): (
        BY_SESSION,
        lambda tx: tx.app_sessions.artifacts.save(ArtifactKey("app", "u", OURS, "a"), dumps(SAID), data=SECRET.encode()),
    ),
    ("app_memories", SESSION): (
        BY_SESSION,
        lambda tx: tx.app_sessions.memories.add("app", "u", OURS, [NewMemory("m", dumps(SAID), SECRET, [SECRET])]),
    ),
    ("messaging_sessions", OWNER): (BY_OWNER, person_of_an_agent),
    ("messaging_sessions", USER): (BY_USER, person_of_an_agent),
    ("messaging_sessions", SESSION): (BY_SESSION, person_of_an_agent),
    ("messaging_sessions", LINK): (BY_OWNER, both(lambda tx: chat(tx, owner="maria"), lambda tx: person_of_an_agent(tx, "u"))),
    ("sessions", OWNER): (BY_OWNER, lambda tx: conversation(tx, user="maria")),
    ("sessions", USER): _CONVERSATION,
    ("sessions", SESSION): (BY_SESSION, conversation),
    ("sessions", NAMED): (BY_USER, both(person_of_an_agent, conversation)),
    **{(table, "conversation or branch"): _CONVERSATION for table in ("sessions", "messages", *_LETTERS)},
    **{(table, "progression"): _CONVERSATION for table in ("messages", "progressions", "progression_members")},
    ("messages", "message"): _CONVERSATION,
    ("chat_sessions", OWNER): (BY_OWNER, lambda tx: chat(tx, owner="maria")),
    ("chat_sessions", SESSION): (BY_SESSION, chat),
    ("chat_sessions", NAMED): (BY_USER, both(person_of_an_agent, chat)),
    ("system_prompts", ""): (BY_OWNER, lambda tx: chat(tx, owner="maria", system_prompt_digest=tx.chat.prompts.put(SECRET))),
}
"""By the table of a kind and the selector that finds it. No selector: what nothing else names any more."""


def forget(raw: Raw, *tables: str) -> None:
    """Delete all rows of tables, whatever refers to them, and without a word in the log."""
    if raw.is_sqlite:
        for (guard,) in raw.rows("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            raw.rows(f'DROP TRIGGER "{guard}"')
    else:
        raw.rows("SET session_replication_role = replica")
    for table in tables:
        raw.rows(f"DELETE FROM {table}")


def set_aside(raw: Raw, *tables: str) -> None:
    """Move all rows of tables to the quarantine, each for itself."""
    number = 0
    for table in tables:
        names = [str(column.name) for column in TABLES_BY_NAME[table].columns]
        listed = ", ".join(f'"{name}"' if raw.is_sqlite else f'CAST("{name}" AS TEXT)' for name in names)
        for row in raw.rows(f"SELECT {listed} FROM {table}"):
            number += 1
            cells = {name: _cell(cell, raw) for name, cell in zip(names, row, strict=True)}
            contents = dumps({"database": "sqlite" if raw.is_sqlite else "postgres", "row": cells})
            marks = ", ".join("?" * 8)
            values = (f"q{number}", f"q{number}", 0, table, 0, "", "", contents)
            raw.rows(f"INSERT INTO quarantine VALUES ({marks})", *values)
    forget(raw, *tables)


TABLES_BY_NAME = {str(table.name): table for table in TABLES}


def _cell(value: Any, raw: Raw) -> dict[str, Any] | None:
    if value is None or not raw.is_sqlite:
        return None if value is None else {"literal": value}
    if isinstance(value, bytes):
        return {"blob": b64encode(value).decode()}
    return {{str: "text", int: "integer", float: "real"}[type(value)]: value}
