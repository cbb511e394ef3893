"""What an export of a program's run holds; not what was attached to it, which are files."""

from persist.db.exporting import Exported, Rows, as_stored, the_id
from persist.programs.models import agents, bindings, executions, imports, runs, segments

RUN = Exported(
    "program run",
    runs.c.id,
    (
        Rows(runs, runs.c.id == the_id(), (runs.c.id,)),
        Rows(executions, executions.c.run_id == as_stored(), (executions.c.id,)),
        Rows(bindings, bindings.c.run_id == as_stored(), (bindings.c.name, bindings.c.execution_id)),
        Rows(agents, agents.c.run_id == as_stored(), (agents.c.name,)),
        Rows(segments, segments.c.run_id == as_stored(), (segments.c.id,)),
        Rows(imports, imports.c.run_id == as_stored(), (imports.c.alias,)),
    ),
)
SCOPE = "run_id"
FILES = bindings.c.attachment_path
"""The column that names files beside a run's own, which are in no export."""
