"""Upkeep of programs. A person's runs have a session's id, with or without a row; what is in their folders stays."""

from collections.abc import Iterator, Sequence

from sqlalchemy import ColumnElement, exists, func, literal_column, select

from persist.db.dialects.interface import Problem, Severity
from persist.db.operations import erasing
from persist.db.operations.bounded_deletion import DependentRows, Ids
from persist.db.operations.pruning import AgedRows
from persist.db.operations.upkeep import Exported, Rows, Rules, Takeover, Upkeep, scope_of_id, the_id
from persist.db.schema.base import any_value
from persist.db.schema.column_types import EnumText
from persist.db.statements.prepared import among
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.unreadable.cells import OnUnreadable
from persist.errors import NotFound
from persist.programs.models import FRAME, agents, bindings, executions, imports, raw_writes, runs, segments, subagents
from persist.programs.schemas import Isolation, RunStatus
from persist.programs.verbs.audits import RAW_WRITE
from persist.programs.verbs.runs import ProgramRuns

SCOPE = "run_id"
FILES = bindings.c.attachment_path
"""The column that names attachments, files beside the run's own that no export contains."""
_R, _B, _E, _S, _W = runs.c, bindings.c, executions.c, subagents.c, raw_writes.c


def _attachments(work: UnitOfWork, ids: Ids) -> list[str]:
    """The attachments that rows of these runs name, as "RUN: PATH"; the run's folder belongs to the caller and is left alone."""
    query = select(_B.run_id, _B.attachment_path).where(_B.run_id.in_(ids), _B.attachment_path.is_not(None))
    return [
        f"{run}: {path}"
        for run, path in work.found(query.order_by(_B.run_id, _B.attachment_path), unreadable=OnUnreadable.LEAVE_OUT)
    ]


RUNS = AgedRows(
    runs,
    _R.updated_at,
    _R.id,
    may_go=among(_R.status, (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.INTERRUPTED)),
    spared=lambda work, ids: {run for run in (work.runtime.scopes.get("run_id"),) if run is not None},
    files=_attachments,
    below=(
        DependentRows(bindings, lambda ids: _B.run_id.in_(ids), key=(_B.run_id, _B.name, _B.execution_id)),
        *(
            DependentRows(table, lambda ids, table=table: table.c.run_id.in_(ids))  # type: ignore[misc]  # a bound default
            for table in (segments, agents, subagents, imports, raw_writes)
        ),
        DependentRows(executions, lambda ids: _E.run_id.in_(ids), key=(_E.id,), order=(_E.id.desc(),), parent=_E.parent_id),
    ),
)


def _of_own(work: UnitOfWork, ids: Ids) -> list[int]:
    """Notes of the run that owns this file; its id is empty in the rows."""
    own = work.runtime.scopes.get("run_id")
    query = select(_W.id).where(_W.id.in_(ids), _W.run_id.in_(("", own)))
    return [] if own is None else [id for (id,) in work.found(query)]


NOTES = AgedRows(raw_writes, _W.at, _W.id, only=~exists().where(_R.id == _W.run_id), spared=_of_own)
"""A shell deleted the run, or named one that never was; other notes go with their run."""


class _Runs(erasing.ErasableRows):
    batch = 10

    def find(self, work: UnitOfWork, selector: str, values: erasing.Values) -> list[erasing.Key]:
        found = super().find(work, selector, values)
        own = work.runtime.scopes.get("run_id")
        if selector == erasing.SESSION and own is not None and own in values:
            found.append((own,))
        return found

    def written_again(self, work: UnitOfWork, keys: Sequence[erasing.Key], elsewhere: erasing.Elsewhere) -> Sequence[erasing.Key]:
        own = work.runtime.scopes.get("run_id")
        return super().written_again(work, [key for key in keys if key != (own,)], elsewhere)

    def erase(self, work: UnitOfWork, keys: Sequence[erasing.Key]) -> erasing.Erased:
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


_SEVERITY = {
    "attachment_missing": Severity.ERROR,
    "attachment_escapes": Severity.ERROR,
    "orphan": Severity.WARNING,
    "circle": Severity.WARNING,
    "guard_missing": Severity.WARNING,
    "trigger_unknown": Severity.WARNING,
}
"""The codes that doctor reports. Others tell what a raw writer did, which may be right."""


def checkup(work: UnitOfWork) -> Iterator[Problem]:
    """Audit the run, or the agents, whose file this is; a database of many runs is not audited."""
    run_id = work.runtime.scopes.get("run_id")
    if run_id is None:
        return
    try:
        found = ProgramRuns(work).audit(run_id)
    except NotFound:  # the process that made the file died before it inserted the run
        return
    noted = sum(finding.code == RAW_WRITE for finding in found)
    if noted:
        message = f"programs that are not persist left {noted:,} notes of what they wrote; an audit tells which rows."
        yield Problem(f"program_{RAW_WRITE}", Severity.INFO, f"run {run_id}", message)
    for finding in found:
        if finding.code == RAW_WRITE:
            continue
        severity = _SEVERITY.get(finding.code, Severity.INFO)
        yield Problem(f"program_{finding.code}", severity, finding.subject, finding.message)


REPLACED = "x_replaced_bindings"
"""The table for values that a newer one of the same name and frame replaced; x_ is the prefix of custom tables."""


def _one_value(takeover: Takeover) -> None:
    """Keep the newest row of each binding: in many files root bindings have no key, and every write appended a row."""
    rowid: ColumnElement[int] = literal_column("rowid")
    place = func.row_number().over(
        partition_by=(bindings.c.run_id, bindings.c.name, FRAME), order_by=(bindings.c.updated_at.desc(), rowid.desc())
    )
    ranked = select(rowid.label("row"), place.label("place")).where(bindings.c.name.isnot(None)).subquery()
    older = takeover.rows(select(ranked.c.row).where(ranked.c.place > 1).order_by(ranked.c.row))
    takeover.set_aside(bindings, REPLACED, [row for (row,) in older])
    takeover.settle(bindings, f"older values of one name in one frame were moved to {REPLACED}", len(older))


def _whose(takeover: Takeover) -> None:
    """Note the run id of a file with exactly one run; with several, the file's rows belong to no single run."""
    if not takeover.brought(runs):
        return
    ids = [id for (id,) in takeover.rows(select(runs.c.id).limit(2))]
    if len(ids) == 1:
        takeover.facts["run_id"] = ids[0]
    elif ids:
        count = takeover.rows(select(func.count()).select_from(runs))[0][0]
        message = "the file has several runs and its statements name none: they belong to the file, not to one of these"
        takeover.notice(runs.name, message, count)


UPKEEP = Upkeep(
    prunings=(RUNS, NOTES),
    erasables=(
        _Runs(
            runs,
            ("id",),
            {erasing.SESSION: erasing.equal(runs.c.id)},
            # of one run they go together: rows refer to each other, and attachments are counted before
            [
                erasing.holding(table, "run_id", together=True)
                for table in (bindings, segments, agents, imports, subagents, executions, raw_writes)
            ],
        ),
    ),
    exports=(
        Exported(
            "program run",
            runs.c.id,
            (
                Rows(runs, runs.c.id == the_id(), (runs.c.id,)),
                Rows(executions, executions.c.run_id == scope_of_id(), (executions.c.id,)),
                Rows(bindings, bindings.c.run_id == scope_of_id(), (bindings.c.name, bindings.c.execution_id)),
                Rows(agents, agents.c.run_id == scope_of_id(), (agents.c.name,)),
                Rows(segments, segments.c.run_id == scope_of_id(), (segments.c.id,)),
                Rows(imports, imports.c.run_id == scope_of_id(), (imports.c.alias,)),
                Rows(raw_writes, raw_writes.c.run_id == scope_of_id(), (raw_writes.c.id,)),
            ),
        ),
    ),
    checkup=checkup,
    shapes={
        column: any_value
        for table in (runs, executions, bindings, agents)
        for column in table.columns
        if isinstance(column.type, EnumText)
    },
    adoption=Rules(
        values={executions.c.updated_at: func.coalesce(executions.c.completed_at, executions.c.started_at)},
        always_written=frozenset(
            {
                bindings.c.name,
                bindings.c.kind,
                executions.c.status,
                runs.c.status,
                segments.c.agent_name,
                segments.c.segment_number,
                imports.c.source_url,
            }
        ),
        other_keys={bindings: (frozenset({"name", "execution_id"}), frozenset({"id"}))},
        settle=(_one_value,),
        fill=(_whose,),
    ),
)
