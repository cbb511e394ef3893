"""Erasing programs: runs that have the id of a session, with or without a row of their own, which a shell may have deleted.

Files of their attachments and of their subagents belong to the folder of the run.
"""

from collections.abc import Sequence

from sqlalchemy import func, select

from persist.db.operations.erasing import SESSION, Elsewhere, Erasable, ErasableRows, Erased, holding
from persist.db.operations.erasing_ways import Key, Values, equal
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.programs.models import agents, bindings, executions, imports, raw_writes, runs, segments, subagents
from persist.programs.schemas import Isolation

_B, _S = bindings.c, subagents.c
_OF_RUNS = (bindings, segments, agents, imports, subagents, executions, raw_writes)


class _Runs(ErasableRows):
    batch = 10

    def find(self, work: UnitOfWork, selector: str, values: Values) -> list[Key]:
        found = super().find(work, selector, values)
        own = work.runtime.scopes.get("run_id")
        if selector == SESSION and own is not None and own in values:
            found.append((own,))
        return found

    def again(self, work: UnitOfWork, keys: Sequence[Key], elsewhere: Elsewhere) -> Sequence[Key]:
        own = work.runtime.scopes.get("run_id")
        return super().again(work, [key for key in keys if key != (own,)], elsewhere)

    def erase(self, work: UnitOfWork, keys: Sequence[Key]) -> Erased:
        own = work.runtime.scopes.get("run_id")
        going = [key for key in keys if key != (own,)]
        named = select(func.count()).where(_B.run_id.in_([id for (id,) in going]), _B.attachment_path.is_not(None))
        files = work.select(named).scalar_one()
        apart = select(func.count()).where(_S.run_id.in_([id for (id,) in going]), _S.isolation == Isolation.FILE)
        lent = work.select(apart).scalar_one()
        for table in (executions, agents):  # waits for transactions with rows that refer to these; later ones are refused
            key = [*table.primary_key.columns]
            held = select(*key).where(table.c.run_id.in_([id for (id,) in going])).order_by(*key).with_for_update()
            work.found(held, unreadable=OnUnreadable.LEAVE_OUT)
        erased = super().erase(work, going)
        if files:
            erased.kept["files of attachments: they are in the folders of the runs, delete these"] = files
        if lent:
            erased.kept["files of subagents: they are in the folders of the runs, below subagents, delete these"] = lent
        if len(going) < len(keys):
            erased.kept["run: the file is this run's own, delete it with its folder"] = 1
        return erased


ERASABLES: tuple[Erasable, ...] = (
    _Runs(
        runs,
        ("id",),
        {SESSION: equal(runs.c.id)},
        # of one run they go together: rows refer to each other, and attachments are counted before
        [holding(table, "run_id", together=True) for table in _OF_RUNS],
    ),
)
