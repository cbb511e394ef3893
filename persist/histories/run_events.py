"""`tx.histories.run_events`: what a run came to, in order."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, true

from persist.db.expressions.conditional_insert import insert_where
from persist.db.expressions.upsert import merging
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import optional_label
from persist.db.values.clock import as_utc
from persist.histories.models import run_events
from persist.histories.runs import touch
from persist.histories.schemas import RunEvent
from persist.histories.validation import optional_text, whole_number

List = list
_V = run_events.c
_EVENT = Values(RunEvent, run_events)
_last = select(func.coalesce(func.max(_V.position), -1)).where(_V.run_id == param("run_id")).scalar_subquery()
_APPEND = Statement(merging(insert_where(run_events, true(), {"position": _last + 1})))
_OF_RUN = Statement(select(*_V).where(_V.run_id == param("run_id")).order_by(_V.position))


class RunEvents(Repository[F]):
    """`tx.histories.run_events`."""

    @writes
    def append(
        self,
        run_id: str,
        kind: str,
        *,
        step_index: int,
        at: datetime,
        conversation_id: str | None = None,
        parent_run_id: str | None = None,
        agent_name: str | None = None,
        tool_call_id: str | None = None,
        tool_name: str | None = None,
        error: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> bool:
        """Append an event to a run, which need not be registered. False if it has one with that `idempotency_key` already."""
        work = self._work
        row = {
            "run_id": work.label("run_id", run_id, empty=True),
            "kind": work.label("kind", kind),
            "step_index": whole_number("step_index", step_index),
            "at": as_utc("at", at),
            "conversation_id": optional_text("conversation_id", conversation_id),
            "parent_run_id": optional_text("parent_run_id", parent_run_id),
            "agent_name": optional_text("agent_name", agent_name),
            "tool_call_id": optional_text("tool_call_id", tool_call_id),
            "tool_name": optional_text("tool_name", tool_name),
            "error": optional_text("error", error),
            "metadata_json": work.json("metadata", work.json_object("metadata", metadata)),
            "idempotency_key": optional_label("idempotency_key", idempotency_key, empty=True),
        }
        with work.batch(last=True) as batch:
            touch(work, batch, run_id)
            appended = batch.run(_APPEND, **row)
        return appended.result == 1

    @reads
    def list(self, run_id: str) -> List[RunEvent]:
        """The events of a run, oldest first."""
        return [_EVENT(row) for row in self._work.rows(_OF_RUN, run_id=self._work.label("run_id", run_id, empty=True))]
