"""Events, their data, and their types.

The data of an event that persist writes is `{"v": 1, "changes": [...]}`. A change concerns one row of a table: `{"table", "op":
"put", "row"}` has the whole row, `{"table", "op": "set", "key", "row"}` the columns that were set, `{"table", "op": "delete",
"key"}` is a deletion with all dependent rows. Instants are in the form that SQLite stores, blobs `{"base64": …}`. An event with
`"more": true` is continued by the next one of its stream.
"""

from datetime import datetime
from typing import Any

from persist.db.values.frozen import Value

VERSION = 1
ALL = "*"
"""The name for all streams together, whose events are in the order of their commits."""

SNAPSHOT = "snapshot"
"""The type of an event that contains all rows of a stream. Readers can begin there, without the events before it."""


SNAPSHOT_CONTINUED = "snapshot.continued"

ERASED = "stream.erased"
"""The type of the last event of a stream whose rows were erased. Neither it nor the earlier events keep data."""


class Event(Value):
    """One event of the log. `seq` counts in its stream, `position` in the whole log. `actor`: who did it, if that was said."""

    stream_id: str
    seq: int
    position: int
    type: str
    data: Any
    at: datetime
    actor: str | None = None


class Consumer(Value):
    """A durable reader of the log, known by its name. It has acknowledged every event up to `position`.

    types             the types of events that it gets; None: of any type
    behind            how many events of all types were written after `position`
    lease_position    the last position that is handed out to a caller of `next`, until `lease_expires_at`; None: none is
    acknowledged_at   when it acknowledged something last
    """

    name: str
    position: int
    types: list[str] | None
    behind: int
    created_at: datetime
    acknowledged_at: datetime | None
    lease_position: int | None
    lease_expires_at: datetime | None


class EventBatch(Value):
    """Events that `consumers.next` hands out until `expires_at`, in the order of their positions. It is false if it is empty.

    position    the position to acknowledge; of an empty batch the one to watch for later events from
    token       the lease's number, for `ack`; that of a later lease of the same consumer is greater
    expires_at  when another caller gets the same events (store clock); None if the batch is empty
    """

    consumer: str
    events: list[Event]
    position: int
    token: int
    expires_at: datetime | None

    def __bool__(self) -> bool:
        return bool(self.events)


TYPES = {
    "ChatSessions.create": "session.created",
    "ChatSessions.update_metadata": "session.updated",
    "ChatSessions.archive": "session.archived",
    "ChatSessions.unarchive": "session.unarchived",
    "ChatSessions.delete": "session.deleted",
    "ChatSessions.fork": "session.forked",
    "ChatSessions.rewind": "session.rewound",
    "ChatSessions.unrewind": "session.unrewound",
    "ChatSessions.request_stop": "turn.stop_requested",
    "ChatSessions.add_permission": "session.permission_added",
    "ChatSessions.remove_permission": "session.permission_removed",
    "ChatMessages.append": "message.appended",
    "ChatMessages.sync": "session.synced",
    "ChatMessages.delete": "message.deleted",
    "ChatMessages.update_metadata": "message.updated",
    "ChatMessages.compact": "session.compacted",
    "ChatMessages.enqueue": "message.queued",
    "ChatMessages.claim_queued": "message.claimed",
    "ChatMessages.cancel_queued": "message.canceled",
    "ChatMessages.record_step_usage": "usage.recorded",
    "ChatMessages.answer_approval": "approval.answered",
    "ChatMessages.repair_interrupted": "session.repaired",
    "SessionItems.add": "message.appended",
    "SessionItems.pop": "message.deleted",
    "SessionItems.clear": "session.cleared",
    "SessionItems.replace_tail": "session.compacted",
    "SessionItems.replace_all": "session.compacted",
    "SystemPrompts.put": "prompt.stored",
    "turn.started": "turn.started",
    "turn.ended": "turn.ended",
    "turn.failed": "turn.failed",
    "message.started": "message.started",
    "message.updated": "message.updated",
    "message.finished": "message.finished",
    "part.delta": "part.delta",
    "part.written": "part.written",
    "part.removed": "part.removed",
    "usage.recorded": "usage.recorded",
    "Runs.create": "run.created",
    "Runs.append_phase": "run.phase_appended",
    "Runs.merge_scratch": "run.scratch_merged",
    "Runs.update_node_status": "run.node_updated",
    "Runs.finish": "run.finished",
    "Runs.complete": "run.completed",
    "Runs.cancel": "run.cancelled",
    "Runs.expire_queued": "run.expired",
    "Runs.pause": "run.paused",
    "Runs.resume": "run.resumed",
    "Runs.admit": "run.started",
    "Runs.requeue": "run.requeued",
    "Runs.restart": "run.restarted",
    "Runs.increment_restart_count": "run.restart_counted",
    "Runs.recover_interrupted": "run.recovered",
    "Runs.claim": "run.claimed",
    "Runs.renew": "run.renewed",
    "Runs.release": "run.released",
    "Runs.sleep_until": "run.delayed",
    "Runs.join": "run.joined",
    "Executions.start": "execution.started",
    "Executions.set_session": "execution.updated",
    "Executions.finish": "execution.finished",
    "Executions.set_output": "execution.output_set",
    "Executions.skip": "execution.skipped",
    "Executions.mark_stale": "execution.failed",
    "Executions.veto_latest": "execution.vetoed",
    "Approvals.request": "approval.requested",
    "Approvals.respond": "approval.resolved",
    "Approvals.resolve_reply": "approval.resolved",
    "Approvals.pause_for_approval": "approval.requested",
    "Approvals.wait": "approval.requested",
    "Approvals.resolve_and_resume": "approval.resolved",
    "Approvals.resolve_and_fail": "approval.resolved",
    "Approvals.expire_due": "approval.expired",
    "Phases.begin": "phase.begun",
    "Phases.finish": "phase.finished",
    "Phases.fail": "phase.failed",
    "Effects.begin": "effect.begun",
    "Effects.complete": "effect.done",
    "Effects.fail": "effect.failed",
    "Signals.send": "signal.sent",
    "Signals.take": "signal.taken",
    "Signals.wait": "signal.awaited",
    "Signals.expire_due": "signal.timed_out",
    "Schedules.set": "schedule.set",
    "Schedules.remove": "schedule.removed",
    "Schedules.fire_due": "schedule.fired",
    "Limits.set": "limit.set",
    "Limits.delete": "limit.deleted",
    "CronOverrides.set": "cron_override.set",
    "CronOverrides.clear": "cron_override.cleared",
    "WorkflowOverrides.set": "workflow_override.set",
    "WorkflowOverrides.clear": "workflow_override.cleared",
    "MessagingSessions.get_or_create": "session.opened",
    "MessagingSessions.touch": "session.touched",
    "MessagingSessions.deactivate": "session.deactivated",
    "MessagingSessions.set_agent_session": "session.updated",
    "MessagingSessions.cleanup_stale": "session.deleted",
    "MessagingMessages.add": "message.added",
    "AppSessions.create": "session.created",
    "AppSessions.append": "event.appended",
    "AppSessions.delete": "session.deleted",
    "AppSessions.erase_user": "user.erased",
    "AppArtifacts.save": "artifact.saved",
    "AppArtifacts.delete": "artifact.deleted",
    "AppMemories.replace": "memory.stored",
    "AppMemories.add": "memory.stored",
    "AppMemories.delete": "memory.deleted",
    "CheckpointStates.put": "checkpoint.stored",
    "CheckpointStates.put_writes": "checkpoint.written",
    "CheckpointThreads.delete": "thread.deleted",
    "CheckpointThreads.copy": "thread.copied",
    "CheckpointThreads.keep_latest": "thread.trimmed",
    "CheckpointThreads.delete_runs": "run.deleted",
    "Memories.put": "memory.stored",
    "Memories.delete": "memory.deleted",
    "Memories.refresh": "memory.refreshed",
    "Memories.sweep": "memory.expired",
    "HistoryRecords.put": "history.stored",
    "HistoryRecords.delete": "history.deleted",
    "HistoryRuns.register": "run.registered",
    "HistoryRuns.delete": "run.deleted",
    "RunEvents.append": "run.event_appended",
    "RunSnapshots.save": "run.snapshot_saved",
    "ToolEffects.put": "tool_effect.noted",
    "ConvSessions.create": "session.created",
    "ConvSessions.update": "session.updated",
    "ConvSessions.touch": "session.touched",
    "ConvSessions.set_status": "session.status_changed",
    "ConvSessions.delete": "session.deleted",
    "ConvSessions.prune": "session.pruned",
    "Branches.create": "branch.created",
    "Branches.delete": "branch.deleted",
    "Branches.fork": "branch.forked",
    "Branches.update": "branch.updated",
    "Branches.update_metadata": "branch.updated",
    "Branches.set_status": "branch.status_changed",
    "Branches.set_system_message": "branch.updated",
    "Branches.finalize": "branch.finalized",
    "ConvMessages.put": "message.put",
    "ConvMessages.put_many": "message.put",
    "ConvMessages.delete": "message.deleted",
    "ConvMessages.record": "message.recorded",
    "Progressions.create": "progression.created",
    "Progressions.append": "progression.appended",
    "Progressions.replace": "progression.replaced",
    "Progressions.insert": "progression.message_inserted",
    "Progressions.remove": "progression.message_removed",
    "Exchange.send": "message.sent",
    "Exchange.post": "message.sent",
    "Exchange.mark_read": "message.read",
    "StatusLog.record": "status.changed",
    "StatusLog.trim": "status.trimmed",
    "AgentTags.record": "tag.recorded",
    "GithubLinks.upsert": "link.fetched",
    "GithubLinks.record_error": "link.failed",
    "UsageSamples.sample": "usage.sampled",
    "UsageSamples.trim": "usage.trimmed",
    "ToolHistory.record": "tool.recorded",
    "ToolHistory.trim": "tool.trimmed",
    "Tasks.poll": "task.discovered",
    "Tasks.claim": "task.claimed",
    "Tasks.renew": "task.renewed",
    "Tasks.complete": "task.completed",
    "Tasks.fail": "task.failed",
    "Tasks.retry": "task.retried",
    "Tasks.cancel": "task.cancelled",
    "Tasks.purge": "task.purged",
    "ProgramRuns.create": "run.created",
    "ProgramRuns.finish": "run.finished",
    "ProgramRuns.resume": "run.resumed",
    "ProgramRuns.seen": "run.seen",
    "ProgramExecutions.begin": "execution.begun",
    "ProgramExecutions.start": "execution.started",
    "ProgramExecutions.update": "execution.updated",
    "ProgramExecutions.complete": "execution.completed",
    "ProgramExecutions.fail": "execution.failed",
    "ProgramExecutions.skip": "execution.skipped",
    "ProgramExecutions.set_iteration": "execution.iterated",
    "ProgramExecutions.record_retry": "execution.retried",
    "Bindings.bind": "binding.bound",
    "Bindings.bind_file": "binding.bound",
    "Agents.start": "agent.started",
    "Agents.remember": "agent.remembered",
    "Agents.add_segment": "agent.segment_added",
    "Subagents.start": "subagent.started",
    "Subagents.end": "subagent.ended",
    "Subagents.take_in": "subagent.taken_in",
    "TranscriptEntries.append": "entry.appended",
    "TranscriptSessions.delete": "transcript.deleted",
    "AgentTasks.save": "agent_task.saved",
    "AgentTasks.delete": "agent_task.deleted",
    "AgentTaskWebhooks.set": "agent_task_webhook.set",
    "AgentTaskWebhooks.delete": "agent_task_webhook.deleted",
    "ReplayMessages.append": "replay_message.appended",
    "ReplaySessions.delete": "replay_session.deleted",
    "Imports.add": "import.added",
    "UsageCalls.record": "usage.recorded",
    "UsageBudgets.set": "budget.set",
    "UsageBudgets.delete": "budget.deleted",
    "budget.warned": "budget.warned",
    "budget.exceeded": "budget.exceeded",
}
"""Event types by the verb that made the changes, or by the name that the recorder gave to a flush."""

OTHER = "rows.changed"
"""The type of changes by anything not in TYPES, such as maintenance or an import."""
