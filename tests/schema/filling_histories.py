"""Something of every table of histories, made through the public API, and what a reader sees of it."""

from typing import Any

from persist import Store
from persist.framework_state.histories.schemas import Message, NewEntry
from persist.store.transaction import Transaction
from persist.testing import START

HARD = "Naïve\x00 text \ud83d stays what it was."


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
