"""`tx.agent_tasks.webhooks`: whom to notify of a task's changes. Each owner sets its own."""

from functools import cache

from sqlalchemy import delete, select

from persist.agent_tasks.models import webhooks
from persist.agent_tasks.schemas import Webhook
from persist.agent_tasks.validation import checked_bytes, label_of
from persist.db.expressions.upsert import upsert
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes

List = list
_W = webhooks.c
_WEBHOOK = Values(Webhook, webhooks)
_of_task = _W.task_id == param("of_task")
_of_owner = _W.owner == param("of_owner")

_SET = Statement(upsert(webhooks, "task_id", "owner", "id"))
_DELETE = Statement(delete(webhooks).where(_of_task, _of_owner))
_DELETE_ONE = Statement(delete(webhooks).where(_of_task, _of_owner, _W.id == param("row_id")))


@cache
def _listing(of_one: bool) -> Statement:
    query = select(*_WEBHOOK.columns).where(_of_task).order_by(_W.place)
    return Statement(query.where(_of_owner) if of_one else query)


class AgentTaskWebhooks(Repository[F]):
    """`tx.agent_tasks.webhooks`. The task need not be there."""

    @writes
    def set(self, task_id: str, id: str, *, owner: str, data: bytes) -> None:
        """Store an owner's webhook of a task, in place of the one with this id. It is then the last of the list."""
        work = self._work
        row = {
            "task_id": label_of(work, "task_id", task_id, empty=True),
            "owner": label_of(work, "owner", owner, empty=True),
            "id": label_of(work, "id", id, empty=True),
        }
        stored = checked_bytes("data", data)
        with work.batch(last=True) as batch:
            batch.run(_SET, **row, place=work.runtime.ids.mint("whk"), updated_at=work.now(), data=stored)

    @reads
    def list(self, task_id: str, *, owner: str | None = None) -> List[Webhook]:
        """The webhooks of a task, the one set last at the end: an owner's, or with None every owner's."""
        work = self._work
        key = {"of_task": label_of(work, "task_id", task_id, empty=True)}
        if owner is not None:
            key["of_owner"] = label_of(work, "owner", owner, empty=True)
        return [_WEBHOOK(row) for row in work.rows(_listing(owner is not None), **key)]

    @writes
    def delete(self, task_id: str, *, owner: str, id: str | None = None) -> int:
        """Delete an owner's webhook of a task, or with None all of them; the number deleted."""
        work = self._work
        key = {
            "of_task": label_of(work, "task_id", task_id, empty=True),
            "of_owner": label_of(work, "owner", owner, empty=True),
        }
        one = None if id is None else label_of(work, "id", id, empty=True)
        with work.batch(last=True) as batch:
            deleted = batch.run(_DELETE, **key) if one is None else batch.run(_DELETE_ONE, **key, row_id=one)
        return deleted.result
