"""Something of every table of frameworks, made through the public API, and what a reader sees of it."""

from typing import Any

from persist import Store
from persist.framework_state.agent_tasks.schemas import Piece
from persist.framework_state.checkpoints.schemas import Blob, Loaded, Write
from persist.framework_state.histories.schemas import Message, NewEntry
from persist.store.transaction import Transaction
from persist.testing import START
from tests.schema.filling_app_sessions import fill_app_sessions

HARD = "Naïve\x00 text \ud83d stays what it was."
_THREAD = "thread-1"


def fill_frameworks(store: Store) -> None:
    """Something of every domain that frameworks use."""
    for fill in (fill_checkpoints, fill_histories, fill_transcripts, fill_app_sessions, fill_replay_streams, fill_agent_tasks):
        fill(store)


def fill_checkpoints(store: Store) -> None:
    """A thread of two checkpoints whose list grew, with writes, and memories, of which one has vectors and expires."""
    said = [Blob("msgpack", bytes([number])) for number in range(3)]
    with store.begin() as tx:
        states = tx.checkpoints.states
        states.put(
            _THREAD,
            "1",
            head=Blob("msgpack", b"\x00\xff"),
            run_id="run-1",
            metadata={"note": HARD},
            versions={"said": "1"},
            values={"said": ("1", said[:2])},
        )
        states.put_writes(_THREAD, "1", [Write(0, "said", said[2]), Write(-1, "error", said[0])], task_id="task", task_path="~a")
        states.put(
            _THREAD,
            "2",
            head=Blob("msgpack", b""),
            parent_id="1",
            versions={"said": "2", "whole": "1"},
            values={"said": ("2", said), "whole": ("1", said[0])},
            partial=["other"],
        )
        memories = tx.checkpoints.memories
        memories.put(("people", "maria"), "likes", {"text": HARD}, ttl_minutes=10**9, embeddings={"text": b"\x00\x00\x80?"})
        memories.put(("people",), "count", {"n": 1})


def checkpoints_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    checkpoints = tx.checkpoints
    rows = checkpoints.states.page(thread_id=_THREAD) if checkpoints.threads.list().items else []
    return {
        "threads": {thread.id: thread.model_dump(mode="json") for thread in checkpoints.threads.list().items},
        "checkpoints": {one.checkpoint.id: _loaded(one) for one in checkpoints.states.load(rows)},
        "memories": {memory.key: memory.model_dump(mode="json") for memory in checkpoints.memories.list()},
        "vectors": {key: {"bytes": data.hex()} for _, key, data in checkpoints.memories.embeddings()},
    }


def _loaded(found: Loaded) -> dict[str, Any]:
    row = found.checkpoint
    return {
        "parent": row.parent_id,
        "run": row.run_id,
        "metadata": row.metadata,
        "partial": row.partial,
        "versions": row.versions,
        "head": _hex(row.head),
        "values": {
            channel: _hex(value) if isinstance(value, Blob) else [_hex(piece) for piece in value]
            for channel, value in found.values.items()
        },
        "writes": [[write.task_id, write.channel, _hex(write.value)] for write in found.writes],
    }


def _hex(blob: Blob) -> str:
    return f"{blob.kind} {blob.data.hex()}"


# Something of every table of agents' tasks, made through the public API, and what a reader sees of it.


def fill_agent_tasks(store: Store) -> None:
    """A task that goes on, with an artifact in two parts, one of another owner that ended, and a webhook of each."""
    pieces = [Piece("history", 0, 0, b"\x00\xff"), Piece("artifact", 0, -1, b"a"), Piece("artifact", 0, 0, b"b")]
    with store.begin() as tx:
        tasks, webhooks = tx.agent_tasks.tasks, tx.agent_tasks.webhooks
        tasks.save("ann", "t1", state="working", head=b"head", pieces=pieces, context_id="c1", status_key="1")
        tasks.save("", "t1", state="completed", head=b"", pieces=[], final=True)
        webhooks.set("t1", "w1", owner="ann", data=b"\x00")
        webhooks.set("t2", "", owner="", data=b"gone")


def agent_tasks_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    found = [one for owner in ("ann", "") for one in tx.agent_tasks.tasks.list(owner).items]
    hooks = [one for task in ("t1", "t2") for one in tx.agent_tasks.webhooks.list(task)]
    return {
        "agent_tasks": {one.task.id: {**one.task.model_dump(mode="json"), "head": one.head.hex()} for one in found},
        "agent_task_pieces": {
            one.task.id: {"pieces": [[piece.kind, piece.position, piece.part, piece.data.hex()] for piece in one.pieces]}
            for one in found
        },
        "agent_task_webhooks": {
            f"{one.task_id}/{one.owner}/{one.id}": {"data": one.data.hex(), "at": one.updated_at.isoformat()} for one in hooks
        },
    }


# Something of every table of replay streams, made through the public API, and what a reader sees of it.


def fill_replay_streams(store: Store) -> None:
    """A session with two streams, of which one begins with a marker, and a session with a stream of the same name."""
    with store.begin() as tx:
        append = tx.replay_streams.messages.append
        append("client-1", "1", None)
        append("client-1", "1", HARD)
        append("client-1", "", '{"n": 1}')
        append("client-2", "1", '{"n": 2}')


def replay_streams_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    streams = tx.replay_streams
    found = streams.sessions.list().items
    return {
        "replay_sessions": {one.id: one.model_dump(mode="json") for one in found},
        "replay_messages": {
            message.id: message.model_dump(mode="json")
            for one in found
            for stream in ("1", "")
            for message in streams.messages.list(one.id, stream)
        },
    }


# Something of every table of transcripts, made through the public API, and what a reader sees of it.


def fill_transcripts(store: Store) -> None:
    """A session with a subagent and a summary, and one of another project, which only a subagent wrote to."""
    entries: list[dict[str, Any]] = [
        {"type": "user", "uuid": "u1", "text": HARD},
        {"type": "title", "n": 10**30, "z": 1, "a": float("inf")},
    ]
    with store.begin() as tx:
        append = tx.transcripts.entries.append
        append("-home-you", "other", [{"type": "user", "uuid": HARD * 30}], subpath="subagents/agent-2")
        append("-home-me", "ses", entries, fold=lambda previous, new: {"count": len(new), "note": HARD})
        append("-home-me", "ses", [{"type": "user", "uuid": "u1"}], subpath="subagents/agent-1")


def transcripts_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    found = tx.transcripts.sessions.list().items
    parts = {
        (one.project, one.session_id, subpath)
        for one in found
        for subpath in ("", *tx.transcripts.sessions.subpaths(one.project, one.session_id))
    }
    return {
        "transcript_sessions": {one.id: one.model_dump(mode="json") for one in found},
        "transcript_entries": {
            "/".join(part): {"entries": tx.transcripts.entries.list(*part[:2], subpath=part[2])} for part in sorted(parts)
        },
    }


# Something of every table of histories, made through the public API, and what a reader sees of it.


def fill_histories(store: Store) -> None:
    """A conversation that left a branch, a fork of it, and a run with an event, snapshots that share messages, and an effect."""
    said = [
        NewEntry("said-1", None, Message({"kind": "request", "text": HARD})),
        NewEntry("said-2", "said-1", Message({"kind": "response", "n": 2**64 - 1}, kind="answer", extra=[["n", "exact"]])),
    ]
    with store.begin() as tx:
        records = tx.histories.records
        run: dict[str, Any] = {"conversation_id": "asked", "parent_run_id": "outer", "agent_name": HARD}
        asked: dict[str, Any] = {"updated_at": START, "scope": "maria", "usage": {"requests": 1}, "deferred": {"calls": []}}
        records.put("asked", revision="1", expected_revision=None, head_id="said-2", entries=said, **asked)
        again = NewEntry("said-3", "said-1", Message({"kind": "response", "text": "again"}))
        records.put("asked", revision="2", expected_revision="1", head_id="said-3", entries=[again], branches=["said-2"], **asked)
        fork: dict[str, Any] = {"forked_from": "asked", "forked_at": "said-3", "updated_at": START}
        records.put("forked", revision="1", expected_revision=None, head_id="said-3", **fork)
        about = {"conversation_id": "asked", "parent_id": "outer", "agent_name": HARD, "registration_id": "reg"}
        tx.histories.runs.register("run-1", started_at=START, metadata={"note": HARD}, **about)
        tx.histories.run_events.append(
            "run-1",
            "tool_call_failed",
            step_index=1,
            at=START,
            tool_call_id="call",
            tool_name="read",
            error=HARD,
            metadata={"a": "1"},
            idempotency_key="key",
            **run,
        )
        messages = [Message({"text": HARD}), Message({"text": "more"}), Message({"text": "most"})]
        for number, state in ((2, "complete"), (3, "interrupted")):
            key = f"{number}:key"
            tx.histories.snapshots.save(
                "run-1",
                messages[:number],
                state=state,
                step_index=number,
                taken_at=START,
                idempotency_key=key,
                sequence=number,
                **run,
            )
        tx.histories.tool_effects.put(
            "run-1",
            "call",
            tool_name="read",
            status="failed",
            started_at=START,
            ended_at=START,
            idempotency_key="key",
            effect_summary=HARD,
        )


def histories_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    histories = tx.histories
    records = histories.records.latest()
    runs = histories.runs.list().items
    ends = {end for record in records for end in (record.head_id, *record.branches) if end is not None}
    taken = [one for run in runs for one in histories.snapshots.list(run.id, include_interrupted=True)]
    effects = [histories.tool_effects.find(run.id, "call") for run in runs]
    return {
        "history_records": {record.id: record.model_dump(mode="json") for record in records},
        "history_entries": {
            end: {"entries": [entry.model_dump(mode="json") for entry in histories.entries.list(end)]} for end in sorted(ends)
        },
        "history_runs": {run.id: run.model_dump(mode="json") for run in runs},
        "history_run_events": {
            event.kind: event.model_dump(mode="json") for run in runs for event in histories.run_events.list(run.id)
        },
        "history_snapshots": {
            one.snapshot.idempotency_key: {
                **one.snapshot.model_dump(mode="json"),
                "entries": [entry.model_dump(mode="json") for entry in one.entries],
            }
            for one in taken
        },
        "history_tool_effects": {one.tool_call_id: one.model_dump(mode="json") for one in effects if one is not None},
    }
