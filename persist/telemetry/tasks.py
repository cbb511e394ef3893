"""`tx.telemetry.tasks`: a workspace's task queue. Tasks are discovered by polling, claimed one at a time, and end once."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import bindparam, delete, func, literal_column, null, select, update

from persist.db.expressions.locking import advisory_lock
from persist.db.expressions.upsert import insert_missing
from persist.db.schema.column_types import Int64
from persist.db.statements.prepared import Row, Statement, param
from persist.db.transactions.first_readable import FirstReadable
from persist.db.transactions.own_scope import public_scope, resolve_scope
from persist.db.transactions.repository import Repository, reads, writes
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import is_unreadable
from persist.db.values.arguments import check_choice, check_count, check_list, check_timedelta
from persist.db.values.frozen import construct
from persist.db.values.json import Json
from persist.errors import InvalidValue
from persist.quoting import shown
from persist.telemetry.instants import second, second_or_now
from persist.telemetry.models import tasks
from persist.telemetry.schemas import Task, TaskState

List = list
_T = tasks.c
_FIELDS = tuple(Task.model_fields)
_COLUMNS = tuple(_T[name] for name in _FIELDS)
_REQUIRED = ("id", "source_id", "kind", "title")
_GIVEN = (*_REQUIRED, "body", "links", "labels", "discovered_at")
_of_owner = _T.workspace_id == param("owner")
_this_task = (_of_owner, _T.id == param("row_id"))
_others = tasks.alias("others")

_ADD = Statement(insert_missing(tasks, "workspace_id", "id"))
_LOCK_QUEUE = Statement(select(advisory_lock()))
_queue = select(*_COLUMNS).where(_of_owner, _T.state == TaskState.QUEUED).order_by(_T.discovered_at, _T.id)
_NEXT, _FIRST = FirstReadable(_queue), Statement(_queue.limit(literal_column("1")))
_BUSY = (
    select(func.count())
    .select_from(_others)
    .where(_others.c.workspace_id == param("owner"), _others.c.state == TaskState.IN_PROGRESS)
    .scalar_subquery()
)
_CLAIM = Statement(
    update(tasks)
    .where(*_this_task, _T.state == TaskState.QUEUED, bindparam("maximum", type_=Int64()) > _BUSY)
    .values(state=TaskState.IN_PROGRESS, instance_name=param("instance"), claimed_at=param("at"))
)
_END = Statement(
    update(tasks)
    .where(*_this_task, _T.state == param("from_state"))
    .values(state=param("to_state"), completed_at=param("at"), outcome=param("text"))
)
_RETRY = Statement(
    update(tasks)
    .where(*_this_task, _T.state == TaskState.FAILED)
    .values(state=TaskState.QUEUED, instance_name=null(), claimed_at=null(), completed_at=null(), outcome=null())
)
_PURGE = Statement(delete(tasks).where(_of_owner, _T.state == TaskState.COMPLETED, _T.completed_at < param("before")))


@cache
def _listing(state: bool) -> Statement:
    query = select(*_COLUMNS).where(_of_owner).order_by(_T.discovered_at, _T.id)
    return Statement(query.where(_T.state == param("in_state")) if state else query)


class Tasks(Repository):
    """`tx.telemetry.tasks`. `workspace_id` None: the workspace that owns the file."""

    @writes
    def poll(self, discovered: Sequence[Mapping[str, Any]], *, workspace_id: str | None = None) -> int:
        """Queue discovered tasks with new `id`s; the number queued. Known tasks are unchanged, whatever their state.

        Each is an object with `id`, `source_id`, `kind`, `title` and optionally `body`, `links` and `labels` (lists), and
        `discovered_at`.
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
    def claim(self, instance_name: str, *, max_parallel: int = 1, workspace_id: str | None = None) -> Task | None:
        """Claim the oldest queued task. None if there is none, or if `max_parallel` of the workspace's tasks are in progress."""
        work = self._work
        owner = resolve_scope(work, "workspace_id", workspace_id)
        instance = work.label("instance_name", instance_name)
        if check_count("max_parallel", max_parallel) == 0:
            raise InvalidValue("max_parallel", "expected 1 or more.")
        with work.batch() as batch:
            batch.lock(_LOCK_QUEUE, lock_key=f"persist tasks of {owner}")
            first = batch.row(_FIRST, owner=owner)
        row = first.result
        if row is not None and any(map(is_unreadable, row)):
            row = _NEXT.find(work, owner=owner)
        if row is None:
            return None
        task, at = _task(work, row), second("clock", work.now())
        with work.batch(last=True) as batch:
            claimed = batch.run(_CLAIM, owner=owner, row_id=task.id, instance=instance, at=at, maximum=max_parallel)
        if not claimed.result:
            return None
        return task.model_copy(update={"state": TaskState.IN_PROGRESS, "instance_name": instance, "claimed_at": at})

    @writes
    def complete(self, id: str, *, outcome: str | None = None, workspace_id: str | None = None) -> bool:
        """Set a task in progress to completed. False, and nothing changes, if it is in another state or unknown."""
        return self._end(id, TaskState.IN_PROGRESS, TaskState.COMPLETED, outcome, workspace_id)

    @writes
    def fail(self, id: str, *, outcome: str | None = None, workspace_id: str | None = None) -> bool:
        """Set a task in progress to failed, until `retry`. False, and nothing changes, if it is in another state or unknown."""
        return self._end(id, TaskState.IN_PROGRESS, TaskState.FAILED, outcome, workspace_id)

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
        return self._end(id, TaskState.QUEUED, TaskState.CANCELLED, None, workspace_id)

    @reads
    def list(self, *, state: str | None = None, workspace_id: str | None = None) -> List[Task]:
        """All tasks, or those in a state, in the queue's order: by `discovered_at`, then `id`."""
        work = self._work
        owner = resolve_scope(work, "workspace_id", workspace_id)
        values = {} if state is None else {"in_state": check_choice("state", state, TaskState)}
        return [_task(work, row) for row in work.rows(_listing(state is not None), owner=owner, **values)]

    @writes
    def purge(self, older_than: timedelta, *, workspace_id: str | None = None) -> int:
        """Delete tasks completed longer than `older_than` ago; the number deleted. Their sources may discover them again."""
        work = self._work
        owner = resolve_scope(work, "workspace_id", workspace_id)
        span = check_timedelta("older_than", older_than)
        try:
            before = work.now() - span
        except OverflowError:
            return 0  # nothing is as old as that
        with work.batch(last=True) as batch:
            deleted = batch.run(_PURGE, owner=owner, before=before)
        return deleted.result

    def _end(self, id: str, before: TaskState, after: TaskState, outcome: str | None, workspace_id: str | None) -> bool:
        work = self._work
        owner = resolve_scope(work, "workspace_id", workspace_id)
        values = {"owner": owner, "row_id": work.label("id", id), "from_state": before, "to_state": after}
        text = None if outcome is None else work.body("outcome", outcome)
        with work.batch(last=True) as batch:
            changed = batch.run(_END, **values, at=second("clock", work.now()), text=text)
        return bool(changed.result)


def _row(work: UnitOfWork, path: str, item: object, now: datetime) -> dict[str, Any]:
    """The columns of a new task, except its workspace. InvalidValue names what is wrong with the item."""
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
        "completed_at": None,
        "outcome": None,
    }


def _json_list(work: UnitOfWork, path: str, value: Json) -> str:
    if value is not None and not isinstance(value, list):
        raise InvalidValue(path, "expected a list.")
    return work.json(path, [] if value is None else value)


def _task(work: UnitOfWork, row: Row) -> Task:
    fields = dict(zip(_FIELDS, row, strict=True))
    fields["workspace_id"] = public_scope(work, "workspace_id", fields["workspace_id"])
    return construct(Task, fields)
