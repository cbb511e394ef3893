"""What the tests of erasing share: two people of whom there is one of everything, and all that is stored of them."""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Table

from persist import Store
from persist.framework_state.agent_tasks.schemas import Piece
from persist.framework_state.app_sessions.schemas import ArtifactKey, NewEvent, NewMemory, StateChange
from persist.framework_state.checkpoints.schemas import Blob, Write
from persist.framework_state.histories.schemas import Message, NewEntry
from persist.maintenance import maintain
from persist.schema.metadata import metadata
from persist.testing import START, FrozenClock
from tests.contract.conftest import Raw
from tests.maintenance.pruning_scenes import every_row
from tests.seeded_databases import fill_once

TABLES: list[Table] = [table for table in metadata.sorted_tables if table.name != "_meta"]
TEXT = [{"type": "text", "text": "x"}]
FRIENDS = {"maria": "ann", "peter": "bob"}
NAMES_OF_STREAMS = {("event_log", "stream_id"), ("event_heads", "stream_id")}


def secret_of(name: str) -> str:
    """What nobody but the person of this name may have written."""
    return f"SECRET-of-{name}"


def selectors(name: str) -> dict[str, Any]:
    """What finds everything of a person that `person` makes."""
    return {"owner": name, "session_id": f"{name}-session", "namespace": f"people.{name}"}


def person(store: Store, name: str) -> None:
    """One of everything, with the secret in whatever can hold it; every id begins with the name."""
    secret, said = secret_of(name), {"secret": secret_of(name)}
    with store.begin() as tx:
        _chat(tx, name, secret, said)
        conversations_of(tx, name)
        _workflows(tx, name, secret, said)
    with store.begin() as tx:
        _frameworks(tx, name, secret, said)
        _applications(tx, name, secret)
        _reports(tx, name, secret, said)
    with store.begin() as tx:  # gone already, and still in the log
        tx.chat.sessions.delete(f"{name}-deleted")


def _chat(tx: Any, name: str, secret: str, said: dict[str, str]) -> None:
    chat = tx.chat
    rule = {"source": "session", "permission": "bash", "pattern": secret, "action": "allow"}
    digest = chat.prompts.put(f"You talk to {name}: {secret}")
    shared = chat.prompts.put("You are helpful.")
    session = chat.sessions.create(
        agent="build", model=said, owner=name, metadata=said, permissions=[rule], workspace_root=f"/home/{name}/{secret}"
    )
    prompted = {**said, "system_prompt_digest": digest}
    asked = chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": secret}], metadata=prompted)
    chat.messages.append(session.id, role="user", parts=TEXT, metadata={"system_prompt_digest": shared})
    url = f"data:text/plain;base64,{_base64(secret)}"
    file = {"type": "file", "mediaType": "text/plain", "url": url}
    tool = {"type": "tool-bash", "toolCallId": f"{name}-call", "state": "output-available", "input": said, "output": secret}
    chat.messages.append(session.id, role="assistant", parts=[file, tool])
    chat.messages.enqueue(session.id, parts=[{"type": "text", "text": secret}])
    chat.messages.record_step_usage(asked.id, 0, input_tokens=5, output_tokens=1)
    child = chat.sessions.fork(session.id, asked.id)
    chat.sessions.fork(child.id, chat.messages.list(child.id)[-1]["id"])
    chat.sessions.create(agent="build", model={}, owner=name, id=f"{name}-deleted", metadata=said)


def _base64(secret: str) -> str:
    return b64encode((secret * 6_000).encode()).decode()


def conversations_of(tx: Any, name: str) -> None:
    """A conversation of a person, with a branch of three messages and a letter to a friend's branch."""
    secret, said, conversations = secret_of(name), {"secret": secret_of(name)}, tx.conversations
    conversations.sessions.create(id=f"{name}-talk", user=name, name=secret, node_metadata=said, status="running")
    conversations.branches.create(f"{name}-talk", id=f"{name}-main", name=secret, user=name, node_metadata=said)
    friend = FRIENDS[name]
    conversations.sessions.create(id=friend, name="a friend's")
    conversations.branches.create(friend, id=f"{friend}-main")
    for number in range(3):
        message = {"id": f"{name}-{number}", "created_at": 1.5, "role": "user", "sender": name}
        conversations.messages.record(f"{name}-main", {**message, "content": said, "node_metadata": said})
    conversations.sessions.set_status(f"{name}-talk", "failed", reason_code="x", reason=secret, evidence_refs=said)
    conversations.exchange.send(sender=f"{name}-main", recipient=f"{friend}-main", content=said, channel="c")


def _workflows(tx: Any, name: str, secret: str, said: dict[str, str]) -> None:
    workflows, session = tx.workflows, f"{name}-session"
    run = workflows.runs.create("triage", trigger_id=f"{name}/1", current_phase="plan", context=said, id=f"{name}-run")
    workflows.runs.merge_scratch(run.id, {"a": said})
    child = workflows.runs.create("triage", trigger_id=f"{name}/2", current_phase="plan", context=said, parent_run_id=run.id)
    about = {"trigger_type": "chat", "trigger_id": f"{name}/1"}
    step = workflows.executions.start(skill="plan", workflow_run_id=run.id, **about)
    workflows.executions.set_session(step.id, session)
    workflows.executions.finish(step.id, success=False, error=secret)
    workflows.executions.set_output(step.id, secret)
    alone = workflows.executions.start(skill="alone", **about)
    workflows.executions.set_session(alone.id, session)
    workflows.executions.finish(alone.id, success=True)
    workflows.executions.set_output(alone.id, secret)
    workflows.approvals.request(run.id, gate="first", summary=secret)
    workflows.effects.begin(run.id, "done")
    workflows.effects.complete(run.id, "done", said)
    workflows.signals.send(run.id, "paid", said)
    workflows.signals.send(child.id, "paid", said)


def _frameworks(tx: Any, name: str, secret: str, said: dict[str, str]) -> None:
    session, blob = f"{name}-session", Blob("json", secret.encode())
    states = tx.checkpoints.states
    states.put(session, "1", head=blob, metadata=said, versions={"said": "1"}, values={"said": ("1", [blob])})
    states.put_writes(session, "1", [Write(0, "other", blob)], task_id="task")
    tx.checkpoints.memories.put(("people", name), "likes", said, embeddings={"text": b"\x00\x00\x80?"})
    tx.checkpoints.memories.put(("people", name, "more"), f"key {secret}", said)
    message = Message(said, extra=said)
    first, second = (NewEntry(f"{name}-entry-{number}", f"{name}-entry-1" if number == 2 else None, message) for number in (1, 2))
    records, at = tx.histories.records, {"updated_at": START}
    records.put(session, revision="1", expected_revision=None, head_id=first.id, entries=[first], usage=said, **at)
    records.put(
        f"{name}-fork",
        revision="1",
        expected_revision=None,
        head_id=second.id,
        entries=[first, second],
        forked_from=session,
        forked_at=first.id,
        **at,
    )
    runs = tx.histories
    runs.runs.register(f"{name}-history-run", conversation_id=session, agent_name=secret, started_at=START, metadata=said)
    runs.run_events.append(f"{name}-history-run", "run_started", step_index=0, at=START, error=secret, metadata=said)
    runs.snapshots.save(f"{name}-history-run", [message], state="complete", step_index=0, taken_at=START)
    runs.tool_effects.put(
        f"{name}-history-run", "call", tool_name=secret, status="started", started_at=START, effect_summary=secret
    )
    append = tx.transcripts.entries.append
    append("-work", session, [{"type": "user", "uuid": f"{name}-u1", **said}], fold=lambda previous, new: said)
    append("-work", session, [{"type": "user", **said}], subpath="subagents/agent-1")
    tx.replay_streams.messages.append(session, "1", secret)


def _applications(tx: Any, name: str, secret: str) -> None:
    text, domain = f'{{"secret": "{secret}"}}', tx.app_sessions
    state = StateChange(app={}, user={secret: text}, session={"a": text})
    domain.sessions.create("app", name, "first", state=state)
    domain.sessions.append("app", name, "first", NewEvent(f"{name}-event", 1_700_000_000.5, text))
    domain.artifacts.save(ArtifactKey("app", name, "first", f"{secret}.txt"), text, data=secret.encode())
    domain.artifacts.save(ArtifactKey("app", name, None, "large"), text, data=(secret * 8_000).encode())
    domain.memories.add("app", name, "first", [NewMemory(f"{name}-said", text, secret, [secret])])
    pieces = [Piece("history", 0, 0, secret.encode())]
    tx.agent_tasks.tasks.save(name, "t1", state="working", head=secret.encode(), pieces=pieces, context_id="c", status_key="1")
    tx.agent_tasks.webhooks.set("t1", "w1", owner=name, data=secret.encode())
    session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C1", user_id=name, thread_id=secret)
    tx.messaging.messages.add(session.id, role="user", content=secret, platform_message_id="171.6")


def _reports(tx: Any, name: str, secret: str, said: dict[str, str]) -> None:
    telemetry, session = tx.telemetry, f"{name}-session"
    me = {"instance_id": session}
    telemetry.status.record("idle", metadata=said, **me)
    telemetry.tags.record("issue", f"https://example.com/{secret}", **me)
    telemetry.links.upsert("https://github.com/o/r/issues/1", fetched_at=START, **me)
    telemetry.usage.sample(at=START, token_input=5, **me)
    telemetry.tools.record("bash", exit_code=1, **me)
    tx.usage.budgets.set(f"owner:{name}", "day", 1)
    tx.usage.calls.record(model=secret, owner=name, error=secret, cost_usd_micros=5, **me)
    programs = tx.programs
    programs.runs.create(id=session, program_source=secret)
    programs.executions.begin(session, statement_index=1, statement_text=secret, metadata=said)
    programs.bindings.bind(session, "goal", secret, kind="let")
    programs.agents.start(session, "captain", resume=False)
    programs.agents.add_segment(session, "captain", prompt=secret, summary=secret)
    programs.subagents.start(session, isolation="file", agent="captain")
    programs.imports.add(session, "research", f"https://example.com/{secret}")


def stored(url: str) -> Iterator[tuple[str, str, str]]:
    """Every cell of every table: the table, the column, and what the cell says, in whatever form it is stored."""
    with closing(Raw(url)) as raw:
        for table in [*TABLES, metadata.tables["persist._meta"]]:
            names = [str(column.name) for column in table.columns]
            for row in raw.rows(f'SELECT {", ".join(f"{chr(34)}{name}{chr(34)}" for name in names)} FROM "{table.name}"'):
                for name, cell in zip(names, row, strict=True):
                    text = bytes(cell).decode("utf-8", "replace") if isinstance(cell, bytes | memoryview) else str(cell)
                    yield table.name, name, text


def places_of(url: str, *words: str) -> set[tuple[str, str]]:
    """The tables and columns in which one of these words is."""
    return {(table, column) for table, column, text in stored(url) if any(word in text for word in words)}


def rows(url: str) -> dict[str, Counter[str]]:
    """The rows of each table, byte for byte, but for what counts events."""
    return {name: found for name, found in every_row(url).items() if name not in ("event_log", "event_heads")}


def without(found: dict[str, Counter[str]], name: str, *others: str) -> dict[str, Counter[str]]:
    """The rows that do not name a person."""
    words = (name, *others)

    def chosen(of: Counter[str]) -> Counter[str]:
        return Counter({row: count for row, count in of.items() if not any(word in row for word in words)})

    return {table: chosen(of) for table, of in found.items()}


def events(store: Store) -> list[Any]:
    """Every event."""
    with store.read() as tx:
        return list(tx.events.read("*", limit=100_000))


def files_of(url: str) -> list[Path]:
    """The files of a SQLite database."""
    path = Path(url.removeprefix("sqlite:///"))
    return [one for one in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-journal")) if one.exists()]


MARIA = selectors("maria")
FORKED = {"parent_branch_id": "maria-main", "forked_at_ord": 1}


def folded(url: str) -> dict[str, Any]:
    """The rows of a database with its progressions folded, but for what says whether it logs."""
    with Store.open(url) as store:
        maintain(store)
    return {name: of for name, of in rows(url).items() if name != "_meta"}


@contextmanager
def two_people(url: str, clock: FrozenClock) -> Iterator[Store]:
    """A store that logs, with what Maria and Peter have stored."""

    def make(url: str) -> None:
        with Store.open(url, clock=clock, events=True) as store:
            person(store, "maria")
            person(store, "peter")

    fill_once(url, clock, "two people", make)
    with Store.open(url, clock=clock, events=True) as store:
        yield store
