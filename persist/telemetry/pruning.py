"""Pruning of telemetry by age, for each table. Windows also limit the number of rows of three tables.

In these three the newest rows are those written last, as in the windows: a wrong clock does not make a row newer.
"""

from sqlalchemy import case

from persist.db.operations.pruning import AgedRows, Pruning
from persist.db.statements.prepared import among
from persist.telemetry.models import agent_tags, links, status_log, tasks, tool_history, usage_samples
from persist.telemetry.schemas import TaskState

_S, _U, _H, _G, _L, _T = status_log.c, usage_samples.c, tool_history.c, agent_tags.c, links.c, tasks.c

# The last entry of every instance is kept: it is the instance's current status.
STATUS_LOG = AgedRows(status_log, _S.occurred_at, _S.instance_id, _S.id, per=_S.instance_id, order=(_S.id,), min_kept=1)
USAGE_SAMPLES = AgedRows(
    usage_samples, _U.occurred_at, _U.instance_id, _U.occurred_at, per=_U.instance_id, order=(_U.seq, _U.occurred_at)
)
TOOL_HISTORY = AgedRows(tool_history, _H.occurred_at, _H.instance_id, _H.id, per=_H.instance_id, order=(_H.id,))
AGENT_TAGS = AgedRows(agent_tags, _G.last_seen, _G.instance_id, _G.kind, _G.value, per=_G.instance_id)
# A link that was never fetched has only the instant at which to try again.
_last_attempt = case((_L.refresh_after > _L.fetched_at, _L.refresh_after), else_=_L.fetched_at)
LINKS = AgedRows(links, _last_attempt, _L.instance_id, _L.url, per=_L.instance_id)
# Failed tasks are kept until `retry`.
TASKS = AgedRows(
    tasks,
    _T.completed_at,
    _T.workspace_id,
    _T.id,
    per=_T.workspace_id,
    may_go=among(_T.state, (TaskState.COMPLETED, TaskState.CANCELLED)),
)

PRUNINGS: tuple[Pruning, ...] = (STATUS_LOG, USAGE_SAMPLES, TOOL_HISTORY, AGENT_TAGS, LINKS, TASKS)
