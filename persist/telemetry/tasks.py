"""`tx.telemetry.tasks`: a workspace's queue. A claim, whose growing number fences out late writes, may be for a lease."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, literal_column, null, or_, select, update
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import FromClause

from persist.db.expressions.locking import advisory_lock
from persist.db.expressions.upsert import insert_missing
from persist.db.operations.keyset import FirstReadable, Keyset
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.own_scope import ScopedValues, public_scope, resolve_scope
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_choice, check_count, check_list, check_timedelta, optional_count
from persist.db.values.clock import instant_after, instant_before
from persist.db.values.json import Json
from persist.db.values.pages import PagedList
from persist.errors import InvalidValue, LeaseLost, shown
from persist.telemetry.models import tasks
from persist.telemetry.schemas import Task, TaskState
from persist.telemetry.windows import second, second_or_now
from persist.usage.spending import ask_used_up, budget_keys

_T = tasks.c
_TASK = ScopedValues(Task, tasks, "workspace_id")
_REQUIRED = ("id", "source_id", "kind", "title")
_GIVEN = (*_REQUIRED, "body", "links", "labels", "discovered_at")
_of_owner = _T.workspace_id == param("owner")
_this_task = (_of_owner, _T.id == param("row_id"))
_others = tasks.alias("others")
_TOKENS = 2**63


def _has_expired(table: FromClause) -> ColumnElement[bool]:
    return and_(table.c.state == TaskState.IN_PROGRESS, table.c.claim_expires_at <= param("given_now"))


_held = (*_this_task, _T.state == TaskState.IN_PROGRESS, _T.claim_token == param("held_token"))
_unexpired = or_(_T.claim_expires_at.is_(None), _T.claim_expires_at > param("given_now"))
_ADD = Statement(insert_missing(tasks, "workspace_id", "id"))
_LOCK_QUEUE = Statement(select(advisory_lock()))
_queue = select(*_TASK.columns).where(_of_owner, _T.state == TaskState.QUEUED).order_by(_T.discovered_at, _T.id)
_NEXT, _FIRST = FirstReadable(_queue), Statement(_queue.limit(literal_column("1")))
_expired = select(*_TASK.columns).where(_of_owner, _has_expired(tasks)).order_by(_T.discovered_at, _T.id)
_NEXT_EXPIRED, _FIRST_EXPIRED = FirstReadable(_expired), Statement(_expired.limit(literal_column("1")))
_BUSY = (
    select(func.count())
    .select_from(_others)
    .where(
        _others.c.workspace_id == param("owner"),
        _others.c.state == TaskState.IN_PROGRESS,
        or_(_others.c.claim_expires_at.is_(None), _others.c.claim_expires_at > param("given_now")),
    )
    .scalar_subquery()
)
_CLAIM = Statement(
    update(tasks)
    .where(
        *_this_task,
        _T.claim_token == param("held_token"),
        or_(_T.state == TaskState.QUEUED, _has_expired(tasks)),
        bindparam("maximum", type_=Int64()) > _BUSY,
    )
    .values(
        state=TaskState.IN_PROGRESS,
        instance_name=param("instance"),
        claimed_at=param("at"),
        claim_token=param("token"),
        claim_expires_at=param("until"),
    )
    .returning(*_TASK.columns)
)
_RENEW = Statement(update(tasks).where(*_held, _unexpired).values(claim_expires_at=param("until")).returning(*_TASK.columns))
_CLAIM_OF = Statement(select(_T.state, _T.claim_token).where(*_this_task))
_end = update(tasks).values(state=param("to_state"), completed_at=param("at"), outcome=param("text"), claim_expires_at=null())
_CANCEL = Statement(_end.where(*_this_task, _T.state == TaskState.QUEUED))
_END = Statement(_end.where(*_this_task, _T.state == TaskState.IN_PROGRESS, _T.claim_expires_at.is_(None)))
_END_HELD = Statement(_end.where(*_held, _unexpired))
_RETRY = Statement(
    update(tasks)
    .where(*_this_task, _T.state == TaskState.FAILED)
    .values(
        state=TaskState.QUEUED,
        instance_name=null(),
        claimed_at=null(),
        claim_expires_at=null(),
        completed_at=null(),
        outcome=null(),
    )
)
_PURGE = Statement(delete(tasks).where(_of_owner, _T.state == TaskState.COMPLETED, _T.completed_at < param("before")))
_LISTED = Keyset(
    "telemetry.tasks",
    _TASK,
    (_T.discovered_at, _T.id),
    {"owner": _of_owner, "in_state": _T.state == param("in_state")},
    descending=False,
    exact=True,
)


class Tasks(Repository[F]):
    """`tx.telemetry.tasks`. `workspace_id` None: the workspace that owns the file."""

    @writes
    def poll(self, discovered: Sequence[Mapping[str, Any]], *, workspace_id: str | None = None) -> int:
        """Queue discovered tasks with new `id`s; the number queued. Known tasks are unchanged, whatever their state.

        Each has `id`, `source_id`, `kind`, `title` and optionally `body`, the lists `links` and `labels`, and `discovered_at`.
        """
        work = self._work
        owner = resolve_scope(work, "workspace_id", workspace_id)
        now = work.now()
        found = check_list("discovered", discovered)
        rows = [_row(work, f"discovered[{index}]", item, now) for index, item in enumerate(found)]
        with work.batch(last=True) as batch:
            added = [batch.run(_ADD, workspace_id=owner, **row) for row in rows]
        return sum(one.result for one in added)

    @writes
    def claim(
        self, instance_name: str, *, max_parallel: int = 1, lease: timedelta | None = None, workspace_id: str | None = None
    ) -> Task | None:
        """Claim the oldest task whose claim has expired, else the oldest queued one; None if there is none.

        None, too, if a budget of the workspace or instance is used up, and if `max_parallel` of the workspace's tasks are in
        progress; those with an expired claim do not count. `lease`: the claim expires after it, unless it is renewed, and its
        task can only be ended with `token`, the `claim_token` of the returned task. Without it the claim does not expire.
        """
        work = self._work
        owner = resolve_scope(work, "workspace_id", workspace_id)
        instance = work.label("instance_name", instance_name)
        if check_count("max_parallel", max_parallel) == 0:
            raise InvalidValue("max_parallel", "expected 1 or more.")
        until, now = None if lease is None else _end_of(work, lease), work.now()
        with work.batch() as batch:
            batch.lock(_LOCK_QUEUE, lock_key=f"persist tasks of {owner}")
            expired = batch.row(_FIRST_EXPIRED, owner=owner, given_now=now)
            queued = batch.row(_FIRST, owner=owner)
            keys = budget_keys(workspace=public_scope(work, "workspace_id", owner), instance=instance)
            used_up = ask_used_up(batch, keys, now)
        if used_up.result is not None:
            return None
        row = expired.result
        if row is not None and any(map(is_unreadable, row)):
            row = _NEXT_EXPIRED.find(work, owner=owner, given_now=now)
        if row is None:
            row = queued.result
            if row is not None and any(map(is_unreadable, row)):
                row = _NEXT.find(work, owner=owner)
        if row is None:
            return None
        task = _TASK.public(work, row)
        with work.batch(last=True) as batch:
            claimed = batch.returned(
                _CLAIM,
                owner=owner,
                row_id=task.id,
                held_token=task.claim_token,
                token=(task.claim_token + 1) % _TOKENS,
                instance=instance,
                at=second("clock", work.now()),
                maximum=max_parallel,
                given_now=now,
                until=until,
            )
        return None if claimed.result is None else _TASK.public(work, claimed.result)

    @writes
    def renew(self, id: str, lease: timedelta, *, token: int, workspace_id: str | None = None) -> Task:
        """Let a claim expire `lease` from now on. `token`: the `claim_token` of the task that `claim` returned.

        Raises LeaseLost if the claim has expired, if its task has ended, and if another instance has claimed it since.
        """
        work = self._work
        values = {"owner": resolve_scope(work, "workspace_id", workspace_id), "row_id": work.label("id", id)}
        until, held = _end_of(work, lease), check_count("token", token)
        with work.batch(last=True) as batch:
            renewed = batch.returned(_RENEW, **values, held_token=held, given_now=work.now(), until=until)
            found = batch.row(_CLAIM_OF, **values)
        if renewed.result is None:
            _check_claim(id, held, found.result)
            raise _lost(id, held, "there is no such task in progress: it has ended, or it was never claimed.")
        return _TASK.public(work, renewed.result)

    @writes
    def complete(self, id: str, *, outcome: str | None = None, token: int | None = None, workspace_id: str | None = None) -> bool:
        """Set a task in progress to completed. False, and nothing changes, if it is in another state or unknown.

        `token`: the `claim_token` of the task that `claim` returned; a claim with a lease requires it. Raises LeaseLost without
        it there, if that claim has expired, and if another instance has claimed the task since.
        """
        return self._finish(id, TaskState.COMPLETED, outcome, token, workspace_id)

    @writes
    def fail(self, id: str, *, outcome: str | None = None, token: int | None = None, workspace_id: str | None = None) -> bool:
        """Fail a task in progress, until `retry`; False in any other state. `token`, and LeaseLost, as in `complete`."""
        return self._finish(id, TaskState.FAILED, outcome, token, workspace_id)

    @writes
    def retry(self, id: str, *, workspace_id: str | None = None) -> bool:
        """Queue a failed task again, by its `discovered_at`. False, and nothing changes, if it is in another state or unknown."""
        work = self._work
        owner = resolve_scope(work, "workspace_id", workspace_id)
        with work.batch(last=True) as batch:
            changed = batch.run(_RETRY, owner=owner, row_id=work.label("id", id))
        return bool(changed.result)

    @writes
    def cancel(self, id: str, *, workspace_id: str | None = None) -> bool:
        """Set a queued task to cancelled. False, and nothing changes, if it is in another state or unknown."""
        work = self._work
        values = {"owner": resolve_scope(work, "workspace_id", workspace_id), "row_id": work.label("id", id)}
        with work.batch(last=True) as batch:
            at = second("clock", work.now())
            changed = batch.run(_CANCEL, **values, to_state=TaskState.CANCELLED, at=at, text=None)
        return bool(changed.result)

    @reads
    def list(
        self, *, state: str | None = None, workspace_id: str | None = None, limit: int | None = None, after: str | None = None
    ) -> PagedList[Task]:
        """All tasks, or a state's, by `discovered_at`, then `id`. With a `limit` a page, whose `cursor` is the next `after`."""
        work = self._work
        owner = resolve_scope(work, "workspace_id", workspace_id)
        values = {} if state is None else {"in_state": check_choice("state", state, TaskState)}
        return _LISTED.pages(work, limit, after, {"owner": owner, **values}, make=partial(_TASK.public, work))

    @writes
    def purge(self, older_than: timedelta, *, workspace_id: str | None = None) -> int:
        """Delete tasks completed longer than `older_than` ago; the number deleted. Their sources may discover them again."""
        work = self._work
        owner = resolve_scope(work, "workspace_id", workspace_id)
        before = instant_before(work.now(), check_timedelta("older_than", older_than))
        with work.batch(last=True) as batch:
            deleted = batch.run(_PURGE, owner=owner, before=before)
        return deleted.result

    def _finish(self, id: str, to: TaskState, outcome: str | None, token: int | None, workspace_id: str | None) -> bool:
        work = self._work
        values = {"owner": resolve_scope(work, "workspace_id", workspace_id), "row_id": work.label("id", id)}
        held = optional_count("token", token)
        text = None if outcome is None else work.body("outcome", outcome)
        end: dict[str, Any] = {**values, "to_state": to, "at": second("clock", work.now()), "text": text}
        with work.batch(last=True) as batch:
            if held is None:
                changed = batch.run(_END, **end)
            else:
                changed = batch.run(_END_HELD, **end, held_token=held, given_now=work.now())
            found = batch.row(_CLAIM_OF, **values)
        if not changed.result:
            _check_claim(id, held, found.result)
        return bool(changed.result)


def _check_claim(id: str, token: int | None, found: Row | None) -> None:
    """Raises LeaseLost if nothing was written because of the claim of a task, and not because of its state."""
    if found is None:
        return
    state, current = found
    if token is not None and token != current:
        raise _lost(id, token, "another claim has followed this one.")
    if state == TaskState.IN_PROGRESS:
        missing = "it was claimed with a lease, and only who gives the token of that claim may end it."
        raise _lost(id, token, missing if token is None else "the claim has expired.")


def _lost(id: str, token: int | None, reason: str) -> LeaseLost:
    return LeaseLost(id, token, reason, kind="task")


def _end_of(work: UnitOfWork, lease: timedelta) -> datetime:
    return instant_after("lease", work.now(), check_timedelta("lease", lease, zero=False))


def _row(work: UnitOfWork, path: str, item: object, now: datetime) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise InvalidValue(path, f"expected an object, got {type(item).__name__}.")
    if unknown := sorted(map(shown, item.keys() - set(_GIVEN))):
        raise InvalidValue(path, f"a task has no {', '.join(unknown)}.")
    if missing := [name for name in _REQUIRED if item.get(name) is None]:
        raise InvalidValue(path, f"{', '.join(missing)} is missing.")
    body, at = item.get("body"), item.get("discovered_at")
    return {
        **{name: work.label(f"{path}.{name}", item[name]) for name in ("id", "source_id", "kind")},
        "title": work.body(f"{path}.title", item["title"]),
        "body": None if body is None else work.body(f"{path}.body", body),
        "links": _json_list(work, f"{path}.links", item.get("links")),
        "labels": _json_list(work, f"{path}.labels", item.get("labels")),
        "discovered_at": second_or_now(work, f"{path}.discovered_at", at) if at is not None else now,
        "state": TaskState.QUEUED,
        "instance_name": None,
        "claimed_at": None,
        "claim_token": 0,
        "claim_expires_at": None,
        "completed_at": None,
        "outcome": None,
    }


def _json_list(work: UnitOfWork, path: str, value: Json) -> str:
    if value is not None and not isinstance(value, list):
        raise InvalidValue(path, "expected a list.")
    return work.json(path, [] if value is None else value)
