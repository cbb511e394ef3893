"""The threads of a graph, and the state of each after every step, with what tasks wrote since."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import bindparam, exists, insert, select

from persist.db.changes.batch import Pending
from persist.db.expressions.keyset import behind
from persist.db.expressions.upsert import insert_where, merging
from persist.db.operations.keyset import Keyset
from persist.db.schema.column_types import Label
from persist.db.statements.prepared import LIMIT, Row, Statement, param
from persist.db.statements.row_values import Values
from persist.db.transactions.repository import F, Repository, reads, writes
from persist.db.unreadable.cells import OnUnreadable
from persist.db.values.arguments import optional_label
from persist.db.values.pages import Page, check_limit
from persist.errors import Conflict, StoreCorrupt, named
from persist.framework_state.checkpoints import schemas
from persist.framework_state.checkpoints.models import BELOW, THREADS, pending, states, threads
from persist.framework_state.checkpoints.storing import NewState, checked_writes, store, store_writes
from persist.framework_state.checkpoints.upkeep import Step, trim
from persist.framework_state.checkpoints.values import Reading, read_values, stored_blob, stored_versions, thread_key

List = list
_T = threads.c
_THREAD = Values(schemas.CheckpointThread, threads)
_NEWEST = Keyset("checkpoints.threads", _THREAD, (_T.updated_at, _T.id))
_target = bindparam("target", type_=Label())
_GET_THREAD = Statement(select(*_THREAD.columns).where(_T.id == param("row_id")))
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
    def list(self, *, limit: int = 20, after: str | None = None) -> Page[schemas.CheckpointThread]:
        """Threads, most recently updated first. Pass a page's `cursor` as `after` for the next page."""
        return _NEWEST.page(self._work, limit, after)

    @reads
    def get(self, id: str) -> schemas.CheckpointThread:
        """The thread. Raises NotFound."""
        return _THREAD.found(self._work.row(_GET_THREAD, row_id=self._work.label("id", id)), "thread", id)

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
        work.refuse_former(threads, "thread", names["target"])
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
        """Delete the runs' checkpoints, except ancestors that remaining checkpoints are rebuilt from; the number deleted."""
        work = self._work
        runs = set(schemas.labels(work, "run_ids", run_ids))
        touched = {thread for run_id in sorted(runs) for (thread,) in work.rows(_OF_RUN, of_run=run_id)}
        return sum(
            trim(work, thread, lambda steps: [step for step in steps if step.run_id not in runs]) for thread in sorted(touched)
        )


def _latest(steps: Iterable[Step]) -> Iterable[Step]:
    by_namespace: defaultdict[str, List[Step]] = defaultdict(List)
    for step in steps:
        by_namespace[step.namespace].append(step)
    return [max(group, key=lambda step: step.id) for group in by_namespace.values()]


_S, _W = states.c, pending.c
_CHECKPOINT = Values(schemas.Checkpoint, states, without=("head",))
_COLUMNS = (*_CHECKPOINT.columns, _S.head_kind, _S.head)
_in_namespace = (_S.thread_id == param("thread_id"), _S.namespace == param("namespace"))
_GET = Statement(select(*_COLUMNS).where(*_in_namespace, _S.id == param("row_id")))
_LATEST = Statement(select(*_COLUMNS).where(*_in_namespace).order_by(_S.id.desc()).limit(1))
_STEP = Statement(select(_S.parent_id, _S.versions_json).where(*_in_namespace, _S.id == param("row_id")))
_WRITES = Statement(
    select(_W.task_id, _W.channel, _W.kind, _W.data)
    .where(_W.thread_id == param("thread_id"), _W.namespace == param("namespace"), _W.checkpoint_id == param("row_id"))
    .order_by(_W.task_path, _W.task_id, _W.idx),
    unreadable=OnUnreadable.RAISE,
)


@cache
def _listing(*given: str) -> Statement:
    query = select(*_COLUMNS).order_by(_S.id.desc(), _S.thread_id.desc(), _S.namespace.desc()).limit(LIMIT)
    for name in ("thread_id", "namespace", "id"):
        if name in given:
            query = query.where(_S[name] == param(name))
    if "before" in given:
        query = query.where(_S.id < param("before"))
    if "after" in given:
        key = (_S.id, _S.thread_id, _S.namespace)
        query = query.where(behind(key, [f"after_{column.name}" for column in key], descending=True))
    return Statement(query)


class CheckpointStates(Repository[F]):
    """`tx.checkpoints.states`: the state of a thread after each step, and what tasks wrote since."""

    @writes
    def put(
        self,
        thread_id: str,
        id: str,
        *,
        head: schemas.Blob,
        namespace: str = "",
        parent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
        values: Mapping[str, tuple[str, schemas.Stored | None]] | None = None,
        partial: Iterable[str] = (),
    ) -> None:
        """Store a checkpoint or replace it, keeping `created_at`. Creates its thread if needed.

        `versions`: the version of every channel. `values`: (version, value) of the channels that this step changed; a value of
        None deletes that version. Other channels' values were stored with earlier checkpoints under the same versions.
        `partial`: channels whose value is an ancestor's plus what was written to them since.
        """
        work = self._work
        key = thread_key(thread_id, namespace)
        schemas.check_blobs("head", (head,), empty=False)
        row = {
            **key,
            "id": work.label("id", id),
            "parent_id": optional_label("parent_id", parent_id),
            "run_id": optional_label("run_id", run_id, empty=True),
            "created_at": work.now(),
            "metadata_json": work.json("metadata", work.json_object("metadata", metadata)),
            "versions_json": work.json("versions", schemas.versions_of(work, versions)),
            "partial_json": sorted(schemas.labels(work, "partial", partial)) or None,
            "head_kind": head.kind,
            "head": head.data,
        }
        self._store(NewState(key, row, schemas.values_of(work, values)))

    def _reading(self) -> Reading:
        return Reading(self._work)

    def _store(self, new: NewState) -> None:
        """Store a checked checkpoint. A runner that knows how its lists are stored does it in another way."""
        store(self._work, new)

    @writes
    def put_writes(
        self,
        thread_id: str,
        checkpoint_id: str,
        writes: Sequence[schemas.Write],
        *,
        task_id: str,
        task_path: str = "",
        namespace: str = "",
    ) -> None:
        """Store what a task wrote after a checkpoint, which need not exist yet. Creates the thread if needed.

        A stored write with an `idx` of 0 or more is kept; one with an `idx` below 0 is replaced.
        """
        given = checked_writes(thread_id, checkpoint_id, writes, task_id=task_id, task_path=task_path, namespace=namespace)
        store_writes(self._work, given)

    @reads
    def find(self, thread_id: str, *, namespace: str = "", id: str | None = None) -> schemas.Loaded | None:
        """The checkpoint with that id, or the one with the greatest id, with values and writes; None if there is none."""
        work = self._work
        key = thread_key(thread_id, namespace)
        wanted = optional_label("id", id)
        row = work.row(_LATEST, **key) if wanted is None else work.row(_GET, **key, row_id=wanted)
        if row is None:
            return None
        checkpoint = _value(row)
        reading = self._reading()
        with work.batch() as batch:
            asked = reading.ask_whole(batch, key, checkpoint.versions)
            written = batch.rows(_WRITES, **key, row_id=checkpoint.id)
        reading.read_pieces([asked])
        return schemas.Loaded(checkpoint, reading.values(asked), _writes(written))

    @reads
    def page(
        self,
        *,
        thread_id: str | None = None,
        namespace: str | None = None,
        id: str | None = None,
        before: str | None = None,
        after: schemas.Checkpoint | None = None,
        limit: int = 100,
    ) -> List[schemas.Checkpoint]:
        """Checkpoints without values, greatest ids first. `before`: only smaller ids. `after`: the previous page's last one."""
        work = self._work
        given = {"thread_id": thread_id, "namespace": namespace, "id": id, "before": before}
        filters = {name: work.label(name, value, empty=True) for name, value in given.items() if value is not None}
        key = {}
        if after is not None:
            schemas.items("after", [after], schemas.Checkpoint)
            key = {"after_id": after.id, "after_thread_id": after.thread_id, "after_namespace": after.namespace}
        prepared = _listing(*filters, *(["after"] if key else []))
        return [_value(row) for row in work.rows(prepared, **filters, **key, limit=check_limit(limit))]

    @reads
    def load(self, checkpoints: Sequence[schemas.Checkpoint]) -> List[schemas.Loaded]:
        """The checkpoints with their values and pending writes."""
        reading = self._reading()
        given = schemas.items("checkpoints", checkpoints, schemas.Checkpoint)
        if not given:
            return []
        keys = [{"thread_id": checkpoint.thread_id, "namespace": checkpoint.namespace} for checkpoint in given]
        with self._work.batch() as batch:
            asked = [reading.ask(batch, key, checkpoint.versions) for key, checkpoint in zip(keys, given, strict=True)]
            written = [batch.rows(_WRITES, **key, row_id=checkpoint.id) for key, checkpoint in zip(keys, given, strict=True)]
        reading.read_pieces(asked)
        return [
            schemas.Loaded(checkpoint, reading.values(values), _writes(pending))
            for checkpoint, values, pending in zip(given, asked, written, strict=True)
        ]

    @reads
    def values(self, thread_id: str, versions: Mapping[str, str], *, namespace: str = "") -> dict[str, schemas.Stored]:
        """The values of channels at these versions. A channel without a stored value at its version is left out."""
        work = self._work
        return read_values(work, thread_key(thread_id, namespace), schemas.versions_of(work, versions))

    @reads
    def history(
        self, thread_id: str, id: str, channels: Sequence[str], *, namespace: str = ""
    ) -> dict[str, schemas.ChannelHistory]:
        """How these channels got their values at a checkpoint: the nearest ancestor's stored value, and the writes since.

        Writes of the checkpoint itself are excluded, those of the ancestor with the value included. Raises StoreCorrupt if its
        ancestors form a circle, which only rows written by other programs can cause.
        """
        work = self._work
        key = thread_key(thread_id, namespace)
        wanted = schemas.labels(work, "channels", channels)
        newest_first: dict[str, List[schemas.PendingWrite]] = {channel: [] for channel in wanted}
        seeds: dict[str, schemas.Stored] = {}
        unresolved = set(wanted)
        visited = {work.label("id", id)}
        step = work.row(_STEP, **key, row_id=id)
        while step is not None and step[0] is not None and unresolved:
            if step[0] in visited:
                reason = f"the parents of the checkpoint {named(id)} lead in a circle; persist doctor names it."
                raise StoreCorrupt(f"thread {named(thread_id)}", reason)
            visited.add(step[0])
            ancestor = {**key, "row_id": step[0]}
            with work.batch() as batch:
                found = batch.row(_STEP, **ancestor)
                written = batch.rows(_WRITES, **ancestor)
            step = found.result
            if step is None:
                break
            for write in reversed(_writes(written)):
                if write.channel in unresolved:
                    newest_first[write.channel].append(write)
            versions = stored_versions(thread_id, step[1])
            stored = read_values(work, key, {name: version for name, version in versions.items() if name in unresolved})
            seeds |= stored
            unresolved -= stored.keys()
        return {name: schemas.ChannelHistory(seeds.get(name), newest_first[name][::-1]) for name in wanted}


def _value(row: Row) -> schemas.Checkpoint:
    *fields, kind, data = row
    return _CHECKPOINT.beside(fields, head=stored_blob(kind, data))


def _writes(found: Pending[List[Row]]) -> List[schemas.PendingWrite]:
    return [schemas.PendingWrite(task_id, channel, stored_blob(kind, data)) for task_id, channel, kind, data in found.result]
