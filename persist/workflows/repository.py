"""`tx.workflows`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, F, on_demand
from persist.workflows.verbs.approvals import Approvals
from persist.workflows.verbs.effects import Effects
from persist.workflows.verbs.executions import Executions
from persist.workflows.verbs.limits import CronOverrides, Limits, WorkflowOverrides
from persist.workflows.verbs.phases import Phases
from persist.workflows.verbs.runs import Runs
from persist.workflows.verbs.schedules import Schedules
from persist.workflows.verbs.signals import Signals


class Workflows(Domain[F]):
    """Runs, executions, phases, approvals, side effects, signals, schedules, limits, and overrides of schedules and workflows."""

    runs = on_demand(Runs[F])
    executions = on_demand(Executions[F])
    phases = on_demand(Phases[F])
    approvals = on_demand(Approvals[F])
    effects = on_demand(Effects[F])
    signals = on_demand(Signals[F])
    schedules = on_demand(Schedules[F])
    limits = on_demand(Limits[F])
    cron_overrides = on_demand(CronOverrides[F])
    workflow_overrides = on_demand(WorkflowOverrides[F])
