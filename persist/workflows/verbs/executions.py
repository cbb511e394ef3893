"""Executions: one row per phase of a run or turn of a chat, with its usage and outcome; counts of them by UTC day and hour."""

from datetime import datetime, timedelta
from typing import Any, Literal, Unpack

from sqlalchemy import Column, ColumnElement, MetaData, Table, and_, bindparam, case, cast, func, not_, or_, select, update

from persist.db.expressions.keyset import behind_newest
from persist.db.expressions.numbers import Size, utc_bucket, whole_total
from persist.db.expressions.upsert import insert_where, merging
from persist.db.operations.keyset import BoundedCount, Keyset, counting
from persist.db.schema.base import SCHEMA_TOKEN, flag_set
from persist.db.schema.column_types import Float64, FreeText, Int64, Label
from persist.db.schema.instants import IsoMs
from persist.db.statements.prepared import LIMIT, Statement, among, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.arguments import check_flag, must_exist, optional_count, optional_label
from persist.db.values.clock import as_utc
from persist.db.values.frozen import construct
from persist.db.values.pages import Page, PagedList, check_limit
from persist.errors import InvalidValue, NotFound
from persist.workflows.models import IS_UNFINISHED, USED_TOKENS, executions, runs
from persist.workflows.schemas import ChatThread, Execution, ExecutionStats, Lease, StatsBucket, StopReason
from persist.workflows.storage.execution_rows import (
    EXECUTION,
    FINISH,
    SET_OUTPUT,
    ExecutionTotals,
    count_usage,
    end_values,
    get_execution,
    hold_run_of,
    holds,
    insert_execution,
    inserted_row,
)
from persist.workflows.storage.queue import WRITABLE, guard_values
from persist.workflows.storage.run_rows import get_run
from persist.workflows.verbs import phases

_E = executions.c
_LONGEST_SEARCH = 1000
_FILTERS: dict[str, ColumnElement[bool]] = {
    "skill": _E.skill == param("skill"),
    "trigger_id": _E.trigger_id == param("trigger_id"),
    # Not LIKE: on SQLite it stops at the first NUL of a text. lower() of both databases maps only ASCII letters here.
    "error_contains": func.replace(func.lower(_E.error), bindparam("error_contains", type_=FreeText()), "")
    != func.lower(_E.error),
}
_NEWEST = Keyset("workflows.executions", EXECUTION, (_E.started_at, _E.id), _FILTERS)
_RUNNING = Statement(select(*EXECUTION.columns).where(IS_UNFINISHED))  # with ORDER BY, older SQLites would scan every execution
_started = func.coalesce(_E.started_at, _E.started_at)
"""No index has this order: unfinished executions, which are few, are found by their partial index."""
_RUNNING_PAGES = Keyset(
    "workflows.executions.running", EXECUTION, (_started, _E.id), where=[IS_UNFINISHED], places=("started_at", "id"), exact=True
)
_OF_RUN = Statement(
    select(*EXECUTION.columns)
    .where(
        or_(
            _E.workflow_run_id == param("run_id"),
            _E.workflow_run_id.is_(None)
            & (_E.trigger_id == param("of_trigger"))
            & (_E.skill >= param("from_skill"))
            & (_E.skill < param("to_skill")),
        )
    )
    .order_by(_E.started_at, _E.id)
)


# Chats as their executions show them: one thread per messaging session, even when the session's row is gone.
#
# The table is named, not imported: domains do not import each other, and only the latest message is read from it.
_messages = Table(
    "messaging_messages",
    MetaData(schema=SCHEMA_TOKEN),
    Column("id", Int64()),
    Column("session_id", Label()),
    Column("role", Label()),
    Column("timestamp", IsoMs()),
    Column("content", FreeText()),
)
_M = _messages.c
_last_used = func.max(func.coalesce(_E.finished_at, _E.started_at))
_last = _last_used.label("last_activity_at")
_said = (
    select(_M.content)
    .where(_M.session_id == _E.trigger_id, _M.role == "assistant")
    .order_by(_M.timestamp.desc(), _M.id.desc())
    .limit(1)
    .scalar_subquery()
)
_THREAD = Values(
    ChatThread,
    executions,
    session_id=_E.trigger_id,
    started_at=func.min(_E.started_at),
    last_activity_at=_last,
    turns=func.count(),
    total_tokens=USED_TOKENS,
    cost_usd=func.coalesce(func.sum(_E.cost_usd), cast(0, Float64())),
    last_message=_said,
)
_THREADS = select(*_THREAD.columns).where(_E.skill == "chat").group_by(_E.trigger_id)
_NEWEST_THREADS = Statement(_THREADS.order_by(_last.desc(), _E.trigger_id).limit(LIMIT))
_EARLIER = Statement(
    _THREADS.having(behind_newest((_last_used, _E.trigger_id), ("at", "of_trigger")))
    .order_by(_last.desc(), _E.trigger_id)
    .limit(LIMIT)
)
_ONE = Statement(_THREADS.where(_E.trigger_id == param("of_trigger")))


def thread(work: UnitOfWork, trigger_id: str) -> ChatThread | None:
    """The thread of one messaging session; None if it had no turn."""
    row = work.row(_ONE, of_trigger=work.label("trigger_id", trigger_id))
    return _THREAD.optional(row)


List = list
_id = param("row_id")
_INSERT_HELD = {
    leased: Statement(
        merging(insert_where(executions, and_(runs.c.id == param("hold_id"), writable), of=runs, lock=True)).returning(
            *EXECUTION.columns
        )
    )
    for leased, writable in WRITABLE.items()
}
_SET_SESSION = Statement(update(executions).where(_E.id == _id).values(session_id=param("value")))
_OUTPUT = Statement(select(_E.output_text).where(_E.id == _id))


class Executions(Repository[F]):
    """`tx.workflows.executions`. Only the verbs `output_text` and `phase_output` read the column `output_text`."""

    @writes
    def start(
        self,
        *,
        trigger_type: str,
        trigger_id: str,
        skill: str,
        repo: str | None = None,
        issue_number: int | None = None,
        workflow_run_id: str | None = None,
        session_id: str | None = None,
        id: str | None = None,
        lease: Lease | None = None,
        idempotency_key: str | None = None,
    ) -> Execution:
        """Begin a phase or chat turn. `skill` is `workflow:phase` or `chat`. Raises Conflict if the id is taken.

        Of all calls with one `idempotency_key` the first begins an execution, the others return it. Raises Conflict if it is of
        another skill, trigger or run.

        Raises NotFound for an unknown run. Only a new row needs its run: stored executions may name runs that are gone.
        """
        work = self._work
        run_id = optional_label("workflow_run_id", workflow_run_id)
        fields = {
            "trigger_type": work.label("trigger_type", trigger_type),
            "trigger_id": work.label("trigger_id", trigger_id),
            "skill": work.label("skill", skill),
            "repo": optional_label("repo", repo),
            "issue_number": optional_count("issue_number", issue_number),
            "workflow_run_id": run_id,
            "session_id": optional_label("session_id", session_id),
            "idempotency_key": optional_label("idempotency_key", idempotency_key),
            "started_at": work.now(),
        }
        row_id = work.runtime.ids.mint("exe") if id is None else work.label("id", id)
        if run_id is not None and (held := guard_values(work, run_id, lease)) is not None:
            row = work.returned(
                _INSERT_HELD[lease is not None], hold_id=run_id, at=work.now(), **held, **inserted_row(row_id, fields)
            )
            if row is not None:
                return EXECUTION(row)
        if not hold_run_of(work, run_id, lease) and run_id is not None:
            raise NotFound("workflow run", run_id)
        return insert_execution(work, row_id, fields)

    @writes
    def set_session(self, id: str, session_id: str) -> bool:
        """Set the session log of a running execution, so that the log can be watched."""
        work = self._work
        return bool(work.run_last(_SET_SESSION, row_id=work.label("id", id), value=work.label("session_id", session_id)))

    @writes
    def finish(
        self, id: str, *, success: bool, error: str | None = None, lease: Lease | None = None, **totals: Unpack[ExecutionTotals]
    ) -> bool:
        """End the execution, now; after several calls the last one counts.

        `success`, `error`, `turns` and `duration_ms` are set as given, None included; every other column keeps its
        value where it is omitted. `totals`: see ExecutionTotals.
        """
        work = self._work
        values = end_values(work, success=success, error=error, totals=totals)
        if not holds(work, id, lease):
            return False
        count_usage(work, id, values, totals)
        work.run_last(FINISH, row_id=id, **values)
        return True

    @writes
    def set_output(self, id: str, text: str, *, lease: Lease | None = None) -> bool:
        """Store the execution's final text, which the next iteration reads by this id."""
        work = self._work
        body = work.body("text", text)
        if not holds(work, id, lease):
            return False
        return bool(work.run_last(SET_OUTPUT, row_id=id, value=body))

    @reads
    def output_text(self, id: str) -> str | None:
        """The execution's final text, None if it has none. Raises NotFound."""
        row = must_exist(self._work.row(_OUTPUT, row_id=self._work.label("id", id)), "execution", id)
        return None if row[0] is None else str(row[0])

    @reads
    def phase_output(self, skill: str, trigger_id: str, *, workflow_run_id: str | None = None) -> str | None:
        """The text of the newest finished execution that has one, in the scope of `should_run`."""
        return phases.output(self._work, skill, trigger_id, workflow_run_id)

    @writes
    def skip(self, skill: str, trigger_id: str, *, reason: str, workflow_run_id: str | None = None) -> Execution:
        """Record a skipped phase: finished, not failed, without success. A trigger that ends in `#N` gives the issue number."""
        work = self._work
        now = work.now()
        trigger = work.label("trigger_id", trigger_id)
        fields = {
            "trigger_id": trigger,
            "skill": work.label("skill", skill),
            "issue_number": phases.issue_number(trigger),
            "workflow_run_id": optional_label("workflow_run_id", workflow_run_id),
            "error": work.body("reason", reason),
            "success": False,
            "stop_reason": StopReason.SKIPPED,
            "started_at": now,
            "finished_at": now,
        }
        return insert_execution(work, work.runtime.ids.mint("exe"), fields | {"trigger_type": phases.trigger_type(work, trigger)})

    @reads
    def should_run(self, skill: str, trigger_id: str, *, workflow_run_id: str | None = None) -> Literal["running", "done", "run"]:
        """Whether a phase runs already, is done, or has to run. With `workflow_run_id` only that run's executions count."""
        running, done = phases.standing(self._work, skill, trigger_id, workflow_run_id)
        return "running" if running else "done" if done else "run"

    @writes
    def mark_stale(self, trigger_id: str, *, skill: str | None = None, reason: str = "stale: container no longer running") -> int:
        """Fail the trigger's unfinished executions; return how many."""
        return phases.mark_stale(self._work, trigger_id, skill, reason)

    @writes
    def veto_latest(self, skill: str, trigger_id: str, reason: str, *, workflow_run_id: str | None = None) -> bool:
        """Turn the newest execution into a failure, so that the phase runs again; `finished_at` stays."""
        return phases.veto(self._work, skill, trigger_id, reason, workflow_run_id)

    @reads
    def get(self, id: str) -> Execution:
        """The execution, without its output text. Raises NotFound."""
        return get_execution(self._work, id)

    @reads
    def list(
        self,
        *,
        skill: str | None = None,
        trigger_id: str | None = None,
        error_contains: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Execution]:
        """Executions, newest started first. `error_contains` is literal text; ASCII letters match in either case."""
        work = self._work
        filters: dict[str, str] = {}
        if skill is not None:
            filters["skill"] = work.label("skill", skill)
        if trigger_id is not None:
            filters["trigger_id"] = work.label("trigger_id", trigger_id)
        if error_contains is not None:
            sought = work.label("error_contains", error_contains)
            if len(sought) > _LONGEST_SEARCH:
                raise InvalidValue("error_contains", f"it is longer than {_LONGEST_SEARCH} characters.")
            filters["error_contains"] = sought.encode().lower().decode()  # ASCII letters alone
        return _NEWEST.page(work, limit, after, filters)

    @reads
    def running(self, *, limit: int | None = None, after: str | None = None) -> PagedList[Execution]:
        """Every unfinished execution, newest first; with a `limit` a page, whose `cursor` is `after` for the next one."""
        if limit is None and after is None:
            found = map(EXECUTION, self._work.rows(_RUNNING))
            return PagedList(sorted(found, key=lambda execution: (execution.started_at, execution.id), reverse=True))
        return _RUNNING_PAGES.pages(self._work, limit, after)

    @reads
    def for_run(self, workflow_run_id: str) -> List[Execution]:
        """The run's executions, oldest first; also those of older files that name no run but share its trigger and workflow."""
        run = get_run(self._work, workflow_run_id)
        # every skill `workflow:…`, compared as bytes: LIKE has wildcards, and on SQLite ignores case
        first, beyond = f"{run.workflow_name}:", f"{run.workflow_name};"
        rows = self._work.rows(_OF_RUN, run_id=run.id, of_trigger=run.trigger_id, from_skill=first, to_skill=beyond)
        return [EXECUTION(row) for row in rows]

    @reads
    def consecutive_failures(self, skill: str) -> int:
        """How many of the last ten finished executions did not succeed, counted from the newest to the first success.

        Phases that were skipped or deferred by a quota are not counted: they do not tell whether the skill works.
        """
        return phases.failures(self._work, skill)

    @reads
    def stats(self, *, exact: bool = True) -> ExecutionStats:
        """Counts over all executions, which read every one.

        With `exact=False` at most 10,000 are read for a number, and 1,000 for one of a skill or trigger type. A greater number is
        an estimate of Postgres's planner, or on SQLite the 10,000 or 1,000 themselves, for "at least". Whether there is such a
        number is in the result's `exact`.
        """
        return totals(self._work) if check_flag("exact", exact) else estimates(self._work)

    @reads
    def daily_stats(self, days: int) -> List[StatsBucket]:
        """The last `days` UTC days, today included, oldest first; a day without executions has zeros."""
        return buckets(self._work, "day", "days", days)

    @reads
    def hourly_stats(self, hours: int) -> List[StatsBucket]:
        """The last `hours` UTC hours, the current one included, oldest first; an hour without executions has zeros."""
        return buckets(self._work, "hour", "hours", hours)

    @reads
    def is_running(self, skill: str, trigger_id: str) -> bool:
        """Whether an execution of the trigger is unfinished."""
        return phases.standing(self._work, skill, trigger_id, None)[0]

    @reads
    def is_completed(self, skill: str, trigger_id: str) -> bool:
        """Whether an execution of the trigger succeeded."""
        return phases.standing(self._work, skill, trigger_id, None)[1]

    @reads
    def recent(self, skill: str, *, limit: int = 10) -> List[Execution]:
        """The newest executions of a skill."""
        return _NEWEST.first(self._work, check_limit(limit), {"skill": self._work.label("skill", skill)})

    @reads
    def chat_thread(self, trigger_id: str) -> ChatThread | None:
        """The thread of one chat, by its messaging session."""
        return thread(self._work, trigger_id)

    @reads
    def chat_threads(self, *, limit: int = 20, before: str | None = None) -> List[ChatThread]:
        """Chats, the latest activity first. `before`: a session id, to list the chats after it. Raises NotFound."""
        work, maximum = self._work, check_limit(limit)
        if before is None:
            return [_THREAD(row) for row in work.rows(_NEWEST_THREADS, limit=maximum)]
        last = must_exist(thread(work, work.label("before", before)), "chat thread", before)
        return [_THREAD(row) for row in work.rows(_EARLIER, limit=maximum, at=last.last_activity_at, of_trigger=before)]


_STEPS: dict[Size, tuple[timedelta, str]] = {"day": (timedelta(days=1), "%Y-%m-%d"), "hour": (timedelta(hours=1), "%Y-%m-%dT%H")}
MAX_BUCKETS = 10_000


def _where(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return cast(func.coalesce(func.sum(case((condition, 1), else_=0)), 0), Int64())


_finished = _E.finished_at.is_not(None)
_succeeded = flag_set(_E.success)
_unsuccessful = or_(_E.success.is_(None), not_(_succeeded))
_COUNTS: dict[str, ColumnElement[Any]] = {
    "total": func.count(),
    "succeeded": _where(and_(_finished, _succeeded)),
    "failed": _where(and_(_finished, _unsuccessful, or_(_E.stop_reason.is_(None), not_(among(_E.stop_reason, StopReason))))),
    "skipped": _where(and_(_finished, _unsuccessful, _E.stop_reason == StopReason.SKIPPED)),
    "deferred": _where(and_(_finished, _unsuccessful, _E.stop_reason == StopReason.DEFERRED)),
    "running": _where(not_(_finished)),
    "input_tokens": whole_total(_E.input_tokens),
    "output_tokens": whole_total(_E.output_tokens),
    "total_tokens": USED_TOKENS,
    "cost_usd": func.coalesce(func.sum(_E.cost_usd), cast(0, Float64())),
}


def _buckets(size: Size) -> Statement:
    bucket = utc_bucket(_E.started_at, size).label("bucket")
    window = (_E.started_at >= param("since"), _E.started_at < param("until"))
    return Statement(select(bucket, *_COUNTS.values()).where(*window).group_by(bucket))


_BUCKETS: dict[Size, Statement] = {"day": _buckets("day"), "hour": _buckets("hour")}
_TOTALS = Statement(
    select(func.count(), _where(_E.started_at >= param("midnight")), _where(not_(_finished))).select_from(executions)
)
_BY_SKILL = Statement(select(_E.skill, func.count()).group_by(_E.skill).order_by(_E.skill))
_BY_TRIGGER = Statement(select(_E.trigger_type, func.count()).group_by(_E.trigger_type).order_by(_E.trigger_type))
MOST_COUNTED, MOST_OF_GROUP = 10_000, 1_000
"""How many executions are counted at most where counts need not be exact: in all, and of a skill or trigger type."""
_ALL = BoundedCount(select(_E.id), MOST_COUNTED)
_TODAY = BoundedCount(select(_E.id).where(_E.started_at >= param("midnight")), MOST_COUNTED)
_UNFINISHED = BoundedCount(select(_E.id).where(IS_UNFINISHED), MOST_COUNTED)
_OF_SKILL = BoundedCount(select(_E.id).where(_E.skill == param("name")), MOST_OF_GROUP)
_OF_TRIGGER = BoundedCount(select(_E.id).where(_E.trigger_type == param("name")), MOST_OF_GROUP)


def _groups(column: ColumnElement[Any]) -> Statement:
    first = select(func.min(column).label("name")).cte("names", recursive=True)
    following = select(func.min(column)).where(column > first.c.name).scalar_subquery()
    names = first.union_all(select(following).where(first.c.name.is_not(None)))
    number = counting(select(_E.id).where(column == names.c.name), MOST_OF_GROUP, of=names).scalar_subquery()
    return Statement(select(names.c.name, number).where(names.c.name.is_not(None)).order_by(names.c.name))


_SKILLS, _TRIGGERS = _groups(_E.skill), _groups(_E.trigger_type)


def totals(work: UnitOfWork) -> ExecutionStats:
    """Counts over all executions; `today` begins at midnight in the process's time zone."""
    with work.batch() as batch:
        counts = batch.row(_TOTALS, midnight=_midnight(work))
        by_skill, by_trigger = batch.rows(_BY_SKILL), batch.rows(_BY_TRIGGER)
    row = counts.result
    assert row is not None
    return construct(
        ExecutionStats,
        {
            "total": row[0],
            "today": row[1],
            "running": row[2],
            "by_skill": dict(by_skill.result),
            "by_trigger": dict(by_trigger.result),
            "exact": True,
        },
    )


def estimates(work: UnitOfWork) -> ExecutionStats:
    """The counts of `totals`, for which no more than a bounded number of executions is read."""
    since = _midnight(work)
    total, today, unfinished = _ALL.count(work), _TODAY.count(work, midnight=since), _UNFINISHED.count(work)
    by_skill = {name: _OF_SKILL.counted(work, found, name=name) for name, found in work.rows(_SKILLS)}
    by_trigger = {name: _OF_TRIGGER.counted(work, found, name=name) for name, found in work.rows(_TRIGGERS)}
    numbers = (total, today, unfinished, *by_skill.values(), *by_trigger.values())
    return construct(
        ExecutionStats,
        {
            "total": total,
            "today": today,
            "running": unfinished,
            "by_skill": by_skill,
            "by_trigger": by_trigger,
            "exact": all(number.exact for number in numbers),
        },
    )


def _midnight(work: UnitOfWork) -> datetime:
    # without a zone in between: on the days when clocks change, midnight is not in the zone of now
    midnight = work.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None).astimezone()
    return as_utc("midnight", midnight)


def buckets(work: UnitOfWork, size: Size, path: str, number: int) -> list[StatsBucket]:
    """Exactly `number` buckets, oldest first; the last one contains now."""
    check_limit(number, maximum=MAX_BUCKETS, path=path)
    step, picture = _STEPS[size]
    last = _start(size, work.now())
    first = last - (number - 1) * step
    found = {row[0]: row[1:] for row in work.rows(_BUCKETS[size], since=first, until=last + step)}
    nothing = (0,) * (len(_COUNTS) - 1) + (0.0,)
    return [
        construct(StatsBucket, {"bucket": name, **dict(zip(_COUNTS, found.get(name, nothing), strict=True))})
        for name in ((first + index * step).strftime(picture) for index in range(number))
    ]


def _start(size: Size, at: datetime) -> datetime:
    hour = at.replace(minute=0, second=0, microsecond=0)
    return hour.replace(hour=0) if size == "day" else hour
