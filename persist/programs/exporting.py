"""The rows in the export of a program's run; attachments are files and not exported."""

from persist.db.operations.exporting import Exported, Rows, scope_of_id, the_id
from persist.programs.models import agents, bindings, executions, imports, raw_writes, runs, segments

RUN = Exported(
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
)
SCOPE = "run_id"
FILES = bindings.c.attachment_path
"""The column that names attachments, files beside the run's own that no export contains."""
