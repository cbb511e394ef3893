"""`tx.checkpoints.threads`: listing, copying, trimming and deleting threads."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sqlalchemy import bindparam, exists, insert, select

from persist.checkpoints import validation as validation
from persist.checkpoints.models import BELOW, THREADS, states, threads
from persist.checkpoints.pruning_values import Step, trim
from persist.checkpoints.schemas import CheckpointThread
from persist.db.expressions.conditional_insert import insert_where
from persist.db.expressions.upsert import merging
from persist.db.operations.keyset import Keyset
from persist.db.schema.column_types import Label
from persist.db.statements.prepared import Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.values.pages import Page
from persist.errors import Conflict

List = list
_T = threads.c
_THREAD = Values(CheckpointThread, threads)
_NEWEST = Keyset("checkpoints.threads", _THREAD, (_T.updated_at, _T.id))
_target = bindparam("target", type_=Label())

_GET = Statement(select(*_THREAD.columns).where(_T.id == param("row_id")))
_EXISTS = Statement(select(_T.id).where(_T.id == param("source")))
_MAKE = Statement(merging(insert_where(threads, exists().where(_T.id == param("source"))), "id"))
_COPY_BELOW = [
    Statement(
        insert(table).from_select(
            [column.name for column in table.columns],
            select(*(_target if column.name == "thread_id" else column for column in table.columns)).where(
                table.c.thread_id == param("source")
            ),
        )
    )
    for table in BELOW
]
_OF_RUN = Statement(select(states.c.thread_id).where(states.c.run_id == param("of_run")).distinct())


class CheckpointThreads(Repository[F]):
    """`tx.checkpoints.threads`. The first checkpoint or write creates a thread."""

    @reads
    def list(self, *, limit: int = 20, after: str | None = None) -> Page[CheckpointThread]:
        """Threads, most recently updated first. Pass a page's `cursor` as `after` for the next page."""
        return _NEWEST.page(self._work, limit, after)

    @reads
    def get(self, id: str) -> CheckpointThread:
        """The thread. Raises NotFound."""
        return _THREAD.found(self._work.row(_GET, row_id=self._work.label("id", id)), "thread", id)

    @writes
    def delete(self, id: str) -> bool:
        """Delete a thread with everything in it; False for an unknown id."""
        return THREADS.delete(self._work, id)

    @writes
    def copy(self, source: str, target: str) -> bool:
        """Copy a thread with everything in it to a new id. False for an unknown source. Raises Conflict if the target exists."""
        work = self._work
        names = {"source": work.label("source", source), "target": work.label("target", target)}
        now = work.now()
        with work.batch() as batch:
            found = batch.row(_EXISTS, source=names["source"])
            made = batch.run(_MAKE, source=names["source"], id=names["target"], created_at=now, updated_at=now)
        if found.result is None:
            return False
        if not made.result:
            raise Conflict(f"The thread {target!r} is there already.", constraint="checkpoint_threads.id")
        with work.batch(last=True) as batch:
            for prepared in _COPY_BELOW:
                batch.run(prepared, **names)
        return True

    @writes
    def keep_latest(self, id: str) -> int:
        """Keep each namespace's checkpoint with the greatest id and ancestors it is rebuilt from; the number deleted."""
        return trim(self._work, self._work.label("id", id), _latest)

    @writes
    def delete_runs(self, run_ids: Sequence[str]) -> int:
        """Delete the checkpoints of these runs, except ancestors that others are rebuilt from; the number deleted."""
        work = self._work
        runs = set(validation.labels(work, "run_ids", run_ids))
        touched = {thread for run_id in sorted(runs) for (thread,) in work.rows(_OF_RUN, of_run=run_id)}
        return sum(
            trim(work, thread, lambda steps: [step for step in steps if step.run_id not in runs]) for thread in sorted(touched)
        )


def _latest(steps: Iterable[Step]) -> Iterable[Step]:
    by_namespace: defaultdict[str, List[Step]] = defaultdict(List)
    for step in steps:
        by_namespace[step.namespace].append(step)
    return [max(group, key=lambda step: step.id) for group in by_namespace.values()]
