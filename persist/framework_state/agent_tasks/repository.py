"""`tx.agent_tasks`: tasks by owner and id, of which a save writes the pieces that changed; and whom to notify of a task."""

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, select, update

from persist.db.expressions.keyset import behind
from persist.db.expressions.upsert import insert_where, merging, upsert
from persist.db.operations.keyset import Keyset
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import Domain, F, Repository, on_demand, reads, writes
from persist.db.unreadable.excerpts import Shortened
from persist.db.values.arguments import check_flag
from persist.db.values.pages import Page, check_limit
from persist.errors import Conflict, InvalidValue
from persist.framework_state.agent_tasks import schemas
from persist.framework_state.agent_tasks.models import pieces, tasks, webhooks

List = list
_TRIES = 8
_T, _P = tasks.c, pieces.c
_TASK = Values(schemas.AgentTask, tasks)
_LATEST = Keyset("agent_tasks.latest", _TASK, (_T.updated_at, _T.id))
_KEY = (_P.kind, _P.position, _P.part)
_this = (_T.owner == param("of_owner"), _T.task_id == param("of_task"))
_its_id = select(_T.id).where(*_this).scalar_subquery()
_of_row = _P.task == param("row_id")
_same_piece = (_of_row, _P.kind == param("of_kind"), _P.position == param("of_position"), _P.part == param("of_part"))
_LOCK = Statement(select(_T.id, _T.state, _T.final, _T.head).where(*_this).with_for_update())
_DIGESTS = Statement(select(*_KEY, _P.digest).where(_P.task == _its_id))
_GET = Statement(select(*_TASK.columns, _T.head).where(*_this))
_PIECES = Statement(select(_P.task, *_KEY, _P.data).where(_P.task == _its_id).order_by(*_KEY))
_BY_ID = Statement(select(*_TASK.columns, _T.head).where(_T.id == param("row_id")))
_PIECES_BY_ID = Statement(select(_P.task, *_KEY, _P.data).where(_of_row).order_by(*_KEY))
_exists = exists().where(_T.id == param("of_row"))
_MAKE = Statement(merging(insert_where(tasks, ~exists().where(*_this)), "owner", "task_id"))
_ADD = Statement(insert_where(pieces, _exists))
_CHANGE = Statement(update(pieces).where(*_same_piece).values(digest=param("new_digest"), data=param("new_data")))
_REMOVE = Statement(delete(pieces).where(*_same_piece))
_UPDATE = Statement(
    update(tasks)
    .where(_T.id == param("row_id"))
    .values(
        **{name: param(f"new_{name}") for name in ("context_id", "state", "final", "status_key", "head")}, updated_at=param("at")
    )
)
_DELETE_PIECES = Statement(delete(pieces).where(_P.task == _its_id))
_DELETE = Statement(delete(tasks).where(*_this, ~exists().where(_P.task == _T.id)))
"""A task that another transaction has made in this very moment stays: it comes after."""


@cache
def _listed(what: str, *given: str) -> Statement:
    chosen = [_T.owner == param("of_owner"), *(_T[name] == param(name) for name in ("context_id", "state") if name in given)]
    if "since" in given:
        chosen.append(_T.status_key >= bindparam("since", type_=_T.status_key.type))
    if what == "count":
        return Statement(select(func.count()).select_from(tasks).where(*chosen))
    if "after" in given:
        chosen.append(behind((_T.status_key, _T.task_id), ("after_key", "after_id"), descending=True))
    page = select(*_TASK.columns, _T.head).where(*chosen).order_by(_T.status_key.desc(), _T.task_id.desc()).limit(LIMIT)
    if what == "tasks":
        return Statement(page)
    ids = page.with_only_columns(_T.id).subquery()
    return Statement(select(_P.task, *_KEY, _P.data).where(_P.task.in_(select(ids.c.id))).order_by(_P.task, *_KEY))


class AgentTasks(Repository[F]):
    """`tx.agent_tasks.tasks`. An owner sees its own tasks alone; two owners may have tasks of the same id."""

    @writes
    def save(
        self,
        owner: str,
        task_id: str,
        *,
        state: str,
        head: bytes,
        pieces: Sequence[schemas.Piece],
        context_id: str = "",
        status_key: str = "",
        final: bool = False,
    ) -> int:
        """Store a task as it stands; the number of pieces written. Those that are stored already are not written again.

        `final`: the state is an end. Raises Conflict for a task that ended in another state: it stays as it is.
        """
        work = self._work
        key = _key(self, owner, task_id)
        now = work.now()
        new = {
            "context_id": schemas.label_of(work, "context_id", context_id, empty=True),
            "state": schemas.label_of(work, "state", state),
            "final": check_flag("final", final),
            "status_key": schemas.label_of(work, "status_key", status_key, empty=True),
            "head": schemas.checked_bytes("head", head),
        }
        given = schemas.checked_pieces(work, pieces)
        digests = {place: blake2b(data, digest_size=16).digest() for place, data in given.items()}
        for _ in range(_TRIES):
            with work.batch() as batch:
                found = batch.row(_LOCK, **key)
                known = batch.rows(_DIGESTS, **key)
            if found.result is None:
                id = work.runtime.ids.mint("atk")
                row = {"id": id, "owner": key["of_owner"], "task_id": key["of_task"], "created_at": now, "updated_at": now, **new}
                with work.batch(last=True) as batch:
                    made = batch.run(_MAKE, **key, **row)
                    for place, data in given.items():
                        batch.run(_ADD, of_row=id, **_piece(id, place, digests[place], data))
                if made.result:
                    return len(given)
                continue  # another transaction made it
            id, old_state, was_final, _ = found.result
            if was_final is True and old_state != new["state"]:
                raise Conflict(f"The task {task_id!r} has ended as {old_state!r} and cannot become {state!r}.")
            return self._change(id, now, new, given, digests, {tuple(row[:3]): bytes(row[3]) for row in known.result})
        raise Conflict("The task was made and deleted again and again; try again.")

    def _change(
        self,
        id: str,
        now: Any,
        new: dict[str, Any],
        given: dict[tuple[str, int, int], bytes],
        digests: dict[tuple[str, int, int], bytes],
        known: dict[tuple[Any, ...], bytes],
    ) -> int:
        written = 0
        with self._work.batch(last=True) as batch:
            batch.run(_UPDATE, row_id=id, at=now, **{f"new_{name}": value for name, value in new.items()})
            for place, data in given.items():
                if known.get(place) == digests[place]:
                    continue
                written += 1
                if place in known:
                    batch.run(_CHANGE, **_place(id, place), new_digest=digests[place], new_data=data)
                else:
                    batch.run(_ADD, of_row=id, **_piece(id, place, digests[place], data))
            for place in known.keys() - given.keys():
                batch.run(_REMOVE, **_place(id, place))
        return written

    @reads
    def get(self, owner: str, task_id: str) -> schemas.LoadedTask | None:
        """The task with its pieces; None if this owner has none of this id."""
        key = _key(self, owner, task_id)
        with self._work.batch() as batch:
            found = batch.row(_GET, **key)
            below = batch.rows(_PIECES, **key)
        return None if found.result is None else _loaded([found.result], below.result)[0]

    @reads
    def list(
        self,
        owner: str,
        *,
        context_id: str | None = None,
        state: str | None = None,
        since: str | None = None,
        after: Sequence[str] | None = None,
        limit: int = 50,
    ) -> schemas.TaskPage:
        """An owner's tasks by status key and id, greatest first, and how many there are in all.

        `since`: only those whose status key is not less. `after`: the status key and the id of the last task of the page before.
        """
        work = self._work
        named = {"context_id": context_id, "state": state, "since": since}
        filters = {name: schemas.label_of(work, name, value) for name, value in named.items() if value is not None}
        page: dict[str, Any] = {}
        if after is not None:
            if not isinstance(after, tuple) or len(after) != 2:
                raise InvalidValue("after", "expected a pair of a status key and an id.")
            page = {
                "after_key": schemas.label_of(work, "after", after[0], empty=True),
                "after_id": schemas.label_of(work, "after", after[1]),
            }
        limit = check_limit(limit)
        values = {"of_owner": schemas.label_of(work, "owner", owner, empty=True), **filters}
        given = (*filters, *(["after"] if page else []))
        with work.batch() as batch:
            rows = batch.rows(_listed("tasks", *given), **values, **page, limit=limit + 1)
            total = batch.row(_listed("count", *filters), **values)
            below = batch.rows(_listed("pieces", *given), **values, **page, limit=limit)
        assert total.result is not None
        shown, parts = rows.result[:limit], below.result
        if isinstance(rows.result, Shortened):  # the pieces are those of the first tasks, unreadable ones among them
            parts = [piece for id, *_ in shown for piece in work.rows(_PIECES_BY_ID, row_id=id)]
        return schemas.TaskPage(_loaded(shown, parts), total.result[0], len(rows.result) > limit)

    @reads
    def latest(self, *, limit: int = 20, after: str | None = None) -> Page[schemas.AgentTask]:
        """Tasks of every owner, the one saved last first. Pass a page's `cursor` as `after` for the next page."""
        return _LATEST.page(self._work, limit, after)

    @reads
    def by_id(self, id: str) -> schemas.LoadedTask:
        """The task in the row with this id, for any owner. Raises NotFound."""
        key = {"row_id": self._work.label("id", id)}
        with self._work.batch() as batch:
            found = batch.row(_BY_ID, **key)
            below = batch.rows(_PIECES_BY_ID, **key)
        return _loaded([found.must_exist("agent task", id)], below.result)[0]

    @writes
    def delete(self, owner: str, task_id: str) -> bool:
        """Delete a task with its pieces; False if this owner has none of this id."""
        key = _key(self, owner, task_id)
        with self._work.batch(last=True) as batch:
            batch.lock(_LOCK, **key)  # what others are saving is there or waits
            batch.run(_DELETE_PIECES, **key)
            deleted = batch.run(_DELETE, **key)
        return deleted.result == 1


def _key(repository: Repository[Any], owner: str, task_id: str) -> dict[str, str]:
    work = repository._work
    return {"of_owner": schemas.label_of(work, "owner", owner, empty=True), "of_task": schemas.label_of(work, "task_id", task_id)}


def _place(id: str, place: tuple[Any, ...]) -> dict[str, Any]:
    return {"row_id": id, "of_kind": place[0], "of_position": place[1], "of_part": place[2]}


def _piece(id: str, place: tuple[str, int, int], digest: bytes, data: bytes) -> dict[str, Any]:
    return {"task": id, "kind": place[0], "position": place[1], "part": place[2], "digest": digest, "data": data}


def _loaded(rows: Sequence[Row], below: Sequence[Row]) -> List[schemas.LoadedTask]:
    by_task: dict[str, List[schemas.Piece]] = {}
    for task, kind, position, part, data in below:
        by_task.setdefault(task, []).append(schemas.Piece(kind, position, part, bytes(data)))
    found = []
    for row in rows:
        task = _TASK(row[:-1])
        found.append(schemas.LoadedTask(task, bytes(row[-1]), by_task.get(task.id, [])))
    return found


_W = webhooks.c
_WEBHOOK = Values(schemas.Webhook, webhooks)
_of_task = _W.task_id == param("of_task")
_of_owner = _W.owner == param("of_owner")
_SET_WEBHOOK = Statement(upsert(webhooks, "task_id", "owner", "id"))
_DELETE_WEBHOOKS = Statement(delete(webhooks).where(_of_task, _of_owner))
_DELETE_WEBHOOK = Statement(delete(webhooks).where(_of_task, _of_owner, _W.id == param("row_id")))


@cache
def _webhooks(of_one: bool) -> Statement:
    query = select(*_WEBHOOK.columns).where(_of_task).order_by(_W.place)
    return Statement(query.where(_of_owner) if of_one else query)


class AgentTaskWebhooks(Repository[F]):
    """`tx.agent_tasks.webhooks`. The task need not be there."""

    @writes
    def set(self, task_id: str, id: str, *, owner: str, data: bytes) -> None:
        """Store an owner's webhook of a task, in place of the one with this id. It is then the last of the list."""
        work = self._work
        given = {"task_id": task_id, "owner": owner, "id": id}
        row = {name: schemas.label_of(work, name, value, empty=True) for name, value in given.items()}
        stored = schemas.checked_bytes("data", data)
        with work.batch(last=True) as batch:
            batch.run(_SET_WEBHOOK, **row, place=work.runtime.ids.mint("whk"), updated_at=work.now(), data=stored)

    @reads
    def list(self, task_id: str, *, owner: str | None = None) -> List[schemas.Webhook]:
        """The webhooks of a task, the one set last at the end: an owner's, or with None every owner's."""
        work = self._work
        key = {"of_task": schemas.label_of(work, "task_id", task_id, empty=True)}
        if owner is not None:
            key["of_owner"] = schemas.label_of(work, "owner", owner, empty=True)
        return [_WEBHOOK(row) for row in work.rows(_webhooks(owner is not None), **key)]

    @writes
    def delete(self, task_id: str, *, owner: str, id: str | None = None) -> int:
        """Delete an owner's webhook of a task, or with None all of them; the number deleted."""
        work = self._work
        key = {
            "of_task": schemas.label_of(work, "task_id", task_id, empty=True),
            "of_owner": schemas.label_of(work, "owner", owner, empty=True),
        }
        one = None if id is None else schemas.label_of(work, "id", id, empty=True)
        with work.batch(last=True) as batch:
            deleted = batch.run(_DELETE_WEBHOOKS, **key) if one is None else batch.run(_DELETE_WEBHOOK, **key, row_id=one)
        return deleted.result


class AgentTaskDomain(Domain[F]):
    """Tasks of agents, and the webhooks that report their changes."""

    tasks = on_demand(AgentTasks[F])
    webhooks = on_demand(AgentTaskWebhooks[F])
