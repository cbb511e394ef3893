"""Writing a call, in this order: lock of its scope, call, sums, budgets by key. Other scopes wait only for a shared budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, Self

from sqlalchemy import Text, bindparam, delete, insert, literal, select, type_coerce

from persist.db.changes.batch import Batch, Pending, StatementRunner, known
from persist.db.expressions.locking import advisory_lock
from persist.db.expressions.numbers import has_next, next_number
from persist.db.expressions.upsert import Rule, merging
from persist.db.schema.column_types import LABEL_BYTES, Int64, Label
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import Amount, check_cost, check_count, optional_label
from persist.db.values.clock import as_utc, to_ms
from persist.db.values.escaping import has_half, utf8_size
from persist.errors import Conflict, InvalidValue
from persist.settings import Settings
from persist.usage import spending
from persist.usage.models import calls, rollups
from persist.usage.schemas import Bucket, Of, Source
from persist.usage.spending import bucket_start

TOKENS = ("token_input", "token_output", "token_cache_read", "token_cache_write", "token_reasoning")
FIGURES = (*TOKENS, "cost_usd_micros", "duration_ms")
DIMENSIONS = ("scope", "model", "agent", "owner", "workspace", "workflow")
SUMS = ("calls", "errors", "unpriced", *FIGURES)
MOST = 2**53
"""The highest figure of one call."""
MICROS = 1_000_000
"""The unit in which costs are added up: so many are a US dollar."""
Window = tuple[int, int]
_TRIES = 8
_FIELD_OF = {"key": "source", "workspace_id": "workspace"}
"""The fields of a call whose arguments have other names."""
_C = calls.c
_VALUES = tuple(column.name for column in calls.columns if column.name != "seq")
_NEW = tuple((name, f"new_{name}") for name in _VALUES if name != "occurred_at" and name not in FIGURES)
_NEW_FIGURES = tuple((name, f"new_{name}") for name in FIGURES)
_OF_DIMENSIONS = tuple((name, f"of_{name}") for name in DIMENSIONS)
_OF_FIGURES = tuple((name, f"of_{name}") for name in FIGURES)
_LOCK_SCOPE = Statement(select(advisory_lock()))
_new = merging(
    insert(calls).from_select(
        ["seq", *_VALUES],
        select(next_number(_C.seq), *(bindparam(f"new_{name}", type_=_C[name].type) for name in _VALUES)).where(
            _C.scope == param("of_scope"), has_next(_C.seq)
        ),
    )
)
_ADD = Statement(_new.returning(_C.seq))
"""ON CONFLICT of any key: the source was counted, or a writer that the lock of the scope does not stop has taken the number."""
_ADD_AND_LOOK = Statement(_new.returning(_C.seq, type_coerce(spending.ANY_BUDGET, Int64())))
"""Also whether a budget exists, for the writer of a file, where no other process can set a budget."""
_COUNTED = Statement(select(_C.seq).where(_C.scope == param("of_scope"), _C.source == param("of_source")))
_TRIM = Statement(delete(calls).where(_C.scope == param("of_scope"), _C.seq <= param("until_seq")))
_RULES: dict[str, Rule] = dict.fromkeys(SUMS, "capped_sum")


def _sums_of(bucket: Bucket) -> dict[str, Any]:
    """The row of the sums of that hour or day. Its instant is the parameter of that name; both rows share the others."""
    # Dimensions were checked when they were bound to the call: as plain Text they skip the checks of the Label type.
    row: dict[str, Any] = {
        column.name: bindparam(f"of_{column.name}", type_=Text() if isinstance(column.type, Label) else column.type)
        for column in rollups.columns
    }
    about = {"bucket": literal(bucket, rollups.c.bucket.type), "starts_at": bindparam(bucket, type_=rollups.c.starts_at.type)}
    return row | about


# Both in one statement: its parameters are the same, and a tenth of what it costs is to send it.
_ROLL_UP = Statement(
    merging(
        insert(rollups).values([_sums_of(bucket) for bucket in (Bucket.DAY, Bucket.HOUR)]),
        "group_key",
        "bucket",
        "starts_at",
        **_RULES,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a model that is to be written; see UsageCall. `at`: an instant in UTC."""

    source_kind: Source
    source_id: str
    at: datetime
    model: str
    figures: Mapping[str, int | None]
    source: str | None = None
    provider: str | None = None
    operation: str | None = None
    agent: str = ""
    owner: str = ""
    workspace: str = ""
    workflow: str = ""
    task_id: str | None = None
    run_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    error: str | None = None

    @property
    def scope(self) -> str:
        return f"{self.source_kind}:{self.source_id}"

    @property
    def tokens(self) -> int:
        """The tokens that count for budgets: reasoning is a part of output."""
        return sum(self.figures.get(name) or 0 for name in TOKENS[:-1])

    def budget_keys(self) -> tuple[str, ...]:
        named = {Of.OWNER: self.owner, Of.WORKSPACE: self.workspace, Of.WORKFLOW: self.workflow, Of.AGENT: self.agent}
        keys = [f"{of}:{value}" for of, value in named.items() if value]
        return tuple(sorted([*keys, self.scope] if self.source_kind == Source.INSTANCE else keys))

    @classmethod
    def of(cls, work: UnitOfWork, kind: Source, id: str, at: object, model: str, **given: Any) -> Self:
        """A call of checked arguments; `model` and `id` are checked already. Raises InvalidValue, or PayloadTooLarge."""
        figures = {name: None if (value := given.pop(name, None)) is None else _figure(name, value) for name in FIGURES}
        error = given.pop("error", None)
        labels = {
            _FIELD_OF.get(name, name): None if value is None else optional_label(name, value) for name, value in given.items()
        }
        for name in ("agent", "owner", "workspace", "workflow"):
            labels[name] = labels.get(name) or ""
        return cls(
            source_kind=kind,
            source_id=id,
            at=to_ms(as_utc("at", at)),
            model=model,
            figures=figures,
            error=None if error is None else work.body("error", error),
            **labels,  # type: ignore[arg-type]  # None only where the field takes it
        )


def micros(cost_usd: float | None) -> int | None:
    """A cost in millionths of a US dollar. None: unknown, as is a cost of 0 that nobody gave."""
    return min(MOST, round(cost_usd * MICROS)) if cost_usd else None


def given_micros(cost_usd: Amount | None, cost_usd_micros: object, path: str = "cost_usd") -> object:
    """A cost that is given in dollars or in millionths of them, in these. Raises InvalidValue, also if both are given."""
    if cost_usd is None:
        return cost_usd_micros
    if cost_usd_micros is not None:
        raise InvalidValue(path, f"the cost is given in {path}_micros, too; give one of the two.")
    cost = check_cost(path, cost_usd)
    return round(cost * MICROS) if cost <= MOST / MICROS else MOST + 1


def named_model(model: object) -> tuple[str, str | None]:
    """The name of a model and its provider in what a session or message keeps as its model; empty if it has no name."""
    if isinstance(model, str):
        return _short(model) or "", None
    if not isinstance(model, Mapping):
        return "", None
    return _first(model, "model_id", "modelId", "modelID", "id", "name") or "", _first(
        model, "provider_id", "providerId", "providerID", "provider"
    )


def _first(model: Mapping[str, Any], *names: str) -> str | None:
    return next((found for name in names if (found := _short(model.get(name))) is not None), None)


def _short(value: object) -> str | None:
    if not isinstance(value, str) or not 0 < utf8_size(value) <= LABEL_BYTES or "\x00" in value or has_half(value):
        return None
    return value


def keyed(concurrency_key: str | None) -> dict[str, str]:
    """The dimension that the concurrency key of a run names, if it is the key of a budget: `owner:NAME` and so on."""
    of, _, value = (concurrency_key or "").partition(":")
    return {of: value} if value and of in (Of.OWNER, Of.WORKSPACE, Of.AGENT) else {}


def _figure(name: str, value: object) -> int:
    if (figure := check_count(name, value)) > MOST:
        raise InvalidValue(name, "so much cannot be of one call.")
    return figure


def window_of(settings: Settings) -> Window:
    """How many calls the window of a scope keeps, and how many are written between two trims."""
    return settings.usage_calls_keep, settings.usage_calls_trim_every or max(1, settings.usage_calls_keep // 10)


class BegunCall(NamedTuple):
    """What was asked of the database for a call in a batch that is not sent yet."""

    added: Pending[Row | None]
    limits: Pending[list[Row]]


def begin(batch: Batch, call: Call) -> BegunCall:
    """Begin to write a call in a batch of its verb, which knows that it is not counted yet; `end` follows when that was sent."""
    added = _ask_add(batch, call)
    _roll_up(batch, call)
    return BegunCall(added, _ask_limits(batch, call, added.result if batch.one_writer else None))


def end(db: StatementRunner, window: Window, call: Call, begun: BegunCall) -> None:
    """End what `begin` began. Raises Conflict if others keep writing calls of the scope."""
    added = begun.added.result or _add(db, call)
    if added is None:  # another one had the same source: a step of a message that was deleted and is recorded again
        added = _add(db, replace(call, source=None))
    assert added is not None, "without a source it is written, or the error was raised"
    _settle(db, window, call, added[0], begun.limits.result)


def refuse_unless_counted(db: StatementRunner, call: Call) -> None:
    """Raise BudgetExceeded if a budget of the call is used up, unless the window has the call: a retry uses nothing."""
    exceeded = spending.exceeded(db, call.budget_keys(), call.at)
    if exceeded is not None and (call.source is None or not _counted(db, call)):
        raise exceeded


def write(db: StatementRunner, window: Window, call: Call) -> bool:
    """Write a call. False, and no change, if the window has the source already. Raises Conflict if others keep writing."""
    if call.source is None:
        with db.batch() as batch:
            begun = begin(batch, call)
        end(db, window, call, begun)
        return True
    added = _add(db, call)
    if added is None:
        return False
    with db.batch() as batch:
        _roll_up(batch, call)
        limits = _ask_limits(batch, call, added)
    _settle(db, window, call, added[0], limits.result)
    return True


def _settle(db: StatementRunner, window: Window, call: Call, number: int, limits: Sequence[Row]) -> None:
    keep, every = window
    if number % every == 0 and number > keep:
        db.run(_TRIM, of_scope=call.scope, until_seq=number - keep)
    spending.count(db, limits, call.at, cost=call.figures.get("cost_usd_micros") or 0, tokens=call.tokens)


def _ask_add(batch: Batch, call: Call) -> Pending[Row | None]:
    # Who waited for another's number with sums of its own locked would wait for one who waits for those sums.
    batch.lock(_LOCK_SCOPE, lock_key=f"persist calls of {call.scope}")
    return batch.returned(_ADD_AND_LOOK if batch.one_writer else _ADD, **_values(call))


def _ask_limits(batch: Batch, call: Call, added: Row | None) -> Pending[list[Row]]:
    """The budgets of the call, after its sums were written. `added`: what the statement returned that wrote the call."""
    if batch.one_writer and added is not None and not added[1]:
        return known([])
    return spending.ask(batch, call.budget_keys())


def _add(db: StatementRunner, call: Call) -> Row | None:
    for _ in range(_TRIES):
        with db.batch() as batch:
            added = _ask_add(batch, call)
        if added.result is not None:
            return added.result
        if call.source is not None and _counted(db, call):
            return None
    raise Conflict("Others kept writing calls of the same scope; try again.")


def _counted(db: StatementRunner, call: Call) -> bool:
    return db.row(_COUNTED, of_scope=call.scope, of_source=call.source) is not None


def _roll_up(batch: Batch, call: Call) -> None:
    figures, dimensions = call.figures, {name: getattr(call, name) for name in DIMENSIONS}
    given: dict[str, Any] = {of: dimensions[name] for name, of in _OF_DIMENSIONS}
    for name, of in _OF_FIGURES:
        given[of] = figures.get(name) or 0
    given["of_group_key"], given["of_calls"] = group_key(dimensions), 1
    given["of_errors"], given["of_unpriced"] = int(call.error is not None), int(figures.get("cost_usd_micros") is None)
    batch.run(_ROLL_UP, day=bucket_start(Bucket.DAY, call.at), hour=bucket_start(Bucket.HOUR, call.at), **given)


def group_key(dimensions: Mapping[str, str]) -> str:
    """The digest of what sums are kept apart by."""
    return _digest(tuple(dimensions[name] for name in DIMENSIONS))


@lru_cache(maxsize=1024)
def _digest(values: tuple[str, ...]) -> str:
    text = "".join(f"{len(value)}:{value}" for value in values)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _values(call: Call) -> dict[str, Any]:
    values: dict[str, Any] = {new: getattr(call, name) for name, new in _NEW}
    for name, new in _NEW_FIGURES:
        values[new] = call.figures.get(name)
    values["of_scope"], values["new_occurred_at"] = values["new_scope"], call.at
    return values
