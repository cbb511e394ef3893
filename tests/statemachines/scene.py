"""A database with one of everything, and valid arguments of every public verb on it.

A new verb is found by itself; where none of its parameters' names is known here, `arguments` says what to add.
"""

import inspect
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from hashlib import sha256
from typing import Any

from hypothesis import strategies as st
from sqlalchemy import delete

from persist import Store
from persist.db.transactions.repository import Repository
from persist.events.models import event_log
from persist.framework_state.agent_tasks.schemas import Piece
from persist.framework_state.app_sessions.schemas import NewEvent, NewMemory
from persist.framework_state.checkpoints.schemas import Write
from persist.testing import START
from tests.statemachines.bad_arguments import VALUES, Hostile, named
from tests.statemachines.valid_arguments import ARGUMENTS, BLOB, GATE, ISSUE, PROMPT, REMARK, RULE, TEXT
from tests.statemachines.valid_framework_arguments import FILE, FIRST, STATE

_LEFT_OUT = object()
FILED = bytes(66_000)
"""A file of a message, large enough to be a blob."""


@dataclass(frozen=True)
class Verb:
    """One public verb of a transaction."""

    name: str
    """`chat.sessions.create`, or `events.append`."""
    parameters: Mapping[str, inspect.Parameter]

    @property
    def domain(self) -> str:
        return self.name.partition(".")[0]

    def of(self, tx: Any) -> Callable[..., Any]:
        """The verb in this transaction, of either face."""
        found = tx
        for step in self.name.split("."):
            found = getattr(found, step)
        return found  # type: ignore[no-any-return]  # a path to a verb

    def call(self, tx: Any, given: Mapping[str, Any]) -> Any:
        """Call it with these arguments by name."""
        plain, more = [], {}
        for name, parameter in self.parameters.items():
            if name not in given:
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                more.update(given[name])
            elif parameter.kind is parameter.POSITIONAL_ONLY:
                plain.append(given[name])
            else:
                more[name] = given[name]
        return self.of(tx)(*plain, **more)


@cache
def verbs() -> tuple[Verb, ...]:
    """Every public verb of every domain."""
    with Store.open("sqlite:///:memory:") as store, store.begin() as tx:
        return tuple(_found(tx))


def _found(tx: Any) -> Iterator[Verb]:
    for domain in sorted(name for name in dir(tx) if not name.startswith("_")):
        whole = getattr(tx, domain)
        groups = {f"{domain}.{name}": getattr(whole, name) for name in dir(whole) if not name.startswith("_")}
        if isinstance(whole, Repository):
            groups = {domain: whole, **{path: one for path, one in groups.items() if isinstance(one, Repository)}}
        for path, group in groups.items():
            for name in dir(type(group)):
                method = getattr(type(group), name)
                if name.startswith("_") or not callable(method):
                    continue
                parameters = dict(inspect.signature(method).parameters)
                del parameters["self"]
                yield Verb(f"{path}.{name}", parameters)


def arguments(verb: Verb, ids: Mapping[str, Any]) -> dict[str, Any]:
    """Valid arguments of every parameter, those included that may be left out; `ids` are what `make` could not choose."""
    given = {}
    for name, parameter in verb.parameters.items():
        value = _argument(verb.name, name, _LEFT_OUT if parameter.kind is parameter.VAR_KEYWORD else parameter.default)
        if value is not _LEFT_OUT:
            given[name] = ids[value] if type(value) is str and value in ids else value
    return given


def _argument(verb: str, name: str, default: Any) -> Any:
    place = verb
    while True:
        if f"{place}.{name}" in ARGUMENTS:
            return ARGUMENTS[f"{place}.{name}"]
        if "." not in place:
            break
        place = place.rpartition(".")[0]
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    if default is inspect.Parameter.empty:
        raise LookupError(f"nothing valid is known for the parameter {name!r} of {verb}: add it to tests/statemachines/scene.py")
    return default if default is not _LEFT_OUT else _LEFT_OUT


def make(store: Store) -> dict[str, Any]:
    """One of everything -> what stands for the names in angle brackets."""
    store.switch_events(True)
    with store.begin() as tx:
        tx.events.append("audit", "audit.noted", {"a": 1})
        tx.events.consumers.create("outbox")
        handed_out = tx.events.consumers.next("leased")
        ids = {**_chat(tx), **_workflows(tx), **_messaging(tx), **_programs(tx)}
        ids |= {**_agent_tasks(tx), **_replay_streams(tx), **_transcripts(tx)}
        ids |= _blobs(tx)
        _conversations(tx)
        _telemetry(tx)
        _usage(tx)
        _checkpoints(tx)
        _histories(tx)
        ids |= _app_sessions(tx)
        ids |= {"<handed out>": handed_out.position, "<token>": handed_out.token}
    with store.begin() as tx:  # comparing a long log takes longer than whatever a verb does
        tx._work.change(delete(event_log).where(event_log.c.stream_id != "audit"))
    return ids


def _chat(tx: Any) -> dict[str, Any]:
    chat = tx.chat
    chat.sessions.create(agent="build", model={"model_id": "claude"}, metadata={"title": "x"}, permissions=[RULE], id="chat")
    chat.messages.append("chat", role="user", parts=TEXT, id="asked")
    chat.messages.append("chat", role="assistant", parts=[*TEXT, GATE], id="answered")
    chat.messages.enqueue("chat", parts=TEXT, id="queued")
    chat.sessions.create(agent="build", model={}, id="filed")
    url = f"data:image/png;base64,{b64encode(FILED).decode()}"
    chat.messages.append("filed", role="user", parts=[{"type": "file", "mediaType": "image/png", "url": url}])
    return {"<digest>": chat.prompts.put(PROMPT), "<filed>": sha256(FILED).hexdigest()}


def _workflows(tx: Any) -> dict[str, Any]:
    workflows = tx.workflows
    about = {"trigger_id": "issue/1", "current_phase": "plan"}
    workflows.runs.create("leased", **about, status="queued", id="leased")
    lease = workflows.runs.claim("w", lease=timedelta(minutes=5))
    workflows.runs.create("triage", **about, context={"a": 1}, id="run")
    workflows.runs.create("triage", **about, status="queued", id="queued")
    workflows.executions.start(trigger_type="github", trigger_id="issue/1", skill="triage:plan", workflow_run_id="run", id="step")
    workflows.approvals.request("run", gate="first", summary="?", id="gate")
    workflows.approvals.request("run", gate="second", summary="?", kind="reply", id="question")
    workflows.effects.begin("run", "begun")
    workflows.effects.begin("run", "done")
    workflows.effects.complete("run", "done", {"a": 1})
    workflows.signals.send("run", "paid", {"a": 1})
    phase = workflows.phases.begin("run", "read")
    workflows.runs.create("triage", **about, id="paused")
    gate = workflows.approvals.pause_for_approval("paused", gate="third", summary="?", marker=("third", {}))
    workflows.runs.create("triage", **about, id="child", parent_run_id="leased")
    workflows.approvals.request("queued", gate="late", summary="?", id="late", expires_at=START - timedelta(days=1))
    workflows.schedules.set("nightly", workflow_name="triage", cron="* * * * *")
    workflows.limits.set("tenant/7", concurrency=2, rate=10, per=timedelta(hours=1))
    workflows.runs.create("sync", **about, status="queued", concurrency_key="tenant/7")
    workflows.runs.claim("w", lease=timedelta(minutes=5), workflow_name="sync")
    workflows.cron_overrides.set("nightly", enabled=False)
    workflows.workflow_overrides.set("nightly", enabled=False)
    return {"<lease>": lease, "<gate>": gate.id, "<phase>": phase}


def _usage(tx: Any) -> None:
    tx.usage.budgets.set("owner:maria", "day", 5_000_000)
    tx.usage.calls.record(model="large", instance_id="box", owner="maria", key="counted")


def _messaging(tx: Any) -> dict[str, Any]:
    session = tx.messaging.sessions.get_or_create(platform="slack", channel_id="C1", user_id="U1", thread_id="171.5")
    tx.messaging.messages.add(session.id, role="user", content="hi", platform_message_id="171.6")
    return {"<messaging session>": session.id}


def _programs(tx: Any) -> dict[str, Any]:
    programs = tx.programs
    programs.runs.create(id="program")
    statement = programs.executions.begin(
        "program", statement_index=1, statement_text="parallel:", metadata={"parallel_id": "p", "branches": ["a"]}
    )
    pending = programs.executions.begin("program", statement_index=2, statement_text="do", status="pending")
    programs.runs.create(id="stopped")
    programs.runs.finish("stopped", "interrupted")
    programs.bindings.bind("program", "goal", "1", kind="let")
    programs.agents.start("program", "captain", resume=False)
    programs.agents.add_segment("program", "captain", prompt="p", summary="s")
    lent = programs.subagents.start("program", isolation="file", agent="captain").subagent
    programs.imports.add("program", "research", "https://example.com/p")
    return {"<statement>": statement.id, "<pending>": pending.id, "<subagent>": lent.id}


def _conversations(tx: Any) -> None:
    conversations = tx.conversations
    conversations.sessions.create(id="talk", status="running", name="n", agent_name="planner")
    conversations.branches.create("talk", id="main", name="main")
    conversations.branches.create("talk", id="other")
    conversations.messages.record("main", {**REMARK, "id": "told"})
    conversations.messages.record("main", {**REMARK, "id": "second"})
    conversations.messages.put({**REMARK, "id": "loose"})
    conversations.progressions.create("list", ids=["told"])
    conversations.exchange.send(sender="other", recipient="main", content="x", channel="c")


def _telemetry(tx: Any) -> None:
    telemetry, me = tx.telemetry, {"instance_id": "box"}
    telemetry.status.record("idle", **me)
    telemetry.tags.record("issue", ISSUE, **me)
    telemetry.links.upsert(ISSUE, fetched_at=START, **me)
    telemetry.usage.sample(at=START, token_input=5, **me)
    telemetry.tools.record("bash", exit_code=1, **me)
    tasks = [{"id": id, "source_id": "s", "kind": "issue", "title": "t"} for id in ("claimed", "waiting")]
    telemetry.tasks.poll(tasks, workspace_id="project")
    telemetry.tasks.claim("box", workspace_id="project")


def _checkpoints(tx: Any) -> None:
    states = tx.checkpoints.states
    states.put("thread", "1", head=BLOB, run_id="run", versions={"said": "1"}, values={"said": ("1", [BLOB])})
    states.put_writes("thread", "1", [Write(0, "other", BLOB)], task_id="task")
    tx.checkpoints.memories.put(("people",), "likes", {"text": "x"}, ttl_minutes=10, embeddings={"text": b"\x00\x00\x80?"})


def _histories(tx: Any) -> None:
    histories = tx.histories
    histories.records.put("talk", revision="1", expected_revision=None, head_id="first", entries=[FIRST], updated_at=START)
    histories.runs.register("run", started_at=START)
    histories.run_events.append("run", "run_started", step_index=0, at=START)
    histories.snapshots.save("run", [FIRST.message], state="complete", step_index=0, taken_at=START)
    histories.tool_effects.put("run", "call", tool_name="bash", status="started", started_at=START)


def _transcripts(tx: Any) -> dict[str, Any]:
    append = tx.transcripts.entries.append
    append("-work", "ses", [{"type": "user", "uuid": "u1"}, {"type": "title"}], fold=lambda previous, new: {"count": len(new)})
    append("-work", "ses", [{"type": "user"}], subpath="subagents/agent-1")
    return {"<transcript>": tx.transcripts.sessions.list().items[0].id}


def _app_sessions(tx: Any) -> dict[str, Any]:
    domain = tx.app_sessions
    made = domain.sessions.create("app", "maria", "talk", state=STATE)
    domain.sessions.append("app", "maria", "talk", NewEvent("first", 1_700_000_000.5, "{}"))
    domain.artifacts.save(FILE, "{}", data=b"\x00\xff")
    domain.memories.add("app", "maria", "talk", [NewMemory("said", "{}", "hello", ["hello"])])
    return {"<app session>": made.session.id}


def _replay_streams(tx: Any) -> dict[str, Any]:
    append = tx.replay_streams.messages.append
    append("client", "1", None)
    ids = {"<sent>": append("client", "1", "said")}
    append("client", "1", "said after")
    return ids


def _agent_tasks(tx: Any) -> dict[str, Any]:
    pieces = [Piece("history", 0, 0, b"said"), Piece("artifact", 0, -1, b"made"), Piece("artifact", 0, 0, b"part")]
    tx.agent_tasks.tasks.save("ann", "t1", state="working", head=b"h", pieces=pieces, context_id="c1", status_key="1")
    tx.agent_tasks.webhooks.set("t1", "w1", owner="ann", data=b"hook")
    return {"<agent task>": tx.agent_tasks.tasks.latest().items[0].id}


def _blobs(tx: Any) -> dict[str, Any]:
    tx.blobs.put(bytes(20_000), "image/png")
    return {"<blob>": tx.blobs.put(b"\x00\xff", "text/plain").sha256}


def calls(values: st.SearchStrategy[Hostile]) -> st.SearchStrategy[tuple[Verb, dict[str, Hostile]]]:
    """A verb, and what one or two of its arguments are spoilt by."""

    def spoilt(verb: Verb) -> st.SearchStrategy[tuple[Verb, dict[str, Hostile]]]:
        names = [name for name, parameter in verb.parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]

        def spoil(name: str) -> st.SearchStrategy[tuple[str, Hostile]]:
            like = _like(_argument(verb.name, name, None))
            return st.tuples(st.just(name), st.booleans().flatmap(lambda alike: like if alike else values))

        one = st.sampled_from(names).flatmap(spoil)
        some = st.lists(one, min_size=1, max_size=2).map(dict)
        return st.tuples(st.just(verb), some.filter(_alike_everywhere))

    return st.sampled_from([verb for verb in verbs() if verb.parameters]).flatmap(spoilt)


_TYPES = {name: type(make()) for name, make in VALUES.items()}


def _like(valid: Any) -> st.SearchStrategy[Hostile]:
    """What may get through, since it is of the type that belongs there; or is the very argument, with something in it."""
    of_type = st.sampled_from([name for name, kind in _TYPES.items() if kind is type(valid)] or ["none"]).map(named)
    if not isinstance(valid, list | dict | tuple):
        return of_type
    return of_type | st.builds(named, st.sampled_from(sorted(VALUES)), st.integers(0, 9))


def _alike_everywhere(spoilt: Mapping[str, Hostile]) -> bool:
    """Without a scope a row is the file's own, which a server has none of: a difference that is meant."""
    return not any(name in spoilt and spoilt[name].make() is None for name in ("instance_id", "workspace_id"))
