"""Token usage of messages and sessions.

A message's usage is in its metadata: added up from recorded steps, or given by the writer of the message. A session's counters
sum `usage_of` over its visible assistant messages since the latest compaction. `recompute` computes them anew;
`counters_of` is what to add when one message changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Required, TypedDict, Unpack

from sqlalchemy import Text, Update, bindparam, case, cast, func, insert, select, update

from persist.chat.models import IS_COMPACTION, VISIBLE, messages, parts, sessions, step_usage
from persist.chat.schemas import Role, StepUsage, UIMessage
from persist.chat.storage.folding import stored_object
from persist.chat.storage.statements import LOCK_SESSION, SET_METADATA
from persist.db.changes.batch import Batch, Pending, StatementRunner
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.arguments import Amount, check_cost
from persist.db.values.json import encode
from persist.errors import InvalidValue, NotFound
from persist.usage.schemas import Source
from persist.usage.writing import FIGURES, MICROS, Call, Window, begin, end, micros, named_model, write

COMPACTION = "data-compaction"
COUNTERS = ("input", "output", "reasoning", "cache_read", "cache_write")
_COLUMNS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cache_read", "cache_write")
_NOTHING = dict.fromkeys(COUNTERS, 0)
_MAX = 2**53
_S, _M, _P = sessions.c, messages.c, parts.c
_id = param("row_id")
_INSERT = Statement(insert(step_usage))
_this = bindparam("this", type_=step_usage.c.step.type)
_STEPS = Statement(select(func.count(), func.count(case((step_usage.c.step == _this, 1)))).where(step_usage.c.message_id == _id))
HAS_STEPS = Statement(select(step_usage.c.step).where(step_usage.c.message_id == _id).limit(1))
_own_session = select(_M.session_id).where(_M.id == _id).scalar_subquery()
LOCK_OWN_SESSION = Statement(select(_S.id).where(_S.id == _own_session).with_for_update(key_share=True))
_WHOSE = Statement(select(_S.agent, _S.owner, _S.model_json).where(_S.id == _own_session), unreadable=OnUnreadable.LEAVE_OUT)
_METADATA = Statement(select(_M.session_id, _M.role, cast(_M.metadata_json, Text)).where(_M.id == _id).with_for_update())
_more = {
    **{_S[column]: _S[column] + bindparam(f"add_{column}", type_=_S[column].type) for column in _COLUMNS},
    _S.total_tokens: _S.total_tokens + bindparam("add_total", type_=_S.total_tokens.type),
}
_spent = {_S.cost_usd: _S.cost_usd + bindparam("add_cost", type_=_S.cost_usd.type), _S.updated_at: param("at")}


def adding_counters() -> Update:
    """An UPDATE that adds to a session's counters, by the parameters that `counters_of` returns."""
    return update(sessions).where(_S.id == _id).values(_more)


ADD_COUNTERS = Statement(adding_counters())
_SPEND = Statement(update(sessions).where(_S.id == _id).values({**_more, **_spent}))
SET_COUNTERS = Statement(
    update(sessions)
    .where(_S.id == _id)
    .values({**{_S[column]: bindparam(f"set_{column}") for column in _COLUMNS}, _S.total_tokens: param("set_total")})
)
VISIBLE_MESSAGES = Statement(
    select(_M.id, _M.role, cast(_M.metadata_json, Text)).where(_M.session_id == _id, VISIBLE).order_by(_M.created_at, _M.id)
)
NEWEST_MARKER = Statement(
    select(_P.message_id, _P.data_json)
    .join(messages, _M.id == _P.message_id)
    .where(_P.session_id == _id, IS_COMPACTION, VISIBLE)
    .order_by(_M.created_at.desc(), _M.id.desc(), _P.index.desc())
    .limit(1)
)
MARKERS = Statement(
    select(_P.message_id, _P.data_json).where(_P.session_id == _id, IS_COMPACTION).order_by(_P.message_id, _P.index)
)
"""All compactions of a session, also hidden ones."""
_other = messages.alias()
_BOUNDARY = Statement(
    select(_M.created_at, _M.id, select(_other.c.created_at).where(_other.c.id == param("other_id")).scalar_subquery())
    .join(parts, _M.id == _P.message_id)
    .where(_P.session_id == select(_other.c.session_id).where(_other.c.id == param("other_id")).scalar_subquery())
    .where(IS_COMPACTION, VISIBLE)
    .order_by(_M.created_at.desc(), _M.id.desc())
    .limit(1)
)


class StepTokens(TypedDict, total=False):
    """What a step used, as the SDK reports it: its input includes tokens read from and written to the cache. Cost: US dollars."""

    input_tokens: Required[int]
    output_tokens: Required[int]
    reasoning_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: Amount


def step_counts(**tokens: Unpack[StepTokens]) -> StepUsage:
    """The counts to store for those the SDK reports. Raises InvalidValue, also for another name and for one that is missing."""
    if unknown := tokens.keys() - StepTokens.__annotations__:
        raise InvalidValue(min(unknown), f"there is no such argument; there are {', '.join(StepTokens.__annotations__)}.")
    if missing := StepTokens.__required_keys__ - tokens.keys():
        raise InvalidValue(min(missing), "it is missing.")
    counts = {name: tokens.get(name, 0) for name in StepTokens.__annotations__ if name != "cost_usd"}
    for name, value in counts.items():
        if type(value) is not int:
            raise InvalidValue(name, f"expected a whole number of tokens, got {type(value).__name__}.")
        if not 0 <= value <= _MAX:
            raise InvalidValue(name, "expected a whole number of tokens, 0 or more.")
    cached, taken = tokens.get("cache_read_tokens", 0), tokens.get("cache_write_tokens", 0)
    return StepUsage(
        input=max(0, tokens["input_tokens"] - cached - taken),
        output=tokens["output_tokens"],
        reasoning=tokens.get("reasoning_tokens", 0),
        cache_read=cached,
        cache_write=taken,
        cost_usd=check_cost("cost_usd", tokens.get("cost_usd", 0.0)),
    )


def check_step(step: object) -> int:
    """Check a step number. Raises InvalidValue."""
    if type(step) is not int or not 0 <= step < 2**31:
        raise InvalidValue("step", "expected a step number, 0 or more.")
    return step


def record_step(
    db: StatementRunner, session_id: str, message_id: str, step: int, usage: StepUsage, now: datetime, window: Window
) -> bool:
    """`add_step` as a transaction of its own, named `usage.recorded` in the event log."""
    db.begin_event("usage.recorded", session_id)
    return add_step(db, message_id, step, usage, now, window)


def add_step(db: StatementRunner, message_id: str, step: int, usage: StepUsage, now: datetime, window: Window) -> bool:
    """Add a step's usage to step, message and session, and as a call of a model. False if the step was recorded before."""
    with db.batch() as batch:
        row = batch.row(_METADATA, row_id=message_id)
        batch.lock(LOCK_OWN_SESSION, row_id=message_id)
        steps = batch.row(_STEPS, row_id=message_id, this=step)
        whose = batch.rows(_WHOSE, row_id=message_id)
        boundary = boundary_of(batch, message_id)
    if row.result is None or steps.result is None:
        raise NotFound("message", message_id)
    session_id, role, stored = row.result
    counted, recorded = steps.result
    if recorded:
        return False
    counts = usage.model_dump()
    metadata = stored_object(db, stored, f"the metadata of message {message_id}")
    old = usage_of(metadata) if counted else dict.fromkeys(COUNTERS, 0)  # usage that the stream sent is not added up
    changed = {**metadata, "usage": {name: old[name] + counts[name] for name in COUNTERS}}
    added = _difference(role, metadata, changed)
    compacted = any(added.values()) and is_before(message_id, boundary.result)
    call = _call(session_id, whose.result, metadata, f"step:{message_id}:{step}", usage, now)
    with db.batch() as batch:
        batch.run(_INSERT, message_id=message_id, step=step, created_at=now, **counts)
        batch.run(SET_METADATA, row_id=message_id, metadata=encode(changed), at=now)
        batch.run(_SPEND, row_id=session_id, at=now, add_cost=usage.cost_usd, **added)
        begun = begin(batch, call)  # after the session's own rows: events of the step belong to the stream of the first ones
    end(db, window, call, begun)
    if compacted:
        recompute(db, session_id)
    return True


def add_call(work: UnitOfWork, window: Window, call: Call) -> bool:
    """Write a call of a session that is no step, and add it to the session's figures. False if it was counted before.

    Its cost stays. Its tokens count until the session's are summed up anew, which is over messages alone.
    """
    with work.batch() as batch:
        batch.lock(LOCK_SESSION, row_id=call.source_id)  # before the lock of the scope, as a step takes them
    if not write(work, window, call):
        return False
    figure = {name: call.figures.get(name) or 0 for name in FIGURES}
    reasoning = min(figure["token_reasoning"], figure["token_output"])
    more = (
        figure["token_input"],
        figure["token_output"] - reasoning,
        reasoning,
        figure["token_cache_read"],
        figure["token_cache_write"],
    )
    added = {f"add_{column}": number for column, number in zip(_COLUMNS, more, strict=True)}
    cost = figure["cost_usd_micros"] / MICROS
    work.run(_SPEND, row_id=call.source_id, at=work.now(), add_total=sum(more), add_cost=cost, **added)
    return True


def _call(
    session_id: str, whose: Sequence[Row], metadata: Mapping[str, Any], source: str, usage: StepUsage, now: datetime
) -> Call:
    agent, owner, session_model = whose[0] if whose else ("", None, None)  # of a session that cannot be read
    model, provider = named_model(metadata.get("model"))
    if not model:
        model, provider = named_model(session_model)
    return Call(
        source_kind=Source.SESSION,
        source_id=session_id,
        at=now,
        model=model,
        provider=provider,
        figures={
            "token_input": usage.input,
            "token_output": usage.output + usage.reasoning,  # a call has reasoning as a part of its output
            "token_cache_read": usage.cache_read,
            "token_cache_write": usage.cache_write,
            "token_reasoning": usage.reasoning,
            "cost_usd_micros": micros(usage.cost_usd),
        },
        source=source,
        agent=agent,
        owner=owner or "",
    )


def counters_of(role: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """What a message's changed metadata adds to the session's counters, if it is after the latest compaction; or nothing."""
    if "usage" not in after and "usage" not in before:
        return {}
    added = _difference(role, before, after)
    return added if any(added.values()) else {}


def _difference(role: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """What to add to the session's counters if the message is after the latest compaction."""
    old, new = (usage_of(one) if _counts(role, one) else _NOTHING for one in (before, after))
    added = {f"add_{column}": new[name] - old[name] for column, name in zip(_COLUMNS, COUNTERS, strict=True)}
    return {**added, "add_total": sum(added.values())}


def _counts(role: str, metadata: Mapping[str, Any]) -> bool:
    return role == Role.ASSISTANT and metadata.get("hidden_at") is None and metadata.get("queued_at") is None


def boundary_of(batch: Batch, message_id: str) -> Pending[Row | None]:
    """What `is_before` needs of the message's session. With the session locked, the latest compaction cannot move."""
    return batch.row(_BOUNDARY, other_id=message_id)


def is_before(message_id: str, boundary: Row | None) -> bool:
    """Whether the message is before the latest compaction of its session."""
    return boundary is not None and boundary[2] is not None and (boundary[2], message_id) < (boundary[0], boundary[1])


def recompute(db: StatementRunner, session_id: str) -> None:
    """Recompute a session's counters from its visible assistant messages since the latest compaction. Cost is never reduced."""
    with db.batch() as batch:
        batch.lock(LOCK_SESSION, row_id=session_id)  # others add to the counters before this read or after this write
        rows = batch.rows(VISIBLE_MESSAGES, row_id=session_id)
        marker = batch.row(NEWEST_MARKER, row_id=session_id)
    visible = visible_values(db, rows.result)
    db.run(SET_COUNTERS, row_id=session_id, **totals_of(visible, marker_value(marker.result)))


def newest_of(markers: Iterable[Sequence[Any]], visible: Sequence[UIMessage]) -> tuple[str, str | None] | None:
    """(message id, tail_start_id) of the latest compaction in the visible messages, given rows of MARKERS; None without one."""
    places = {message["id"]: place for place, message in enumerate(visible)}
    shown = [row for row in markers if row[0] in places]
    return marker_value(max(reversed(shown), key=lambda row: places[row[0]], default=None))


def visible_values(db: StatementRunner, rows: Iterable[Row]) -> list[UIMessage]:
    """The messages in rows of VISIBLE_MESSAGES, without their parts."""
    return [
        {"id": id, "role": str(role), "metadata": stored_object(db, stored, f"the metadata of message {id}")}
        for id, role, stored in rows
    ]


def totals_of(visible: list[UIMessage], marker: tuple[str, str | None] | None) -> dict[str, int]:
    """The parameters of SET_COUNTERS for a session with these visible messages and this latest compaction."""
    counted = since_boundary(visible, *marker) if marker else visible
    totals = dict.fromkeys(COUNTERS, 0)
    for message in counted:
        if message["role"] == "assistant":
            usage = usage_of(message["metadata"])
            for name in COUNTERS:
                totals[name] += usage[name]
    values = {f"set_{column}": totals[name] for column, name in zip(_COLUMNS, COUNTERS, strict=True)}
    return {**values, "set_total": sum(totals.values())}


def marker_value(row: Sequence[Any] | None) -> tuple[str, str | None] | None:
    """(message id, tail_start_id) of a compaction, given its message's id and its part; None without one."""
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
