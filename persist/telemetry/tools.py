"""`tx.telemetry.tools`: the audit log of tool calls, read newest first."""

from datetime import datetime
from functools import cache

from sqlalchemy import insert, select

from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.transactions.own_scope import public_scope, resolve_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_flag, optional_count
from persist.db.values.frozen import construct
from persist.db.values.pages import check_limit
from persist.errors import InvalidValue
from persist.telemetry.instants import second_or_now
from persist.telemetry.models import tool_history
from persist.telemetry.schemas import ToolCall
from persist.telemetry.windows import TOOL_HISTORY

MAX_CALLS = 100_000
"""The highest `n` of `last`."""

_H = tool_history.c
_COLUMNS = (_H.id, _H.occurred_at, _H.tool_key, _H.exit_code, _H.duration_ms)
_ADD = Statement(
    insert(tool_history)
    .values({name: param(f"new_{name}") for name in ("instance_id", "occurred_at", "tool_key", "exit_code", "duration_ms")})
    .returning(_H.id)
)


@cache
def _last(tool_key: bool, failures_only: bool, before: bool) -> Statement:
    query = select(*_COLUMNS).where(_H.instance_id == param("owner")).order_by(_H.id.desc()).limit(LIMIT)
    if tool_key:
        query = query.where(_H.tool_key == param("of_tool"))
    if before:
        query = query.where(_H.id < param("before"))
    if failures_only:
        query = query.where(_H.exit_code != 0)
    return Statement(query)


class ToolHistory(Repository[F]):
    """`tx.telemetry.tools`. `instance_id` None: the instance that owns the file."""

    @writes
    def record(
        self,
        tool_key: str,
        *,
        exit_code: int | None = None,
        duration_ms: int | None = None,
        at: datetime | None = None,
        instance_id: str | None = None,
    ) -> ToolCall:
        """Record a tool call, at an instant or now. None: exit code or duration (milliseconds) is unknown."""
        work = self._work
        owner = resolve_scope(work, "instance_id", instance_id)
        occurred_at = second_or_now(work, "at", at)
        call = (work.label("tool_key", tool_key), _exit_code(exit_code), optional_count("duration_ms", duration_ms))
        with work.batch(last=True) as batch:
            count = TOOL_HISTORY.count(batch, owner)
            added = batch.returned(
                _ADD,
                new_instance_id=owner,
                new_occurred_at=occurred_at,
                new_tool_key=call[0],
                new_exit_code=call[1],
                new_duration_ms=call[2],
            )
            TOOL_HISTORY.trim_with(work, batch, owner, count)
        assert added.result is not None
        return _call(work, owner, (added.result[0], occurred_at, *call))

    @reads
    def last(
        self,
        n: int = 20,
        *,
        tool_key: str | None = None,
        failures_only: bool = False,
        before: int | None = None,
        instance_id: str | None = None,
    ) -> list[ToolCall]:
        """The newest `n` calls, newest first.

        `tool_key`: only calls of that tool. `failures_only`: only calls with an exit code other than 0. `before`: only calls
        with a smaller id.
        """
        work = self._work
        owner = resolve_scope(work, "instance_id", instance_id)
        values: dict[str, object] = {} if tool_key is None else {"of_tool": work.label("tool_key", tool_key)}
        before_id = optional_count("before", before)
        if before_id is not None:
            values["before"] = before_id
        prepared = _last(tool_key is not None, check_flag("failures_only", failures_only), before_id is not None)
        rows = work.rows(prepared, owner=owner, limit=check_limit(n, maximum=MAX_CALLS, path="n"), **values)
        return [_call(work, owner, row) for row in rows]

    @writes
    def trim(self, *, instance_id: str | None = None) -> int:
        """Delete all but the newest `Settings.tool_history_keep` calls now; the number deleted."""
        return TOOL_HISTORY.trim(self._work, instance_id)


def _exit_code(value: object) -> int | None:
    """Check an exit code: any 64-bit integer, negative for signals."""
    if value is None:
        return None
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise InvalidValue("exit_code", "expected a whole number that fits 64 bits.")
    return value


def _call(work: UnitOfWork, owner: str, row: Row) -> ToolCall:
    id, occurred_at, tool_key, exit_code, duration_ms = row
    return construct(
        ToolCall,
        {
            "id": id,
            "instance_id": public_scope(work, "instance_id", owner),
            "occurred_at": occurred_at,
            "tool_key": tool_key,
            "exit_code": exit_code,
            "duration_ms": duration_ms,
        },
    )
