"""Erasing agents' tasks: those of an owner, or of one context, and the webhooks that watch them."""

from sqlalchemy import exists

from persist.agent_tasks.models import pieces, tasks, webhooks
from persist.db.operations.erasing import OWNER, SESSION, Erasable, ErasableRows, Key, Values, equal, holding
from persist.db.transactions.unit_of_work import UnitOfWork

_T, _W = tasks.c, webhooks.c
_OF_SESSION = equal(_T.id, _T.context_id)


class _Webhooks(ErasableRows):
    def find(self, work: UnitOfWork, selector: str, values: Values) -> list[Key]:
        if selector == SESSION:
            return self.keys(work, exists().where(_T.owner == _W.owner, _T.task_id == _W.task_id, _OF_SESSION(values)))
        return super().find(work, selector, values)


ERASABLES: tuple[Erasable, ...] = (
    _Webhooks(webhooks, ("task_id", "owner", "id"), {OWNER: equal(_W.owner)}, own_streams=False, rooted=False),
    ErasableRows(
        tasks,
        ("id",),
        {OWNER: equal(_T.owner), SESSION: _OF_SESSION},
        (holding(pieces, "task"),),
    ),
)
