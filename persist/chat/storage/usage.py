"""Token usage of messages and sessions.

A message's usage is in its metadata: added up from recorded steps, or given by the writer of the message. A session's counters
sum `usage_of` over its visible assistant messages since the latest compaction. `recompute` computes them anew; `tally` updates
them when one message changes.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Text, bindparam, cast, select, update

from persist.chat.models import IS_COMPACTION, VISIBLE, messages, parts, sessions, step_usage
from persist.chat.schemas import Role, StepUsage, UIMessage
from persist.chat.storage.statements import SET_METADATA
from persist.chat.storage.stored_json import stored_object
from persist.db.changes.driver_statements import StatementRunner
from persist.db.expressions.upsert import insert_missing
from persist.db.statements.prepared import Statement, param
from persist.db.values.arguments import check_cost
from persist.db.values.json import encode
from persist.errors import InvalidValue, NotFound

COMPACTION = "data-compaction"
COUNTERS = ("input", "output", "reasoning", "cache_read", "cache_write")
_COLUMNS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write")
_NOTHING = dict.fromkeys(COUNTERS, 0)
_MAX = 2**53

_S, _M, _P = sessions.c, messages.c, parts.c
_id = param("row_id")
_INSERT = Statement(insert_missing(step_usage, "message_id", "step"))
_HAS_STEPS = Statement(select(step_usage.c.step).where(step_usage.c.message_id == _id).limit(1))
_METADATA = Statement(select(_M.session_id, _M.role, cast(_M.metadata_json, Text)).where(_M.id == _id).with_for_update())
_POSITION = Statement(select(_M.created_at, _M.id).where(_M.id == _id))
_more = {
    **{_S[column]: _S[column] + bindparam(f"add_{column}", type_=_S[column].type) for column in _COLUMNS},
    _S.total_tokens: _S.total_tokens + bindparam("add_total", type_=_S.total_tokens.type),
}
_spent = {_S.cost_usd: _S.cost_usd + bindparam("add_cost", type_=_S.cost_usd.type), _S.updated_at: param("at")}
ADD_COUNTERS = Statement(update(sessions).where(_S.id == _id).values(_more))
_SPEND = Statement(update(sessions).where(_S.id == _id).values({**_more, **_spent}))
_LOCK_SESSION = Statement(select(_S.id).where(_S.id == _id).with_for_update())
_SET = Statement(
    update(sessions)
    .where(_S.id == _id)
    .values({**{_S[column]: bindparam(f"set_{column}") for column in _COLUMNS}, _S.total_tokens: param("set_total")})
)
_VISIBLE = Statement(
    select(_M.id, _M.role, cast(_M.metadata_json, Text)).where(_M.session_id == _id, VISIBLE).order_by(_M.created_at, _M.id)
)
_MARKERS = Statement(
    select(_P.message_id, _P.data_json, _M.created_at)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _id, IS_COMPACTION, VISIBLE)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc())
    .limit(1)
)


def step_counts(
    *,
    input_tokens: int,
    output_tokens: int,
    reasoning_tokens: int = 0,
    cache_read_tokens: int = 0,
    cache_write_tokens: int = 0,
    cost_usd: float = 0.0,
) -> StepUsage:
    """The counts to store for those the SDK reports, whose input includes tokens read from and written to the cache."""
    counts = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "reasoning_tokens": reasoning_tokens,
        "cache_read_tokens": cache_read_tokens,
        "cache_write_tokens": cache_write_tokens,
    }
    for name, value in counts.items():
        if type(value) is not int or not 0 <= value <= _MAX:
            raise InvalidValue(name, "expected a whole number of tokens, 0 or more.")
    cost = check_cost("cost_usd", cost_usd)
    return StepUsage(
        input=max(0, input_tokens - cache_read_tokens - cache_write_tokens),
        output=output_tokens,
        reasoning=reasoning_tokens,
        cache_read=cache_read_tokens,
        cache_write=cache_write_tokens,
        cost_usd=cost,
    )


def check_step(step: object) -> int:
    """Check a step number; InvalidValue."""
    if type(step) is not int or not 0 <= step < 2**31:
        raise InvalidValue("step", "expected a step number, 0 or more.")
    return step


def record_step(db: StatementRunner, session_id: str, message_id: str, step: int, usage: StepUsage, now: datetime) -> bool:
    """`add_step` as a transaction of its own, named `usage.recorded` in the event log."""
    db.begin_event("usage.recorded", session_id)
    return add_step(db, message_id, step, usage, now)


def add_step(db: StatementRunner, message_id: str, step: int, usage: StepUsage, now: datetime) -> bool:
    """Add a step's usage to step, message and session. False, and nothing changes, if the step was recorded before."""
    row = db.row(_METADATA, row_id=message_id)
    if row is None:
        raise NotFound("message", message_id)
    session_id, role, stored = row
    counts = usage.model_dump()
    counted = has_steps(db, message_id)
    if db.run(_INSERT, message_id=message_id, step=step, created_at=now, **counts) != 1:
        return False
    metadata = stored_object(db, stored, f"the metadata of message {message_id}")
    old = usage_of(metadata) if counted else dict.fromkeys(COUNTERS, 0)  # usage that the stream sent is not added up
    changed = {**metadata, "usage": {name: old[name] + counts[name] for name in COUNTERS}}
    db.run(SET_METADATA, row_id=message_id, metadata=encode(changed), at=now)
    added = _difference(role, metadata, changed)
    db.run(_SPEND, row_id=session_id, at=now, add_cost=usage.cost_usd, **added)
    _correct_if_compacted(db, session_id, message_id, added)
    return True


def tally(
    db: StatementRunner, session_id: str, message_id: str, role: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Update the session's counters after a message's metadata changed from `before` (empty if new) to `after`."""
    added = _difference(role, before, after)
    if any(added.values()):
        db.run(ADD_COUNTERS, row_id=session_id, **added)
        _correct_if_compacted(db, session_id, message_id, added)


def counters_of(role: str, metadata: Mapping[str, Any]) -> dict[str, int]:
    """The parameters of ADD_COUNTERS for a new message that sorts last; empty if it has no usage that counts."""
    added = _difference(role, {}, metadata)
    return added if any(added.values()) else {}


def _difference(role: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """What to add to the session's counters if the message is after the latest compaction."""
    old, new = (usage_of(one) if _counts(role, one) else _NOTHING for one in (before, after))
    added = {f"add_{column}": new[name] - old[name] for column, name in zip(_COLUMNS, COUNTERS, strict=True)}
    return {**added, "add_total": sum(added.values())}


def _counts(role: str, metadata: Mapping[str, Any]) -> bool:
    return role == Role.ASSISTANT and metadata.get("hidden_at") is None and metadata.get("queued_at") is None


def _correct_if_compacted(db: StatementRunner, session_id: str, message_id: str, added: Mapping[str, int]) -> None:
    """Correct the counters if the message is before the latest compaction. The session is locked, so that cannot move."""
    if not any(added.values()):
        return
    marker = db.row(_MARKERS, row_id=session_id)
    position = None if marker is None else db.row(_POSITION, row_id=message_id)
    if marker is not None and position is not None and position < (marker[2], marker[0]):
        recompute(db, session_id)


def has_steps(db: StatementRunner, message_id: str) -> bool:
    """Whether steps were recorded for the message: its `usage` is then their sum, and usage sent by the stream is ignored."""
    return db.row(_HAS_STEPS, row_id=message_id) is not None


def recompute(db: StatementRunner, session_id: str) -> None:
    """Recompute a session's counters from its visible assistant messages since the latest compaction. Cost is never reduced."""
    db.row(_LOCK_SESSION, row_id=session_id)  # others add to the counters before this read or after this write
    visible = [
        {"id": id, "role": str(role), "metadata": stored_object(db, stored, f"the metadata of message {id}")}
        for id, role, stored in db.rows(_VISIBLE, row_id=session_id)
    ]
    marker = newest_marker(db, session_id)
    counted = since_boundary(visible, *marker) if marker else visible
    totals = dict.fromkeys(COUNTERS, 0)
    for message in counted:
        if message["role"] == "assistant":
            usage = usage_of(message["metadata"])
            for name in COUNTERS:
                totals[name] += usage[name]
    values = {f"set_{column}": totals[name] for column, name in zip(_COLUMNS, COUNTERS, strict=True)}
    db.run(_SET, row_id=session_id, set_total=sum(totals.values()), **values)


def newest_marker(db: StatementRunner, session_id: str) -> tuple[str, str | None] | None:
    """(message id, tail_start_id) of the latest visible compaction; None without one."""
    row = db.row(_MARKERS, row_id=session_id)
    if row is None:
        return None
    data = row[1].get("data") if isinstance(row[1], dict) else None
    tail = data.get("tail_start_id") if isinstance(data, dict) else None
    return row[0], tail if isinstance(tail, str) else None


def since_boundary(visible: list[UIMessage], marker_id: str, tail_start_id: str | None) -> list[UIMessage]:
    """What the model sees after a compaction: the summary, [tail start … marker), and everything after the marker."""
    ids = [message["id"] for message in visible]
    if marker_id not in ids:
        return visible
    at = ids.index(marker_id)
    start = ids.index(tail_start_id) if tail_start_id in ids[:at] else at
    return [visible[at], *visible[start:at], *visible[at + 1 :]]


def usage_of(metadata: Mapping[str, Any]) -> dict[str, int]:
    """The five counters in a message's metadata; 0 for a value that is not a token count."""
    usage = metadata.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return {name: value if type(value := usage.get(name)) is int and 0 < value <= _MAX else 0 for name in COUNTERS}
