"""`tx.workflows`: the repositories of the domain."""

from persist.db.work import Work
from persist.workflows.approvals import Approvals
from persist.workflows.executions import Executions
from persist.workflows.overrides import CronOverrides, WorkflowOverrides
from persist.workflows.runs import Runs


class Workflows:
    """Runs, what their phases did, the gates they wait at, and what an operator switched off."""

    def __init__(self, work: Work) -> None:
        self.runs = Runs(work)
        self.executions = Executions(work)
        self.approvals = Approvals(work)
        self.cron_overrides = CronOverrides(work)
        self.workflow_overrides = WorkflowOverrides(work)
