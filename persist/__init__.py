"""persist keeps the durable state of AI-agent systems: what runs, what was said, what it cost, where to resume."""

from persist.errors import (
    BlobUnreadable,
    BudgetExceeded,
    Closed,
    Conflict,
    CopyUnfinished,
    EffectUnknown,
    InvalidValue,
    LeaseLost,
    MigrationFailed,
    NotFound,
    NotPermitted,
    PayloadTooLarge,
    PersistError,
    ReadOnlyTransaction,
    RecursionLimitExceeded,
    RunHeld,
    SchemaOutdated,
    SchemaTooNew,
    SchemaUnknown,
    StoreBusy,
    StoreCorrupt,
    StoreForked,
    StoreFull,
    StoreInUse,
    StreamProtocolError,
    TransactionAborted,
    TransactionOpen,
    TransitionError,
    Unavailable,
    UnknownTenant,
    UnmanagedDatabase,
    UnreadableRow,
    UnsupportedEngine,
    WrongOwner,
)
from persist.lazy_imports import lazy_names

with lazy_names(globals()):
    from persist.agent_tasks.schemas import AgentTask
    from persist.agent_tasks.schemas import LoadedTask as LoadedAgentTask
    from persist.agent_tasks.schemas import Piece as AgentTaskPiece
    from persist.agent_tasks.schemas import TaskPage as AgentTaskPage
    from persist.agent_tasks.schemas import Webhook as AgentTaskWebhook
    from persist.app_sessions.schemas import Appended as AppendedEvents
    from persist.app_sessions.schemas import AppSession, AppSessionEvent
    from persist.app_sessions.schemas import Artifact as AppArtifact
    from persist.app_sessions.schemas import ArtifactKey as AppArtifactKey
    from persist.app_sessions.schemas import ArtifactVersion as AppArtifactVersion
    from persist.app_sessions.schemas import FoundMemory as FoundAppMemory
    from persist.app_sessions.schemas import InHand as AppEventsInHand
    from persist.app_sessions.schemas import LoadedSession as LoadedAppSession
    from persist.app_sessions.schemas import NewEvent as NewAppEvent
    from persist.app_sessions.schemas import NewMemory as NewAppMemory
    from persist.app_sessions.schemas import StateChange as AppStateChange
    from persist.blobs.body_stores import BlobStore
    from persist.blobs.reader import BlobReader
    from persist.blobs.schemas import Blob
    from persist.chat.following.follower import AsyncFollower, Follower
    from persist.chat.recording.async_recorder import AsyncRecorder
    from persist.chat.recording.options import RecordOptions
    from persist.chat.recording.recorder import Recorder
    from persist.chat.schemas import ChatMessage, ChatSession, ChatTurn, SyncedMessages
    from persist.chat.schemas import Role as ChatRole
    from persist.checkpoints.schemas import Blob as CheckpointBlob
    from persist.checkpoints.schemas import ChannelHistory, Checkpoint, CheckpointThread, Memory
    from persist.checkpoints.schemas import Loaded as LoadedCheckpoint
    from persist.checkpoints.schemas import PendingWrite as PendingCheckpointWrite
    from persist.checkpoints.schemas import Write as CheckpointWrite
    from persist.conversations.schemas import (
        Branch,
        ConvMessage,
        ConvSession,
        InvocationKind,
        Progression,
        SourceKind,
        StatusTransition,
    )
    from persist.conversations.schemas import PruneReport as ConversationsPruned
    from persist.conversations.schemas import Status as ConversationStatus
    from persist.db.dialects.from_url import prepare_engine
    from persist.db.values.pages import Page, PagedList
    from persist.events.schemas import Consumer, Event, EventBatch
    from persist.histories.schemas import EffectStatus, History, HistoryRun, LoadedSnapshot, RunEvent, SnapshotState, ToolEffect
    from persist.histories.schemas import Entry as HistoryEntry
    from persist.histories.schemas import Message as HistoryMessage
    from persist.histories.schemas import NewEntry as NewHistoryEntry
    from persist.histories.schemas import Snapshot as RunSnapshot
    from persist.maintenance.copying import CopyReport
    from persist.messaging.schemas import MessagingMessage, MessagingRole, MessagingSession
    from persist.programs.schemas import Agent as ProgramAgent
    from persist.programs.schemas import AgentScope as ProgramAgentScope
    from persist.programs.schemas import AgentSegment as ProgramAgentSegment
    from persist.programs.schemas import AuditFinding as ProgramAuditFinding
    from persist.programs.schemas import Binding as ProgramBinding
    from persist.programs.schemas import BindingKind as ProgramBindingKind
    from persist.programs.schemas import ExecutionStatus as ProgramExecutionStatus
    from persist.programs.schemas import Import as ProgramImport
    from persist.programs.schemas import (
        Isolation,
        ProgramExecution,
        ProgramRun,
        RefusedRow,
        ResumePoint,
        ServerAccess,
        StartedSubagent,
        Subagent,
        TakenIn,
        TakenRow,
    )
    from persist.programs.schemas import Loop as ProgramLoop
    from persist.programs.schemas import ParallelBlock as ProgramParallelBlock
    from persist.programs.schemas import RunStatus as ProgramRunStatus
    from persist.replay_streams.schemas import Missed as MissedMessages
    from persist.replay_streams.schemas import ReplayMessage, ReplaySession
    from persist.schema.metadata import include_name
    from persist.schema.migrate import check, current, upgrade
    from persist.settings import AiSdk, SaveOn, Settings
    from persist.store.async_store import AsyncStore, AsyncTransaction
    from persist.store.store import Store
    from persist.store.transaction import Transaction, TransactionBlock
    from persist.telemetry.schemas import (
        AgentTag,
        GithubLink,
        LinkKind,
        StatusEntry,
        TagKind,
        TaskState,
        ToolCall,
        UsageSample,
        UsageTotals,
    )
    from persist.telemetry.schemas import Task as TelemetryTask
    from persist.tenants.async_tenants import AsyncTenants, TenantOpening
    from persist.tenants.schemas import Tenant, UpgradeOutcome, UpgradeReport, UpgradeStatus
    from persist.tenants.tenants import Tenants
    from persist.transcripts.schemas import Transcript
    from persist.usage.schemas import Budget, BudgetStanding, UsageCall, UsageSum
    from persist.usage.schemas import Period as BudgetPeriod
    from persist.workflows.family_values import Children as RunChildren
    from persist.workflows.family_values import FamilyTotals, JoinUntil, OnExpiry
    from persist.workflows.limit_values import Limit as RunLimit
    from persist.workflows.override_values import CronOverride, WorkflowOverride
    from persist.workflows.phase_blocks import AsyncPhaseBlock, PhaseBlock
    from persist.workflows.schedule_values import CatchUp, Schedule
    from persist.workflows.schemas import (
        Approval,
        ApprovalKind,
        ApprovalStatus,
        ChatThread,
        Effect,
        EffectState,
        Execution,
        ExecutionStats,
        FailureKind,
        Lease,
        Phase,
        RunStatus,
        Signal,
        StatsBucket,
        WorkflowRun,
        WorkflowRunSummary,
    )
    from persist.workflows.steps import AsyncStep, Step

__version__ = "0.1.0"

__all__ = [
    "AgentTag",
    "AgentTask",
    "AgentTaskPage",
    "AgentTaskPiece",
    "AgentTaskWebhook",
    "AiSdk",
    "AppArtifact",
    "AppArtifactKey",
    "AppArtifactVersion",
    "AppEventsInHand",
    "AppSession",
    "AppSessionEvent",
    "AppStateChange",
    "AppendedEvents",
    "Approval",
    "ApprovalKind",
    "ApprovalStatus",
    "AsyncFollower",
    "AsyncPhaseBlock",
    "AsyncRecorder",
    "AsyncStep",
    "AsyncStore",
    "AsyncTenants",
    "AsyncTransaction",
    "Blob",
    "BlobReader",
    "BlobStore",
    "BlobUnreadable",
    "Branch",
    "Budget",
    "BudgetExceeded",
    "BudgetPeriod",
    "BudgetStanding",
    "CatchUp",
    "ChannelHistory",
    "ChatMessage",
    "ChatRole",
    "ChatSession",
    "ChatThread",
    "ChatTurn",
    "Checkpoint",
    "CheckpointBlob",
    "CheckpointThread",
    "CheckpointWrite",
    "Closed",
    "Conflict",
    "Consumer",
    "ConvMessage",
    "ConvSession",
    "ConversationStatus",
    "ConversationsPruned",
    "CopyReport",
    "CopyUnfinished",
    "CronOverride",
    "Effect",
    "EffectState",
    "EffectStatus",
    "EffectUnknown",
    "Event",
    "EventBatch",
    "Execution",
    "ExecutionStats",
    "FailureKind",
    "FamilyTotals",
    "Follower",
    "FoundAppMemory",
    "GithubLink",
    "History",
    "HistoryEntry",
    "HistoryMessage",
    "HistoryRun",
    "InvalidValue",
    "InvocationKind",
    "Isolation",
    "JoinUntil",
    "Lease",
    "LeaseLost",
    "LinkKind",
    "LoadedAgentTask",
    "LoadedAppSession",
    "LoadedCheckpoint",
    "LoadedSnapshot",
    "Memory",
    "MessagingMessage",
    "MessagingRole",
    "MessagingSession",
    "MigrationFailed",
    "MissedMessages",
    "NewAppEvent",
    "NewAppMemory",
    "NewHistoryEntry",
    "NotFound",
    "NotPermitted",
    "OnExpiry",
    "Page",
    "PagedList",
    "PayloadTooLarge",
    "PendingCheckpointWrite",
    "PersistError",
    "Phase",
    "PhaseBlock",
    "ProgramAgent",
    "ProgramAgentScope",
    "ProgramAgentSegment",
    "ProgramAuditFinding",
    "ProgramBinding",
    "ProgramBindingKind",
    "ProgramExecution",
    "ProgramExecutionStatus",
    "ProgramImport",
    "ProgramLoop",
    "ProgramParallelBlock",
    "ProgramRun",
    "ProgramRunStatus",
    "Progression",
    "ReadOnlyTransaction",
    "RecordOptions",
    "Recorder",
    "RecursionLimitExceeded",
    "RefusedRow",
    "ReplayMessage",
    "ReplaySession",
    "ResumePoint",
    "RunChildren",
    "RunEvent",
    "RunHeld",
    "RunLimit",
    "RunSnapshot",
    "RunStatus",
    "SaveOn",
    "Schedule",
    "SchemaOutdated",
    "SchemaTooNew",
    "SchemaUnknown",
    "ServerAccess",
    "Settings",
    "Signal",
    "SnapshotState",
    "SourceKind",
    "StartedSubagent",
    "StatsBucket",
    "StatusEntry",
    "StatusTransition",
    "Step",
    "Store",
    "StoreBusy",
    "StoreCorrupt",
    "StoreForked",
    "StoreFull",
    "StoreInUse",
    "StreamProtocolError",
    "Subagent",
    "SyncedMessages",
    "TagKind",
    "TakenIn",
    "TakenRow",
    "TaskState",
    "TelemetryTask",
    "Tenant",
    "TenantOpening",
    "Tenants",
    "ToolCall",
    "ToolEffect",
    "Transaction",
    "TransactionAborted",
    "TransactionBlock",
    "TransactionOpen",
    "Transcript",
    "TransitionError",
    "Unavailable",
    "UnknownTenant",
    "UnmanagedDatabase",
    "UnreadableRow",
    "UnsupportedEngine",
    "UpgradeOutcome",
    "UpgradeReport",
    "UpgradeStatus",
    "UsageCall",
    "UsageSample",
    "UsageSum",
    "UsageTotals",
    "WorkflowOverride",
    "WorkflowRun",
    "WorkflowRunSummary",
    "WrongOwner",
    "check",
    "current",
    "include_name",
    "prepare_engine",
    "upgrade",
]
