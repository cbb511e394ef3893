"""`tx.usage.calls`: single calls of models, in a window of each instance, session and run."""

import builtins
from datetime import datetime

from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import param
from persist.db.statements.row_values import Values
from persist.db.transactions.own_scope import public_scope, resolve_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_flag
from persist.db.values.pages import Page
from persist.errors import InvalidValue
from persist.usage.models import calls
from persist.usage.schemas import Source, UsageCall
from persist.usage.writing import Call, refuse_unless_counted, window_of, write

List = builtins.list
_C = calls.c
_NEWEST = Keyset("usage calls", Values(UsageCall, calls), (_C.seq,), {"scope": _C.scope == param("scope")})


class UsageCalls(Repository[F]):
    """`tx.usage.calls`. A call is of an instance, a chat session or a workflow run; of that of the file if none is named."""

    @writes
    def record(
        self,
        *,
        model: str,
        at: datetime | None = None,
        instance_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
        provider: str | None = None,
        operation: str | None = None,
        agent: str | None = None,
        owner: str | None = None,
        workspace: str | None = None,
        workflow: str | None = None,
        task_id: str | None = None,
        trace_id: str | None = None,
        span_id: str | None = None,
        token_input: int | None = None,
        token_output: int | None = None,
        token_cache_read: int | None = None,
        token_cache_write: int | None = None,
        token_reasoning: int | None = None,
        cost_usd_micros: int | None = None,
        duration_ms: int | None = None,
        error: str | None = None,
        key: str | None = None,
        within_budget: bool = False,
    ) -> bool:
        """Record a call in its window, in the sums, and on budgets. `at`: when it happened; None: now.

        A call is of the instance or session that is named, else of the run; `run_id` may be given beside them. `key`: the call is
        recorded once by it, as long as the window keeps it; the result is False where it was there. Tokens by kind: input without
        cached ones, and reasoning as a part of output. Cost is in millionths of a US dollar. `within_budget`: record nothing and
        raise BudgetExceeded where a budget of the call was used up before it, unless the window has a call of the `key`. Raises
        InvalidValue.
        """
        work = self._work
        kind, id = scope_of(work, instance_id, session_id, run_id)
        call = Call.of(
            work,
            kind,
            id,
            work.now() if at is None else at,
            model,
            provider=provider,
            operation=operation,
            agent=agent,
            owner=owner,
            workspace=workspace,
            workflow=workflow,
            task_id=task_id,
            run_id=run_id,
            trace_id=trace_id,
            span_id=span_id,
            token_input=token_input,
            token_output=token_output,
            token_cache_read=token_cache_read,
            token_cache_write=token_cache_write,
            token_reasoning=token_reasoning,
            cost_usd_micros=cost_usd_micros,
            duration_ms=duration_ms,
            error=error,
            key=key,
        )
        if check_flag("within_budget", within_budget):
            refuse_unless_counted(work, call)
        return write(work, window_of(work.runtime.settings), call)

    @reads
    def list(
        self,
        *,
        instance_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
        limit: int = 20,
        after: str | None = None,
    ) -> Page[UsageCall]:
        """The calls that the window of an instance, session or run keeps, the one written last first."""
        work = self._work
        kind, id = scope_of(work, instance_id, session_id, run_id)
        return _NEWEST.page(work, limit, after, {"scope": f"{kind}:{id}"})


def scope_of(work: UnitOfWork, instance_id: str | None, session_id: str | None, run_id: str | None) -> tuple[Source, str]:
    """What a call belongs to. Raises InvalidValue if both an instance and a session are named, or nothing on a server."""
    if instance_id is not None and session_id is not None:
        raise InvalidValue("session_id", "a call is of an instance or of a session, and not of both.")
    if session_id is not None:
        return Source.SESSION, work.label("session_id", session_id)
    if instance_id is None and run_id is not None:
        return Source.RUN, work.label("run_id", run_id)
    return Source.INSTANCE, public_scope(work, "instance_id", resolve_scope(work, "instance_id", instance_id))
