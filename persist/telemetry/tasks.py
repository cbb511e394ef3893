"""The queue of a workspace: tasks are found by polling, claimed one at a time, and end once."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import bindparam, delete, func, null, select, update

from persist.db.checks import check_count, check_items, check_span, check_word
from persist.db.first import FirstReadable
from persist.db.hot import Hot, Row, param
from persist.db.insert import insert_missing
from persist.db.json import Json
from persist.db.own import own_scope, shown_scope
from persist.db.repository import Repository, reads, writes
from persist.db.turns import turn
from persist.db.types import Whole
from persist.db.values import build
from persist.db.work import Work
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
_mine = _T.workspace_id == param("owner")
_this = (_mine, _T.id == param("row_id"))
_also = tasks.alias("others")

_ADD = Hot(insert_missing(tasks, "workspace_id", "id"))
_TURN = Hot(select(turn()))
_NEXT = FirstReadable(select(*_COLUMNS).where(_mine, _T.state == TaskState.QUEUED).order_by(_T.discovered_at, _T.id))
_BUSY = (
    select(func.count())
    .select_from(_also)
    .where(_also.c.workspace_id == param("owner"), _also.c.state == TaskState.IN_PROGRESS)
    .scalar_subquery()
)
_CLAIM = Hot(
    update(tasks)
    .where(*_this, _T.state == TaskState.QUEUED, bindparam("most", type_=Whole()) > _BUSY)
    .values(state=TaskState.IN_PROGRESS, instance_name=param("instance"), claimed_at=param("at"))
)
_END = Hot(
    update(tasks)
    .where(*_this, _T.state == param("from_state"))
    .values(state=param("to_state"), completed_at=param("at"), outcome=param("text"))
)
_RETRY = Hot(
    update(tasks)
    .where(*_this, _T.state == TaskState.FAILED)
    .values(state=TaskState.QUEUED, instance_name=null(), claimed_at=null(), completed_at=null(), outcome=null())
)
_PURGE = Hot(delete(tasks).where(_mine, _T.state == TaskState.COMPLETED, _T.completed_at < param("before")))


@cache
def _listing(state: bool) -> Hot:
    query = select(*_COLUMNS).where(_mine).order_by(_T.discovered_at, _T.id)
    return Hot(query.where(_T.state == param("in_state")) if state else query)


class Tasks(Repository):
    """`tx.telemetry.tasks`. `workspace_id` None: the file's own."""

    @writes
    def poll(self, discovered: Sequence[Mapping[str, Any]], *, workspace_id: str | None = None) -> int:
        """Queue the tasks that are new by their `id`; how many. Those that are known stay as they are, failed ones failed.

        Each has `id`, `source_id`, `kind`, `title`, and may have `body`, `links` and `labels` (lists), `discovered_at`.
        """
        work = self._work
        owner = own_scope(work, "workspace_id", workspace_id)
        now = work.now()
        found = check_items("discovered", discovered)
        rows = [_row(work, f"discovered[{index}]", item, now) for index, item in enumerate(found)]
        return sum(work.run(_ADD, workspace_id=owner, **row) for row in rows)

    @writes
    def claim(self, instance_name: str, *, max_parallel: int = 1, workspace_id: str | None = None) -> Task | None:
        """Take the oldest queued task; None if there is none, or if `max_parallel` of the workspace are in progress already."""
        work = self._work
        owner = own_scope(work, "workspace_id", workspace_id)
        instance = work.label("instance_name", instance_name)
        if check_count("max_parallel", max_parallel) == 0:
            raise InvalidValue("max_parallel", "expected 1 or more.")
        work.row(_TURN, turn=f"persist tasks of {owner}")
        row = _NEXT.find(work, owner=owner)
        if row is None:
            return None
        task, at = _task(work, row), second("clock", work.now())
        if not work.run(_CLAIM, owner=owner, row_id=task.id, instance=instance, at=at, most=max_parallel):
            return None
        return task.model_copy(update={"state": TaskState.IN_PROGRESS, "instance_name": instance, "claimed_at": at})

    @writes
    def complete(self, id: str, *, outcome: str | None = None, workspace_id: str | None = None) -> bool:
        """In progress becomes completed; False for anything else."""
        return self._end(id, TaskState.IN_PROGRESS, TaskState.COMPLETED, outcome, workspace_id)

    @writes
    def fail(self, id: str, *, outcome: str | None = None, workspace_id: str | None = None) -> bool:
        """In progress becomes failed, until somebody says `retry`; False for anything else."""
        return self._end(id, TaskState.IN_PROGRESS, TaskState.FAILED, outcome, workspace_id)

    @writes
    def retry(self, id: str, *, workspace_id: str | None = None) -> bool:
        """Failed becomes queued again, at the place its discovery gives it; False for anything else."""
        work = self._work
        return bool(work.run(_RETRY, owner=own_scope(work, "workspace_id", workspace_id), row_id=work.label("id", id)))

    @writes
    def cancel(self, id: str, *, workspace_id: str | None = None) -> bool:
        """Queued becomes cancelled; False for anything else."""
        return self._end(id, TaskState.QUEUED, TaskState.CANCELLED, None, workspace_id)

    @reads
    def list(self, *, state: str | None = None, workspace_id: str | None = None) -> List[Task]:
        """All of them, or those in a state, in the order of the queue: by `discovered_at`, then `id`."""
        work = self._work
        owner = own_scope(work, "workspace_id", workspace_id)
        values = {} if state is None else {"in_state": check_word("state", state, TaskState)}
        return [_task(work, row) for row in work.rows(_listing(state is not None), owner=owner, **values)]

    @writes
    def purge(self, older_than: timedelta, *, workspace_id: str | None = None) -> int:
        """Delete those that were completed longer ago; how many. Their sources may discover them again."""
        work = self._work
        owner = own_scope(work, "workspace_id", workspace_id)
        span = check_span("older_than", older_than)
        try:
            before = work.now() - span
        except OverflowError:
            return 0  # nothing is as old as that
        return work.run(_PURGE, owner=owner, before=before)

    def _end(self, id: str, before: TaskState, after: TaskState, outcome: str | None, workspace_id: str | None) -> bool:
        work = self._work
        owner = own_scope(work, "workspace_id", workspace_id)
        values = {"owner": owner, "row_id": work.label("id", id), "from_state": before, "to_state": after}
        text = None if outcome is None else work.body("outcome", outcome)
        return bool(work.run(_END, **values, at=second("clock", work.now()), text=text))


def _row(work: Work, path: str, item: object, now: datetime) -> dict[str, Any]:
    """A new task's columns, but for its workspace."""
    if not isinstance(item, Mapping):
        raise InvalidValue(path, f"expected an object, got {type(item).__name__}.")
    if strange := sorted(map(shown, item.keys() - set(_GIVEN))):
        raise InvalidValue(path, f"a task has no {', '.join(strange)}.")
    if missing := [name for name in _REQUIRED if item.get(name) is None]:
        raise InvalidValue(path, f"{', '.join(missing)} is missing.")
    body, at = item.get("body"), item.get("discovered_at")
    return {
        **{name: work.label(f"{path}.{name}", item[name]) for name in ("id", "source_id", "kind")},
        "title": work.body(f"{path}.title", item["title"]),
        "body": None if body is None else work.body(f"{path}.body", body),
        "links": _listed(work, f"{path}.links", item.get("links")),
        "labels": _listed(work, f"{path}.labels", item.get("labels")),
        "discovered_at": second_or_now(work, f"{path}.discovered_at", at) if at is not None else now,
        "state": TaskState.QUEUED,
        "instance_name": None,
        "claimed_at": None,
        "completed_at": None,
        "outcome": None,
    }


def _listed(work: Work, path: str, value: Json) -> str:
    if value is not None and not isinstance(value, list):
        raise InvalidValue(path, "expected a list.")
    return work.json(path, [] if value is None else value)


def _task(work: Work, row: Row) -> Task:
    fields = dict(zip(_FIELDS, row, strict=True))
    fields["workspace_id"] = shown_scope(work, "workspace_id", fields["workspace_id"])
    return build(Task, fields)
