"""Something of every table of telemetry and programs, made through the public API, and what a reader sees of it."""

from datetime import timedelta
from typing import Any

from sqlalchemy import insert

from persist import Store
from persist.programs.models import raw_writes
from persist.store.transaction import Transaction, work_of
from persist.testing import FrozenClock

HARD = "Naïve\x00 text \ud83d stays what it was."
_INSTANCE, _WORKSPACE, _RUN = "box-1", "project", "20260102-030405-abc123"
_ISSUE = "https://github.com/example/project/issue/42"


def fill_telemetry(store: Store, clock: FrozenClock) -> None:
    """Transitions, tags, links fetched and failed, seconds of usage, tool calls, and tasks in several states."""
    with store.begin() as tx:
        telemetry = tx.telemetry
        for status in ("initializing", "idle", "question", "busy"):
            telemetry.status.record(status, metadata={"prompt": HARD} if status == "question" else None, instance_id=_INSTANCE)
            clock.advance(seconds=60)
        telemetry.tags.record("issue", _ISSUE, instance_id=_INSTANCE)
        telemetry.links.upsert(_ISSUE, fetched_at=clock(), issue_state="open", instance_id=_INSTANCE)
        telemetry.links.record_error(_ISSUE, HARD, instance_id=_INSTANCE)
        telemetry.usage.sample(at=clock(), token_input=4 * 10**9, cost_usd_micros=1500, instance_id=_INSTANCE)
        telemetry.usage.sample(at=clock(), token_output=7, instance_id=_INSTANCE)
        telemetry.tools.record("bash", exit_code=1, duration_ms=12, instance_id=_INSTANCE)
        found = [
            {"id": f"t{n}", "source_id": "tracker", "kind": "issue", "title": HARD, "labels": ["a"], "links": [], "body": HARD}
            for n in range(3)
        ]
        telemetry.tasks.poll(found, workspace_id=_WORKSPACE)
        task = telemetry.tasks.claim(_INSTANCE, workspace_id=_WORKSPACE)
        assert task is not None
        telemetry.tasks.complete(task.id, outcome=HARD, workspace_id=_WORKSPACE)
        telemetry.tasks.cancel("t2", workspace_id=_WORKSPACE)
        telemetry.tasks.claim(_INSTANCE, lease=timedelta(minutes=5), workspace_id=_WORKSPACE)


def fill_programs(store: Store, clock: FrozenClock) -> None:
    """A run with statements in frames, values of every kind, an agent with a segment, and an import."""
    with store.begin() as tx:
        programs = tx.programs
        programs.runs.create(program_path="main.prose", program_source=HARD, id=_RUN)
        block = programs.executions.begin(
            _RUN, statement_index=1, statement_text="parallel:", metadata={"parallel_id": "p1", "branches": ["a"]}
        )
        branch = programs.executions.begin(
            _RUN, statement_index=2, statement_text=HARD, parent_id=block.id, metadata={"parallel_id": "p1", "branch": "a"}
        )
        programs.executions.fail(_RUN, branch.id, HARD)
        clock.advance(seconds=1)
        programs.bindings.bind(_RUN, "goal", HARD, kind="const", source_statement="const goal")
        programs.bindings.bind(_RUN, "goal", "another", execution_id=branch.id)
        programs.agents.start(_RUN, "captain", resume=False)
        programs.agents.remember(_RUN, "captain", HARD)
        programs.agents.add_segment(_RUN, "captain", prompt=HARD, summary="said")
        programs.subagents.start(_RUN, isolation="file", agent="captain")
        programs.imports.add(_RUN, "research", "https://example.com/research", inputs_schema={"type": "object"})
    with store.begin(actor="maria") as tx:  # as a trigger notes what a shell did
        noted = {
            "table_name": "bindings",
            "operation": "update",
            "row_key_json": {"name": "goal"},
            "before_json": {"value": HARD},
        }
        work_of(tx).change(insert(raw_writes).values(run_id=_RUN, at=clock(), **noted))


def telemetry_seen(tx: Transaction) -> dict[str, Any]:
    """What a reader sees, as JSON has it, by kind and id."""
    telemetry = tx.telemetry
    mine: dict[str, Any] = {"instance_id": _INSTANCE}
    return {
        "statuses": {str(entry.id): entry.model_dump(mode="json") for entry in telemetry.status.history(**mine)},
        "tags": {tag.value: tag.model_dump(mode="json") for tag in telemetry.tags.list(**mine)},
        "links": {link.url: link.model_dump(mode="json") for link in telemetry.links.list(**mine)},
        "tools": {str(call.id): call.model_dump(mode="json") for call in telemetry.tools.last(**mine)},
        "tasks": {task.id: task.model_dump(mode="json") for task in telemetry.tasks.list(workspace_id=_WORKSPACE)},
    }


def programs_seen(tx: Transaction) -> dict[str, Any]:
    """The same of programs."""
    programs = tx.programs
    return {
        "program_runs": {run.id: run.model_dump(mode="json") for run in programs.runs.list().items},
        "statements": {str(one.id): one.model_dump(mode="json") for one in programs.executions.list(_RUN)},
        "bindings": {f"{one.name}/{one.execution_id}": one.model_dump(mode="json") for one in programs.bindings.list(_RUN)},
        "agents": {one.name: one.model_dump(mode="json") for one in programs.agents.list(_RUN)},
        "segments": {str(one.id): one.model_dump(mode="json") for one in programs.agents.segments(_RUN, "captain")},
        "imports": {one.alias: one.model_dump(mode="json") for one in programs.imports.list(_RUN)},
    }
