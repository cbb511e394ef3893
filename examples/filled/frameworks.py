"""What agent frameworks keep: checkpoints, histories, transcripts, application sessions, tasks of agents, streams, consumers."""

import json
from collections.abc import Iterable
from typing import Any

from examples.filled.pictures import png
from examples.filled.times import Ids, Scene, Times
from persist import Store
from persist.framework_state.agent_tasks.schemas import Piece
from persist.framework_state.app_sessions.schemas import ArtifactKey, NewEvent, NewMemory, StateChange
from persist.framework_state.checkpoints.schemas import Blob, Write
from persist.framework_state.histories.schemas import Message, NewEntry

PROJECT, TRANSCRIPT = "-home-maria-shop-api", "ses-transcript-1"


def scenes(store: Store, times: Times, ids: Ids) -> Iterable[Scene]:
    """One scene for each kind of state."""
    return [
        scene(store, times, ids)
        for scene in (_checkpoints, _histories, _transcripts, _app_sessions, _agent_tasks, _replay_streams, _consumers)
    ]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _checkpoints(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(days=2, hours=8)
    said = [
        Blob("json", _json({"type": kind, "content": text}))
        for kind, text in (
            ("human", "Which supplier is late?"),
            ("ai", "I look into the orders."),
            ("tool", "3 orders are late"),
            ("ai", "The one of paper."),
        )
    ]
    with store.begin() as tx:
        states, memories = tx.checkpoints.states, tx.checkpoints.memories
        for step, count in enumerate((1, 2, 3, 4)):
            states.put(
                "graph-suppliers",
                f"{step:08d}",
                head=Blob(
                    "json", _json({"v": 1, "id": f"{step:08d}", "step": step, "next": ["agent", "tools", "agent", ""][step]})
                ),
                parent_id=f"{step - 1:08d}" if step else None,
                run_id="graph-run-1",
                metadata={"source": "loop" if step else "input", "step": step, "writes": {"agent": None}},
                versions={"messages": str(count), "late": "1"},
                values={"messages": (str(count), said[:count]), **({} if step else {"late": ("1", Blob("json", b"[]"))})},
            )
            times.later(8)
        states.put_writes("graph-suppliers", "00000003", [Write(0, "late", Blob("json", b'["paper"]'))], task_id="task-1")
        states.put(
            "graph-suppliers", "00000001", namespace="tools:1", head=Blob("json", _json({"v": 1, "step": 0})), parent_id=None
        )
        memories.put(("people", "maria"), "habits", {"reviews": "in the morning", "likes": "short remarks"})
        memories.put(
            ("shop",), "suppliers", {"paper": "often late"}, ttl_minutes=60 * 24 * 30, embeddings={"paper": b"\x00\x00\x80?"}
        )
        ids["checkpoint_thread"] = "graph-suppliers"


def _histories(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(days=1, hours=7)
    told = [("request", "Sum up what changed."), ("response", "Totals are exact now."), ("response", "Sums are rounded once.")]
    messages = [Message({"kind": kind, "parts": [{"content": text}]}, kind=kind) for kind, text in told]
    with store.begin() as tx:
        histories, now = tx.histories, times.later(0)
        asked: dict[str, Any] = {"updated_at": now, "scope": "maria", "usage": {"requests": 2, "input_tokens": 1_900}}
        first = [NewEntry("entry-1", None, messages[0]), NewEntry("entry-2", "entry-1", messages[1])]
        histories.records.put("talk-changes", revision="1", expected_revision=None, head_id="entry-2", entries=first, **asked)
        again = [NewEntry("entry-3", "entry-1", messages[2])]
        kept = {"entries": again, "branches": ["entry-2"], "deferred": {"calls": []}}
        histories.records.put("talk-changes", revision="2", expected_revision="1", head_id="entry-3", **kept, **asked)
        fork = {"forked_from": "talk-changes", "forked_at": "entry-3", "updated_at": now}
        histories.records.put("talk-changes-fork", revision="1", expected_revision=None, head_id="entry-3", **fork)
        about = {"conversation_id": "talk-changes", "agent_name": "summarizer"}
        histories.runs.register(
            "agent-run-1", started_at=now, metadata={"model": "lighthouse-small-2"}, registration_id="reg-1", **about
        )
        histories.runs.register("agent-run-2", started_at=times.later(5), parent_id="agent-run-1", agent_name="reader")
        for step, (kind, tool, error) in enumerate(
            [
                ("run_started", None, None),
                ("tool_call_started", "git_log", None),
                ("tool_call_failed", "git_log", "not a repository"),
            ]
        ):
            call = {"tool_call_id": "call-1", "tool_name": tool} if tool else {}
            histories.run_events.append("agent-run-1", kind, step_index=step, at=times.later(2), error=error, **call, **about)
        for number, state in ((1, "complete"), (2, "interrupted")):
            taken = {
                "step_index": number,
                "taken_at": times.later(1),
                "sequence": number,
                "idempotency_key": f"{number}:snapshot",
            }
            histories.snapshots.save("agent-run-1", messages[: number + 1], state=state, **taken, **about)
        effect = {"tool_name": "git_log", "started_at": now, "effect_summary": "not a repository"}
        histories.tool_effects.put("agent-run-1", "call-1", status="failed", ended_at=times.later(1), **effect)
        histories.tool_effects.put("agent-run-1", "call-2", status="started", tool_name="git_show", started_at=times.later(1))
        ids |= {"history": "talk-changes", "history_run": "agent-run-1"}


def _transcripts(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(hours=11)
    lines = [
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Rename the form."}},
        {
            "type": "assistant",
            "uuid": "u2",
            "parentUuid": "u1",
            "message": {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look for its uses first."},
                    {"type": "tool_use", "id": "tool-1", "name": "Grep", "input": {"pattern": "LoginForm"}},
                ],
            },
        },
        {
            "type": "user",
            "uuid": "u3",
            "parentUuid": "u2",
            "message": {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "tool-1", "content": "login.jsx:4\nindex.jsx:9"}],
            },
        },
        {
            "type": "assistant",
            "uuid": "u4",
            "parentUuid": "u3",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "Two uses, both renamed."}]},
        },
    ]
    with store.begin() as tx:
        append = tx.transcripts.entries.append
        for line in lines:
            line["timestamp"] = times.later(6).isoformat()
        append(PROJECT, TRANSCRIPT, lines, fold=lambda previous, new: {"title": "Rename the form", "lines": len(new)})
        part = [{"type": "user", "uuid": "p1", "isSidechain": True, "message": {"role": "user", "content": "Count the uses."}}]
        append(PROJECT, TRANSCRIPT, part, subpath="subagents/agent-1")
        ids["transcript"] = tx.transcripts.sessions.list().items[0].id


def _app_sessions(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(hours=6)
    app, user, session = "kiosk", "visitor-3", "visit-1"
    with store.begin() as tx:
        domain = tx.app_sessions
        state = StateChange(app={"theme": '"dark"'}, user={"language": '"de"'}, session={"step": "1"})
        ids["app_session"] = domain.sessions.create(app, user, session, state=state).session.id
        for number, (author, text) in enumerate(
            (("user", "Where is the exit?"), ("guide", "Left, behind the stairs."), ("user", "Thanks."))
        ):
            data = json.dumps({"author": author, "content": {"parts": [{"text": text}]}})
            event = NewEvent(
                f"event-{number}", times.later(7).timestamp(), data, author=author, invocation_id=f"turn-{number // 2}"
            )
            domain.sessions.append(app, user, session, event, state=StateChange(session={"step": str(number + 2)}))
        plan = ArtifactKey(app, user, session, "plan.png")
        for picture in (png(32, 32), png(160, 160, level=0)):  # the second one is large enough to be a blob
            domain.artifacts.save(plan, "{}", data=picture, mime_type="image/png", metadata='{"floor": 1}')
        domain.artifacts.save(ArtifactKey(app, user, None, "ticket.txt"), '{"text": "Seat 14"}')
        said = [NewMemory("memory-1", '{"text": "asked for the exit"}', "asked for the exit", ["asked", "exit"])]
        domain.memories.replace(app, user, session, said)


def _agent_tasks(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(hours=1)
    with store.begin() as tx:
        tasks, webhooks = tx.agent_tasks.tasks, tx.agent_tasks.webhooks
        asked = _json({"role": "user", "parts": [{"text": "Translate the release notes."}]})
        pieces = [
            Piece("history", 0, 0, asked),
            Piece("artifact", 0, -1, b'{"name": "notes.de.md"}'),
            Piece("artifact", 0, 0, b"# Neu"),
        ]
        about = {"context_id": "context-1", "head": _json({"id": "translate-1", "status": {"state": "working"}})}
        tasks.save("ines", "translate-1", state="working", pieces=pieces, status_key="1", **about)
        ended = {"context_id": "context-1", "head": _json({"id": "translate-0", "status": {"state": "completed"}})}
        tasks.save("ines", "translate-0", state="completed", pieces=[Piece("history", 0, 0, asked)], final=True, **ended)
        tasks.save("otto", "check-links", state="failed", head=_json({"id": "check-links"}), pieces=[], final=True)
        webhooks.set("translate-1", "hook-1", owner="ines", data=_json({"url": "https://example.com/hooks/translate"}))
        ids["agent_task"] = tasks.list("ines").items[0].task.id


def _replay_streams(store: Store, times: Times, ids: Ids) -> Scene:
    yield times.ago(minutes=10)
    with store.begin() as tx:
        append = tx.replay_streams.messages.append
        append("client-1", "1", None)
        for number, method in enumerate(("notifications/progress", "notifications/message", "notifications/progress")):
            append("client-1", "1", json.dumps({"jsonrpc": "2.0", "method": method, "params": {"progress": number}}))
            times.later(2)
        append("client-2", "", json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
        ids["replay_session"] = "client-1"


def _consumers(store: Store, times: Times, ids: Ids) -> Scene:
    """Readers of the log of events: one that is far behind, one that has a batch in hand."""
    yield times.ago(days=1)
    with store.begin() as tx:
        tx.events.append("audit", "audit.noted", {"by": "otto", "text": "The keys were renewed."})
        tx.events.consumers.create("mails", types=["run.finished", "approval.*"])
        tx.events.consumers.create("warehouse")
    yield times.ago(minutes=1)
    store.events.consumers.next("warehouse", limit=20)
    ids["consumer"] = "warehouse"
