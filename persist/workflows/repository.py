"""`tx.workflows`: the repositories of the domain."""

from persist.db.repository import on_demand
from persist.db.work import Work
from persist.workflows.approvals import Approvals
from persist.workflows.executions import Executions
from persist.workflows.overrides import CronOverrides, WorkflowOverrides
from persist.workflows.runs import Runs


class Workflows:
    """Runs, what their phases did, the gates they wait at, and what an operator switched off."""

    runs = on_demand(Runs)
    executions = on_demand(Executions)
    approvals = on_demand(Approvals)
    cron_overrides = on_demand(CronOverrides)
    workflow_overrides = on_demand(WorkflowOverrides)

    def __init__(self, work: Work) -> None:
        self._work = work
