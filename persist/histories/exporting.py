"""What an export of a conversation contains, and one of a run."""

from typing import Any

from sqlalchemy import CompoundSelect, Select, select

from persist.db.operations.exporting import Exported, Rows, the_id
from persist.histories.lines import lines_to
from persist.histories.models import BELOW_RUN, branches, entries, histories, runs, snapshots

_E = entries.c


def _entries(ends: Select[Any] | CompoundSelect[Any]) -> Rows:
    """The entries that lead to the selected ones; others may share them."""
    walked = lines_to(_E.id.in_(ends))
    in_line = (_E.root_id == walked.c.root_id) & (_E.line_id == walked.c.line_id) & (_E.depth <= walked.c.depth)
    return Rows(entries, select(walked.c.depth).where(in_line).exists(), (_E.root_id, _E.depth, _E.id), shared=True)


HISTORY = Exported(
    "history",
    histories.c.id,
    (
        Rows(histories, histories.c.id == the_id(), (histories.c.id,)),
        Rows(branches, branches.c.history_id == the_id(), (branches.c.position,)),
        _entries(
            select(histories.c.head_id)
            .where(histories.c.id == the_id())
            .union(select(branches.c.entry_id).where(branches.c.history_id == the_id()))
        ),
    ),
)
"""An export of one conversation, with the messages of its history and of the branches that it has left."""

RUN = Exported(
    "history run",
    runs.c.id,
    (
        Rows(runs, runs.c.id == the_id(), (runs.c.id,)),
        *(Rows(table, table.c.run_id == the_id(), tuple(table.primary_key.columns)) for table in BELOW_RUN),
        _entries(select(snapshots.c.head_id).where(snapshots.c.run_id == the_id())),
    ),
)
"""An export of one run with its events, snapshots, their messages, and its tool effects."""
