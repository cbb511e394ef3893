"""Pruning of telemetry by age, each table for itself. The windows bound three of them by size besides.

The newest of these three are those that were written last, as in the windows: a clock that was ahead makes nothing newer.
"""

from sqlalchemy import case

from persist.db.hot import among
from persist.db.pruning import AgedRows, Pruning
from persist.telemetry.models import agent_tags, links, status_log, tasks, tool_history, usage_samples
from persist.telemetry.schemas import TaskState

_S, _U, _H, _G, _L, _T = status_log.c, usage_samples.c, tool_history.c, agent_tags.c, links.c, tasks.c

# Of every instance the last entry stays: it is the status that the instance has.
STATUS_LOG = AgedRows(status_log, _S.occurred_at, _S.instance_id, _S.id, per=_S.instance_id, order=(_S.id,), least=1)
USAGE_SAMPLES = AgedRows(
    usage_samples, _U.occurred_at, _U.instance_id, _U.occurred_at, per=_U.instance_id, order=(_U.seq, _U.occurred_at)
)
TOOL_HISTORY = AgedRows(tool_history, _H.occurred_at, _H.instance_id, _H.id, per=_H.instance_id, order=(_H.id,))
AGENT_TAGS = AgedRows(agent_tags, _G.last_seen, _G.instance_id, _G.kind, _G.value, per=_G.instance_id)
# A link that could never be fetched has an error, and the instant at which to try again.
_looked_at = case((_L.refresh_after > _L.fetched_at, _L.refresh_after), else_=_L.fetched_at)
LINKS = AgedRows(links, _looked_at, _L.instance_id, _L.url, per=_L.instance_id)
# Failed ones are in quarantine until somebody says `retry`.
TASKS = AgedRows(
    tasks,
    _T.completed_at,
    _T.workspace_id,
    _T.id,
    per=_T.workspace_id,
    may_go=among(_T.state, (TaskState.COMPLETED, TaskState.CANCELLED)),
)

PRUNINGS: tuple[Pruning, ...] = (STATUS_LOG, USAGE_SAMPLES, TOOL_HISTORY, AGENT_TAGS, LINKS, TASKS)
