"""The declarative classes of persist's tables, for a host's own queries with SQLAlchemy.

A class has the name of the value that the verbs return, and the columns of its table: `select(ChatSession)`. Relationships
between them are for reading alone. The tables stand in a schema "persist" that has another name, or none, in each database:
give the engine of the query `store.execution_options()`, or `persist.schema_map(url)` in its `schema_translate_map`. Write
through the verbs.
"""

from typing import TYPE_CHECKING

from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.blobs import models as _blobs
    from persist.chat import models as _chat
    from persist.conversations import models as _conversations
    from persist.events import models as _events
    from persist.framework_state.agent_tasks import models as _agent_tasks
    from persist.framework_state.app_sessions import models as _app_sessions
    from persist.framework_state.checkpoints import models as _checkpoints
    from persist.framework_state.histories import models as _histories
    from persist.framework_state.replay_streams import models as _replay_streams
    from persist.framework_state.transcripts import models as _transcripts
    from persist.messaging import models as _messaging
    from persist.programs import models as _programs
    from persist.telemetry import models as _telemetry
    from persist.usage import models as _usage
    from persist.workflows import models as _workflows

    Blob = _blobs.BlobRow
    ChatMessage = _chat.ChatMessageRow
    ChatPart = _chat.ChatPartRow
    ChatSession = _chat.ChatSessionRow
    ChatStepUsage = _chat.ChatStepUsageRow
    ChatTurn = _chat.ChatTurnRow
    SystemPrompt = _chat.SystemPromptRow
    Branch = _conversations.BranchRow
    ConvMessage = _conversations.MessageRow
    ConvSession = _conversations.SessionRow
    Progression = _conversations.ProgressionRow
    ProgressionMember = _conversations.ProgressionMemberRow
    StatusTransition = _conversations.StatusTransitionRow
    Consumer = _events.EventConsumerRow
    Event = _events.EventRow
    AgentTask = _agent_tasks.AgentTaskRow
    AppArtifact = _app_sessions.AppArtifactRow
    AppSession = _app_sessions.AppSessionRow
    AppSessionEvent = _app_sessions.AppSessionEventRow
    CheckpointThread = _checkpoints.CheckpointThreadRow
    Memory = _checkpoints.MemoryRow
    History = _histories.HistoryRow
    HistoryRun = _histories.HistoryRunRow
    ReplayMessage = _replay_streams.ReplayMessageRow
    ReplaySession = _replay_streams.ReplaySessionRow
    Transcript = _transcripts.TranscriptRow
    MessagingMessage = _messaging.MessagingMessageRow
    MessagingSession = _messaging.MessagingSessionRow
    ProgramAgent = _programs.AgentRow
    ProgramAgentSegment = _programs.AgentSegmentRow
    ProgramBinding = _programs.BindingRow
    ProgramExecution = _programs.ExecutionRow
    ProgramImport = _programs.ImportRow
    ProgramRun = _programs.RunRow
    Subagent = _programs.SubagentRow
    AgentTag = _telemetry.AgentTagRow
    GithubLink = _telemetry.GithubLinkStatusRow
    StatusEntry = _telemetry.StatusLogRow
    TelemetryTask = _telemetry.TaskRow
    ToolCall = _telemetry.ToolHistoryRow
    UsageSample = _telemetry.UsageSampleRow
    Budget = _usage.UsageBudgetRow
    UsageCall = _usage.UsageCallRow
    UsageRollup = _usage.UsageRollupRow
    Approval = _workflows.WorkflowApprovalRow
    CronOverride = _workflows.CronOverrideRow
    Effect = _workflows.WorkflowEffectRow
    Execution = _workflows.ExecutionRow
    RunLimit = _workflows.WorkflowLimitRow
    Schedule = _workflows.WorkflowScheduleRow
    Signal = _workflows.WorkflowSignalRow
    WorkflowOverride = _workflows.WorkflowOverrideRow
    WorkflowRun = _workflows.WorkflowRunRow

lazy_names(globals())
