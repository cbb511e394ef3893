"""`tx.histories.tool_effects`: the ledger of what is known of tool calls' effects on the world."""

from datetime import datetime

from sqlalchemy import func, select, true

from persist.db.expressions.conditional_insert import insert_where
from persist.db.expressions.upsert import overwriting
from persist.db.statements.prepared import Statement, among, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_choice
from persist.db.values.clock import as_utc
from persist.histories.models import effects
from persist.histories.runs import touch
from persist.histories.schemas import EffectStatus, ToolEffect
from persist.histories.validation import optional_text, text

List = list
_F = effects.c
_KEY = ("run_id", "tool_call_id")
_EFFECT = Values(ToolEffect, effects)
_last = select(func.coalesce(func.max(_F.position), -1)).where(_F.run_id == param("run_id")).scalar_subquery()
_PUT = Statement(overwriting(insert_where(effects, true(), {"position": _last + 1}), *_KEY, keep=("position",)))
_of_run = _F.run_id == param("run_id")
_GET = Statement(select(*_EFFECT.columns).where(_of_run, _F.tool_call_id == param("tool_call_id")))
_OPEN = Statement(select(*_EFFECT.columns).where(_of_run, among(_F.status, [EffectStatus.STARTED])).order_by(_F.position))


class ToolEffects(Repository[F]):
    """`tx.histories.tool_effects`."""

    @writes
    def put(
        self,
        run_id: str,
        tool_call_id: str,
        *,
        tool_name: str,
        status: EffectStatus | str,
        started_at: datetime,
        ended_at: datetime | None = None,
        idempotency_key: str | None = None,
        effect_summary: str | None = None,
    ) -> None:
        """Note what is known of a tool call, in place of what was known. The run need not be registered."""
        work = self._work
        row = {
            "run_id": work.label("run_id", run_id, empty=True),
            "tool_call_id": work.label("tool_call_id", tool_call_id, empty=True),
            "tool_name": text("tool_name", tool_name),
            "status": check_choice("status", status, EffectStatus),
            "started_at": as_utc("started_at", started_at),
            "ended_at": None if ended_at is None else as_utc("ended_at", ended_at),
            "idempotency_key": optional_text("idempotency_key", idempotency_key),
            "effect_summary": optional_text("effect_summary", effect_summary),
        }
        with work.batch(last=True) as batch:
            touch(work, batch, run_id)
            batch.run(_PUT, **row)

    @reads
    def find(self, run_id: str, tool_call_id: str) -> ToolEffect | None:
        """What is known of a tool call; None if nothing is."""
        work = self._work
        key = {name: work.label(name, value, empty=True) for name, value in zip(_KEY, (run_id, tool_call_id), strict=True)}
        return _EFFECT.optional(work.row(_GET, **key))

    @reads
    def unresolved(self, run_id: str) -> List[ToolEffect]:
        """The calls of a run that are noted as started and as nothing since, in the order in which they were first noted."""
        return [_EFFECT(row) for row in self._work.rows(_OPEN, run_id=self._work.label("run_id", run_id, empty=True))]
