"""What the tests of executions, approvals and overrides make: runs, executions and gates, each in a transaction of its own."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from persist.workflows.schemas import Approval, Execution, WorkflowRun
from tests.contract.conftest import Raw, ids_of_pages

TRIGGER = "acme/site#42"
STARTED = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
SKILL = "build:plan"
HARD_TEXT = "NUL \x00, halves \ud83d and \ude00, lead \ufdd0, \u2028, 😀, %s ? :x ' \" \\ é"


def make_run(store: Any, name: str = "build", **fields: Any) -> WorkflowRun:
    run: WorkflowRun = store.workflows.runs.create(name, **{"trigger_id": TRIGGER, "current_phase": "plan", **fields})
    return run


def start(store: Any, **fields: Any) -> str:
    """An execution that runs -> its id."""
    with store.begin() as tx:
        given = {"trigger_type": "webhook", "trigger_id": TRIGGER, "skill": SKILL, **fields}
        return str(tx.workflows.executions.start(**given).id)


def finish(store: Any, id: str, *, success: bool = True, **fields: Any) -> bool:
    return bool(store.workflows.executions.finish(id, success=success, **fields))


def done(store: Any, *, success: bool = True, result: Mapping[str, Any] | None = None, **fields: Any) -> str:
    """An execution that ended -> its id. `fields` start it, `result` ends it."""
    id = start(store, **fields)
    assert finish(store, id, success=success, **(result or {}))
    return id


def skip(store: Any, trigger_id: str = TRIGGER, skill: str = SKILL, **fields: Any) -> Execution:
    row: Execution = store.workflows.executions.skip(skill, trigger_id, **{"reason": "nothing to do", **fields})
    return row


def pause(store: Any, run_id: str, **fields: Any) -> Approval:
    """A running run pauses at a new gate."""
    given = {"gate": "post_plan", "summary": "Go on?", "marker": ("waiting", {"by": "plan"}), **fields}
    gate: Approval = store.workflows.approvals.pause_for_approval(run_id, **given)
    return gate


def paused(store: Any, **fields: Any) -> tuple[str, str]:
    """A new run that waits at a gate -> (run, gate)."""
    run = make_run(store)
    return run.id, pause(store, run.id, **fields).id


def request(store: Any, run_id: str, **fields: Any) -> str:
    return str(store.workflows.approvals.request(run_id, **{"gate": "post_plan", "summary": "Go on?", **fields}).id)


def respond(store: Any, id: str, *, approved: bool = True, **fields: Any) -> bool:
    return bool(store.workflows.approvals.respond(id, approved=approved, **fields))


def reply(store: Any, id: str, response: str = "42", **fields: Any) -> bool:
    return bool(store.workflows.approvals.resolve_reply(id, response=response, **fields))


def resume(store: Any, id: str, **fields: Any) -> WorkflowRun:
    run: WorkflowRun = store.workflows.approvals.resolve_and_resume(id, **fields)
    return run


def fail(store: Any, id: str, **fields: Any) -> WorkflowRun:
    run: WorkflowRun = store.workflows.approvals.resolve_and_fail(id, **fields)
    return run


def execution(store: Any, id: str) -> Execution:
    found: Execution = store.workflows.executions.get(id)
    return found


def executions(store: Any, **filters: Any) -> list[str]:
    """The ids of the first page of the list."""
    return ids(store.workflows.executions.list(**filters).items)


def should_run(store: Any, run: str | None = None, *, skill: str = SKILL, trigger_id: str = TRIGGER) -> str:
    return str(store.workflows.executions.should_run(skill, trigger_id, workflow_run_id=run))


def run_of(store: Any, id: str) -> WorkflowRun:
    found: WorkflowRun = store.workflows.runs.get(id)
    return found


def gate_of(store: Any, id: str) -> Approval:
    found: Approval = store.workflows.approvals.get(id)
    return found


def pending(store: Any, **filters: Any) -> list[str]:
    return ids(store.workflows.approvals.pending(**filters))


def ids(rows: Iterable[Any]) -> list[str]:
    return [row.id for row in rows]


def iso(at: datetime) -> str:
    """As published: UTC, milliseconds, Z."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


def plant(raw: Raw, table: str, **fields: Any) -> str:
    """A row as another program writes it -> its id. Flags are bools here, as the published schema has them there."""
    values = [
        int(value) if isinstance(value, bool) and raw.is_sqlite else iso(value) if isinstance(value, datetime) else value
        for value in fields.values()
    ]
    marks = ", ".join("?" * len(values))
    raw.rows(f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({marks})", *values)
    return str(fields.get("id"))


def plant_execution(raw: Raw, id: str, at: datetime, **fields: Any) -> str:
    row = {"trigger_type": "webhook", "trigger_id": TRIGGER, "skill": SKILL, "started_at": at, **fields}
    return plant(raw, "executions", id=id, **row)


def pages(store: Any, **options: Any) -> Iterator[list[str]]:
    return ids_of_pages(store.workflows.executions.list, **options)


def failed_with(store: Any, error: str | None) -> str:
    return done(store, success=False, result={"error": error})
