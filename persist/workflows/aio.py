"""`tx.workflows` on the async face: every verb of the repositories as a coroutine."""

from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, overload

from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable
from persist.db.values.counts import Count
from persist.workflows.repository import Workflows
from persist.workflows.verbs.approvals import Approvals
from persist.workflows.verbs.effects import Effects
from persist.workflows.verbs.executions import Executions
from persist.workflows.verbs.limits import Limits
from persist.workflows.verbs.overrides import CronOverrides, WorkflowOverrides
from persist.workflows.verbs.phase_verbs import Phases
from persist.workflows.verbs.runs import Runs
from persist.workflows.verbs.schedules import Schedules
from persist.workflows.verbs.signals import Signals


class CountRuns(Protocol):
    """`runs.count`, awaited."""

    @overload
    def __call__(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow_name: str | None = None,
        since: datetime | None = None,
        failure_kind: str | None = None,
        exact: Literal[False],
    ) -> Coroutine[Any, Any, Count]: ...
    @overload
    def __call__(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow_name: str | None = None,
        since: datetime | None = None,
        failure_kind: str | None = None,
        exact: bool = True,
    ) -> Coroutine[Any, Any, int]: ...


class AsyncRuns(AsyncRepository[Runs]):
    """See Runs."""

    create = awaitable(Runs.create)
    get = awaitable(Runs.get)
    list = awaitable(Runs.list)
    list_rows = awaitable(Runs.list_rows)
    count: CountRuns = awaitable(Runs.count)  # type: ignore[assignment]  # a decorated function loses its overloads
    list_active = awaitable(Runs.list_active)
    list_queued = awaitable(Runs.list_queued)
    distinct_names = awaitable(Runs.distinct_names)
    get_by_trigger = awaitable(Runs.get_by_trigger)
    has_run_for_trigger = awaitable(Runs.has_run_for_trigger)
    append_phase = awaitable(Runs.append_phase)
    merge_scratch = awaitable(Runs.merge_scratch)
    update_node_status = awaitable(Runs.update_node_status)
    finish = awaitable(Runs.finish)
    cancel = awaitable(Runs.cancel)
    expire_queued = awaitable(Runs.expire_queued)
    pause = awaitable(Runs.pause)
    resume = awaitable(Runs.resume)
    admit = awaitable(Runs.admit)
    requeue = awaitable(Runs.requeue)
    restart = awaitable(Runs.restart)
    increment_restart_count = awaitable(Runs.increment_restart_count)
    recover_interrupted = awaitable(Runs.recover_interrupted)
    claim = awaitable(Runs.claim)
    held_by = awaitable(Runs.held_by)
    renew = awaitable(Runs.renew)
    complete = awaitable(Runs.complete)
    release = awaitable(Runs.release)
    sleep_until = awaitable(Runs.sleep_until)
    children = awaitable(Runs.children)
    family = awaitable(Runs.family)
    join = awaitable(Runs.join)


class AsyncExecutions(AsyncRepository[Executions]):
    """See Executions."""

    start = awaitable(Executions.start)
    set_session = awaitable(Executions.set_session)
    finish = awaitable(Executions.finish)
    set_output = awaitable(Executions.set_output)
    output_text = awaitable(Executions.output_text)
    phase_output = awaitable(Executions.phase_output)
    skip = awaitable(Executions.skip)
    should_run = awaitable(Executions.should_run)
    mark_stale = awaitable(Executions.mark_stale)
    veto_latest = awaitable(Executions.veto_latest)
    get = awaitable(Executions.get)
    list = awaitable(Executions.list)
    running = awaitable(Executions.running)
    for_run = awaitable(Executions.for_run)
    consecutive_failures = awaitable(Executions.consecutive_failures)
    stats = awaitable(Executions.stats)
    daily_stats = awaitable(Executions.daily_stats)
    hourly_stats = awaitable(Executions.hourly_stats)
    is_running = awaitable(Executions.is_running)
    is_completed = awaitable(Executions.is_completed)
    recent = awaitable(Executions.recent)
    chat_thread = awaitable(Executions.chat_thread)
    chat_threads = awaitable(Executions.chat_threads)


class AsyncPhases(AsyncRepository[Phases]):
    """See Phases."""

    begin = awaitable(Phases.begin)
    finish = awaitable(Phases.finish)
    fail = awaitable(Phases.fail)


class AsyncApprovals(AsyncRepository[Approvals]):
    """See Approvals."""

    request = awaitable(Approvals.request)
    get = awaitable(Approvals.get)
    pending = awaitable(Approvals.pending)
    list_for_run = awaitable(Approvals.list_for_run)
    respond = awaitable(Approvals.respond)
    resolve_reply = awaitable(Approvals.resolve_reply)
    pause_for_approval = awaitable(Approvals.pause_for_approval)
    wait = awaitable(Approvals.wait)
    resolve_and_resume = awaitable(Approvals.resolve_and_resume)
    resolve_and_fail = awaitable(Approvals.resolve_and_fail)
    expire_due = awaitable(Approvals.expire_due)


class AsyncEffects(AsyncRepository[Effects]):
    """See Effects."""

    begin = awaitable(Effects.begin)
    complete = awaitable(Effects.complete)
    fail = awaitable(Effects.fail)
    get = awaitable(Effects.get)
    list = awaitable(Effects.list)


class AsyncSignals(AsyncRepository[Signals]):
    """See Signals."""

    send = awaitable(Signals.send)
    take = awaitable(Signals.take)
    wait = awaitable(Signals.wait)
    list = awaitable(Signals.list)
    expire_due = awaitable(Signals.expire_due)


class AsyncSchedules(AsyncRepository[Schedules]):
    """See Schedules."""

    set = awaitable(Schedules.set)
    get = awaitable(Schedules.get)
    list = awaitable(Schedules.list)
    remove = awaitable(Schedules.remove)
    fire_due = awaitable(Schedules.fire_due)


class AsyncLimits(AsyncRepository[Limits]):
    """See Limits."""

    set = awaitable(Limits.set)
    get = awaitable(Limits.get)
    list = awaitable(Limits.list)
    delete = awaitable(Limits.delete)


class AsyncCronOverrides(AsyncRepository[CronOverrides]):
    """See CronOverrides."""

    set = awaitable(CronOverrides.set)
    get = awaitable(CronOverrides.get)
    all = awaitable(CronOverrides.all)
    clear = awaitable(CronOverrides.clear)


class AsyncWorkflowOverrides(AsyncRepository[WorkflowOverrides]):
    """See WorkflowOverrides."""

    set = awaitable(WorkflowOverrides.set)
    is_enabled = awaitable(WorkflowOverrides.is_enabled)
    all = awaitable(WorkflowOverrides.all)
    clear = awaitable(WorkflowOverrides.clear)


class AsyncWorkflows:
    """See Workflows."""

    def __init__(self, work: AsyncWork) -> None:
        workflows = Workflows(work.work)
        self.runs = AsyncRuns(workflows.runs, work)
        self.executions = AsyncExecutions(workflows.executions, work)
        self.phases = AsyncPhases(workflows.phases, work)
        self.approvals = AsyncApprovals(workflows.approvals, work)
        self.effects = AsyncEffects(workflows.effects, work)
        self.signals = AsyncSignals(workflows.signals, work)
        self.schedules = AsyncSchedules(workflows.schedules, work)
        self.limits = AsyncLimits(workflows.limits, work)
        self.cron_overrides = AsyncCronOverrides(workflows.cron_overrides, work)
        self.workflow_overrides = AsyncWorkflowOverrides(workflows.workflow_overrides, work)
