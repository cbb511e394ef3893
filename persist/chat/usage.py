"""Token usage: of a message in its metadata, recorded once per step or said by whoever wrote the message; and the rollups.

A session's counters are the sums of `usage_of` over its visible assistant messages, from the latest compaction on: `recompute`
says so, and `tally` keeps them so when one message changes.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Text, bindparam, cast, select, update

from persist.chat.models import IS_COMPACTION, VISIBLE, messages, parts, sessions, step_usage
from persist.chat.schemas import Role, StepUsage, UIMessage
from persist.chat.statements import SET_METADATA
from persist.chat.stored import stored_object
from persist.db.checks import check_cost
from persist.db.hot import Hot, Statements, param
from persist.db.insert import insert_missing
from persist.db.json import encode
from persist.errors import InvalidValue, NotFound

COMPACTION = "data-compaction"
COUNTERS = ("input", "output", "reasoning", "cache_read", "cache_write")
_COLUMNS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write")
_NOTHING = dict.fromkeys(COUNTERS, 0)
_MOST = 2**53

_S, _M, _P = sessions.c, messages.c, parts.c
_id = param("row_id")
_INSERT = Hot(insert_missing(step_usage, "message_id", "step"))
_HAS_STEPS = Hot(select(step_usage.c.step).where(step_usage.c.message_id == _id).limit(1))
_METADATA = Hot(select(_M.session_id, _M.role, cast(_M.metadata_json, Text)).where(_M.id == _id).with_for_update())
_PLACE = Hot(select(_M.created_at, _M.id).where(_M.id == _id))
_more = {
    **{_S[column]: _S[column] + bindparam(f"add_{column}", type_=_S[column].type) for column in _COLUMNS},
    _S.total_tokens: _S.total_tokens + bindparam("add_total", type_=_S.total_tokens.type),
}
_spent = {_S.cost_usd: _S.cost_usd + bindparam("add_cost", type_=_S.cost_usd.type), _S.updated_at: param("at")}
_ADD = Hot(update(sessions).where(_S.id == _id).values(_more))
_SPEND = Hot(update(sessions).where(_S.id == _id).values({**_more, **_spent}))
_HOLD = Hot(select(_S.id).where(_S.id == _id).with_for_update())
_SET = Hot(
    update(sessions)
    .where(_S.id == _id)
    .values({**{_S[column]: bindparam(f"set_{column}") for column in _COLUMNS}, _S.total_tokens: param("set_total")})
)
_VISIBLE = Hot(
    select(_M.id, _M.role, cast(_M.metadata_json, Text)).where(_M.session_id == _id, VISIBLE).order_by(_M.created_at, _M.id)
)
_MARKERS = Hot(
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
    """Counts as the SDK reports them -> as stored: the SDK's input includes what the cache served or took."""
    counts = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "reasoning_tokens": reasoning_tokens,
        "cache_read_tokens": cache_read_tokens,
        "cache_write_tokens": cache_write_tokens,
    }
    for name, value in counts.items():
        if type(value) is not int or not 0 <= value <= _MOST:
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
    """A step number."""
    if type(step) is not int or not 0 <= step < 2**31:
        raise InvalidValue("step", "expected a step number, 0 or more.")
    return step


def record_step(db: Statements, session_id: str, message_id: str, step: int, usage: StepUsage, now: datetime) -> bool:
    """As `add_step`, as all that a transaction does."""
    db.deed("usage.recorded", session_id)
    return add_step(db, message_id, step, usage, now)


def add_step(db: Statements, message_id: str, step: int, usage: StepUsage, now: datetime) -> bool:
    """Record a step once: False, and nothing changed, when it was recorded before. Three sums in one transaction."""
    row = db.row(_METADATA, row_id=message_id)
    if row is None:
        raise NotFound("message", message_id)
    session_id, role, stored = row
    counts = usage.model_dump()
    counted = has_steps(db, message_id)
    if db.run(_INSERT, message_id=message_id, step=step, created_at=now, **counts) != 1:
        return False
    metadata = stored_object(db, stored, f"the metadata of message {message_id}")
    former = usage_of(metadata) if counted else dict.fromkeys(COUNTERS, 0)  # what the stream said of it is not ours
    changed = {**metadata, "usage": {name: former[name] + counts[name] for name in COUNTERS}}
    db.run(SET_METADATA, row_id=message_id, metadata=encode(changed), at=now)
    added = _difference(role, metadata, changed)
    db.run(_SPEND, row_id=session_id, at=now, add_cost=usage.cost_usd, **added)
    _settle(db, session_id, message_id, added)
    return True


def tally(
    db: Statements, session_id: str, message_id: str, role: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """A message's metadata was `before` and is `after`: the counters follow. That of a new message was empty."""
    added = _difference(role, before, after)
    if any(added.values()):
        db.run(_ADD, row_id=session_id, **added)
        _settle(db, session_id, message_id, added)


def _difference(role: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """What the counters of the session gain if the message is after the boundary."""
    former, latter = (usage_of(one) if _counts(role, one) else _NOTHING for one in (before, after))
    added = {f"add_{column}": latter[name] - former[name] for column, name in zip(_COLUMNS, COUNTERS, strict=True)}
    return {**added, "add_total": sum(added.values())}


def _counts(role: str, metadata: Mapping[str, Any]) -> bool:
    return role == Role.ASSISTANT and metadata.get("hidden_at") is None and metadata.get("queued_at") is None


def _settle(db: Statements, session_id: str, message_id: str, added: Mapping[str, int]) -> None:
    """What was added is taken back where the message is before the boundary. The session is held: nobody moves that meanwhile."""
    if not any(added.values()):
        return
    marker = db.row(_MARKERS, row_id=session_id)
    place = None if marker is None else db.row(_PLACE, row_id=message_id)
    if marker is not None and place is not None and place < (marker[2], marker[0]):
        recompute(db, session_id)


def has_steps(db: Statements, message_id: str) -> bool:
    """Whether the store counts this message itself: then its `usage` is ours, whatever the stream says."""
    return db.row(_HAS_STEPS, row_id=message_id) is not None


def recompute(db: Statements, session_id: str) -> None:
    """The rollups anew: the usage of the visible assistant messages from the compaction boundary on. Cost is never reduced."""
    db.row(_HOLD, row_id=session_id)  # whoever adds to them meanwhile does it before what is read here, or after what is written
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


def newest_marker(db: Statements, session_id: str) -> tuple[str, str | None] | None:
    """(message id, tail_start_id) of the latest visible compaction."""
    row = db.row(_MARKERS, row_id=session_id)
    if row is None:
        return None
    data = row[1].get("data") if isinstance(row[1], dict) else None
    tail = data.get("tail_start_id") if isinstance(data, dict) else None
    return row[0], tail if isinstance(tail, str) else None


def since_boundary(shown: list[UIMessage], marker_id: str, tail_start_id: str | None) -> list[UIMessage]:
    """What the model sees after a compaction: the summary, [tail start … marker), and everything after the marker."""
    ids = [message["id"] for message in shown]
    if marker_id not in ids:
        return shown
    at = ids.index(marker_id)
    start = ids.index(tail_start_id) if tail_start_id in ids[:at] else at
    return [shown[at], *shown[start:at], *shown[at + 1 :]]


def usage_of(metadata: Mapping[str, Any]) -> dict[str, int]:
    """The five counters of a message's metadata; whatever is not a count is 0."""
    usage = metadata.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return {name: value if type(value := usage.get(name)) is int and 0 < value <= _MOST else 0 for name in COUNTERS}
