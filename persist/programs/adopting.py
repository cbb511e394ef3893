"""Adopting run files and agent files that a virtual machine made with the published statements or a variation of them."""

from sqlalchemy import ColumnElement, func, literal_column, select

from persist.db.operations.adopting import Rules, Takeover
from persist.programs.models import FRAME, bindings, executions, imports, runs, segments

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


RULES = Rules(
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
)
