"""`tx.telemetry.tools`: the audit log of tool calls, read newest first."""

from datetime import datetime
from functools import cache

from sqlalchemy import insert, select

from persist.db.expressions.upsert import merge
from persist.db.statements.prepared import LIMIT, Statement, param
from persist.db.transactions.own_scope import ScopedValues, resolve_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.arguments import check_choice, check_flag, optional_count
from persist.db.values.escaping import utf8_size
from persist.db.values.pages import check_limit
from persist.errors import InvalidValue, PayloadTooLarge
from persist.telemetry.models import agent_tags, tool_history
from persist.telemetry.schemas import AgentTag, TagKind, ToolCall
from persist.telemetry.windows import TOOL_HISTORY, second_or_now

MAX_BYTES = 4096
"""The most bytes of a tag's value, in UTF-8."""
List = list
_T = agent_tags.c
_TAG = ScopedValues(AgentTag, agent_tags, "instance_id")
_RECORD = Statement(
    merge(agent_tags, "instance_id", "kind", "value", first_seen="earliest", last_seen="latest").returning(*_TAG.columns)
)
_ALL = select(*_TAG.columns).where(_T.instance_id == param("owner")).order_by(_T.kind, _T.value)
_LISTS = {False: Statement(_ALL), True: Statement(_ALL.where(_T.kind == param("of_kind")))}


class AgentTags(Repository[F]):
    """`tx.telemetry.tags`: what agents say they work on, a row per tag. `instance_id` None: the instance that owns the file."""

    @writes
    def record(self, kind: str, value: str, *, at: datetime | None = None, instance_id: str | None = None) -> AgentTag:
        """Record that the agent named a `repo`, `issue`, `pr` or `link`, at an instant or now. The value has at most 4 KiB.

        A tag named again is the same row: `first_seen` is the earliest instant given and `last_seen` the latest.
        """
        work = self._work
        owner = resolve_scope(work, "instance_id", instance_id)
        tag_kind = check_choice("kind", kind, TagKind)
        text = work.label("value", value)
        if (size := utf8_size(text)) > MAX_BYTES:
            raise PayloadTooLarge("value", size, MAX_BYTES)
        seen = second_or_now(work, "at", at)
        with work.batch(last=True) as batch:
            recorded = batch.returned(_RECORD, instance_id=owner, kind=tag_kind, value=text, first_seen=seen, last_seen=seen)
        assert recorded.result is not None
        return _TAG.public(work, recorded.result)

    @reads
    def list(self, *, kind: str | None = None, instance_id: str | None = None) -> List[AgentTag]:
        """All tags of the instance, or those of a kind, ordered by kind and value."""
        work = self._work
        owner = resolve_scope(work, "instance_id", instance_id)
        values = {} if kind is None else {"of_kind": check_choice("kind", kind, TagKind)}
        return [_TAG.public(work, row) for row in work.rows(_LISTS[kind is not None], owner=owner, **values)]


MAX_CALLS = 100_000
"""The highest `n` of `last`."""
_H = tool_history.c
_CALL = ScopedValues(ToolCall, tool_history, "instance_id")
_GIVEN = _CALL.fields[1:]
_ADD = Statement(insert(tool_history).values({name: param(f"new_{name}") for name in _GIVEN}).returning(_H.id))


@cache
def _last(tool_key: bool, failures_only: bool, before: bool) -> Statement:
    query = select(*_CALL.columns).where(_H.instance_id == param("owner")).order_by(_H.id.desc()).limit(LIMIT)
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
        call = (
            owner,
            second_or_now(work, "at", at),
            work.label("tool_key", tool_key),
            _exit_code(exit_code),
            optional_count("duration_ms", duration_ms),
        )
        with work.batch(last=True) as batch:
            count = TOOL_HISTORY.count(batch, owner)
            added = batch.returned(_ADD, **{f"new_{name}": value for name, value in zip(_GIVEN, call, strict=True)})
            TOOL_HISTORY.trim_with(work, batch, owner, count)
        assert added.result is not None
        return _CALL.public(work, (added.result[0], *call))

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

        `tool_key`: only its calls. `failures_only`: only with an exit code other than 0. `before`: only with a smaller id.
        """
        work = self._work
        owner = resolve_scope(work, "instance_id", instance_id)
        values: dict[str, object] = {} if tool_key is None else {"of_tool": work.label("tool_key", tool_key)}
        before_id = optional_count("before", before)
        if before_id is not None:
            values["before"] = before_id
        prepared = _last(tool_key is not None, check_flag("failures_only", failures_only), before_id is not None)
        rows = work.rows(prepared, owner=owner, limit=check_limit(n, maximum=MAX_CALLS, path="n"), **values)
        return [_CALL.public(work, row) for row in rows]

    @writes
    def trim(self, *, instance_id: str | None = None) -> int:
        """Delete all but the newest `Settings.tool_history_keep` calls now; the number deleted."""
        return TOOL_HISTORY.trim(self._work, instance_id)


def _exit_code(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise InvalidValue("exit_code", "expected a whole number that fits 64 bits.")
    return value
