"""`tx.workflows`: the repositories of the domain."""

from persist.db.transactions.repository import EachVerb, on_demand
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.workflows.verbs.approvals import Approvals
from persist.workflows.verbs.executions import Executions
from persist.workflows.verbs.overrides import CronOverrides, WorkflowOverrides
from persist.workflows.verbs.runs import Runs


class Workflows:
    """Workflow runs, executions, approvals, and overrides of schedules and workflows."""

    runs = on_demand(Runs)
    executions = on_demand(Executions)
    approvals = on_demand(Approvals)
    cron_overrides = on_demand(CronOverrides)
    workflow_overrides = on_demand(WorkflowOverrides)

    def __init__(self, work: UnitOfWork | EachVerb) -> None:
        self._work = work
