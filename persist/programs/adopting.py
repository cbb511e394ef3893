"""Run files and files of agents that a machine made with the published statements, or with what it made of them."""

from sqlalchemy import ColumnElement, func, literal_column, select

from persist.db.adopting import Rules, Takeover
from persist.programs.models import FRAME, bindings, executions, imports, runs, segments

REPLACED = "x_replaced_bindings"
"""Where values go that a newer one of the same name and frame replaces; the prefix is that of custom tables."""


def _one_value(takeover: Takeover) -> None:
    """Root bindings have no key in many files, and every write appended one: the newest is the value."""
    rowid: ColumnElement[int] = literal_column("rowid")
    place = func.row_number().over(
        partition_by=(bindings.c.run_id, bindings.c.name, FRAME), order_by=(bindings.c.updated_at.desc(), rowid.desc())
    )
    ranked = select(rowid.label("row"), place.label("place")).where(bindings.c.name.isnot(None)).subquery()
    older = takeover.rows(select(ranked.c.row).where(ranked.c.place > 1).order_by(ranked.c.row))
    takeover.set_aside(bindings, REPLACED, [row for (row,) in older])
    takeover.settle(bindings, f"older values of one name in one frame were moved to {REPLACED}", len(older))


def _whose(takeover: Takeover) -> None:
    """The file of a run is that of its only row."""
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
