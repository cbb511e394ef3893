"""Files of workflow engines whose releases added columns one by one."""

from sqlalchemy import func

from persist.db.operations.adopting import Rules
from persist.workflows.models import runs

RULES = Rules(values={runs.c.updated_at: func.coalesce(runs.c.finished_at, runs.c.started_at)})
