"""persist keeps the durable state of AI-agent systems: runs, conversations, costs, and where to resume."""

from typing import TYPE_CHECKING

from persist.errors import BlobUnreadable as BlobUnreadable
from persist.errors import BudgetExceeded as BudgetExceeded
from persist.errors import Closed as Closed
from persist.errors import Conflict as Conflict
from persist.errors import CopyUnfinished as CopyUnfinished
from persist.errors import EffectUnknown as EffectUnknown
from persist.errors import InvalidValue as InvalidValue
from persist.errors import LeaseLost as LeaseLost
from persist.errors import MigrationFailed as MigrationFailed
from persist.errors import NotFound as NotFound
from persist.errors import NotPermitted as NotPermitted
from persist.errors import PayloadTooLarge as PayloadTooLarge
from persist.errors import PersistError as PersistError
from persist.errors import ReadOnlyTransaction as ReadOnlyTransaction
from persist.errors import RecursionLimitExceeded as RecursionLimitExceeded
from persist.errors import RunHeld as RunHeld
from persist.errors import SchemaOutdated as SchemaOutdated
from persist.errors import SchemaTooNew as SchemaTooNew
from persist.errors import SchemaUnknown as SchemaUnknown
from persist.errors import StoreBusy as StoreBusy
from persist.errors import StoreCorrupt as StoreCorrupt
from persist.errors import StoreForked as StoreForked
from persist.errors import StoreFull as StoreFull
from persist.errors import StoreInUse as StoreInUse
from persist.errors import StreamProtocolError as StreamProtocolError
from persist.errors import TransactionAborted as TransactionAborted
from persist.errors import TransactionOpen as TransactionOpen
from persist.errors import TransitionError as TransitionError
from persist.errors import Unavailable as Unavailable
from persist.errors import UnknownTenant as UnknownTenant
from persist.errors import UnmanagedDatabase as UnmanagedDatabase
from persist.errors import UnreadableRow as UnreadableRow
from persist.errors import UnsupportedEngine as UnsupportedEngine
from persist.errors import WrongOwner as WrongOwner
from persist.lazy_imports import lazy_names

if TYPE_CHECKING:
    from persist.blobs.body_stores import BlobStore as BlobStore
    from persist.blobs.repository import BlobReader as BlobReader
    from persist.blobs.schemas import Blob as Blob
    from persist.chat import schemas as _chat
    from persist.chat.following.follower import AsyncFollower as AsyncFollower
    from persist.chat.following.follower import Follower as Follower
    from persist.chat.recording.async_recorder import AsyncRecorder as AsyncRecorder
    from persist.chat.recording.recorder import Recorder as Recorder
    from persist.chat.recording.recording import RecordOptions as RecordOptions
    from persist.chat.schemas import ChatMessage as ChatMessage
    from persist.chat.schemas import ChatSession as ChatSession
    from persist.chat.schemas import ChatTurn as ChatTurn
    from persist.chat.schemas import SyncedMessages as SyncedMessages
    from persist.chat.storage.usage import StepTokens as StepTokens
    from persist.conversations import schemas as _conversations
    from persist.conversations.schemas import Branch as Branch
    from persist.conversations.schemas import ConvMessage as ConvMessage
    from persist.conversations.schemas import ConvSession as ConvSession
    from persist.conversations.schemas import InvocationKind as InvocationKind
    from persist.conversations.schemas import Progression as Progression
    from persist.conversations.schemas import SourceKind as SourceKind
    from persist.conversations.schemas import StatusChange as StatusChange
    from persist.conversations.schemas import StatusTransition as StatusTransition
    from persist.db.dialects.backends import prepare_engine as prepare_engine
    from persist.db.values.pages import Page as Page
    from persist.db.values.pages import PagedList as PagedList
    from persist.events.schemas import Consumer as Consumer
    from persist.events.schemas import Event as Event
    from persist.events.schemas import EventBatch as EventBatch
    from persist.framework_state.agent_tasks import schemas as _agent_tasks
    from persist.framework_state.agent_tasks.schemas import AgentTask as AgentTask
    from persist.framework_state.app_sessions import schemas as _app_sessions
    from persist.framework_state.app_sessions.schemas import AppSession as AppSession
    from persist.framework_state.app_sessions.schemas import AppSessionEvent as AppSessionEvent
    from persist.framework_state.checkpoints import schemas as _checkpoints
    from persist.framework_state.checkpoints.schemas import ChannelHistory as ChannelHistory
    from persist.framework_state.checkpoints.schemas import Checkpoint as Checkpoint
    from persist.framework_state.checkpoints.schemas import CheckpointThread as CheckpointThread
    from persist.framework_state.checkpoints.schemas import Memory as Memory
    from persist.framework_state.histories import schemas as _histories
    from persist.framework_state.histories.schemas import EffectStatus as EffectStatus
    from persist.framework_state.histories.schemas import History as History
    from persist.framework_state.histories.schemas import HistoryRun as HistoryRun
    from persist.framework_state.histories.schemas import LoadedSnapshot as LoadedSnapshot
    from persist.framework_state.histories.schemas import RunEvent as RunEvent
    from persist.framework_state.histories.schemas import SnapshotState as SnapshotState
    from persist.framework_state.histories.schemas import ToolEffect as ToolEffect
    from persist.framework_state.replay_streams import schemas as _replay_streams
    from persist.framework_state.replay_streams.schemas import ReplayMessage as ReplayMessage
    from persist.framework_state.replay_streams.schemas import ReplaySession as ReplaySession
    from persist.framework_state.transcripts.schemas import Transcript as Transcript
    from persist.maintenance.copying import CopyReport as CopyReport
    from persist.messaging.schemas import MessagingMessage as MessagingMessage
    from persist.messaging.schemas import MessagingRole as MessagingRole
    from persist.messaging.schemas import MessagingSession as MessagingSession
    from persist.programs import schemas as _programs
    from persist.programs.schemas import Isolation as Isolation
    from persist.programs.schemas import ProgramExecution as ProgramExecution
    from persist.programs.schemas import ProgramRun as ProgramRun
    from persist.programs.schemas import RefusedRow as RefusedRow
    from persist.programs.schemas import ResumePoint as ResumePoint
    from persist.programs.schemas import ServerAccess as ServerAccess
    from persist.programs.schemas import StartedSubagent as StartedSubagent
    from persist.programs.schemas import Subagent as Subagent
    from persist.programs.schemas import TakenIn as TakenIn
    from persist.programs.schemas import TakenRow as TakenRow
    from persist.schema.metadata import include_name as include_name
    from persist.schema.metadata import include_object as include_object
    from persist.schema.migrate import check as check
    from persist.schema.migrate import current as current
    from persist.schema.migrate import upgrade as upgrade
    from persist.schema.opening import schema_map as schema_map
    from persist.settings import AiSdk as AiSdk
    from persist.settings import SaveOn as SaveOn
    from persist.settings import Settings as Settings
    from persist.store.async_store import AsyncStore as AsyncStore
    from persist.store.async_store import AsyncTransaction as AsyncTransaction
    from persist.store.store import Store as Store
    from persist.store.transaction import Transaction as Transaction
    from persist.store.transaction import TransactionBlock as TransactionBlock
    from persist.telemetry import schemas as _telemetry
    from persist.telemetry.schemas import AgentTag as AgentTag
    from persist.telemetry.schemas import GithubLink as GithubLink
    from persist.telemetry.schemas import LinkKind as LinkKind
    from persist.telemetry.schemas import StatusEntry as StatusEntry
    from persist.telemetry.schemas import TagKind as TagKind
    from persist.telemetry.schemas import TaskState as TaskState
    from persist.telemetry.schemas import ToolCall as ToolCall
    from persist.telemetry.schemas import UsageSample as UsageSample
    from persist.telemetry.schemas import UsageTotals as UsageTotals
    from persist.tenants.placing import Tenant as Tenant
    from persist.tenants.placing import UpgradeOutcome as UpgradeOutcome
    from persist.tenants.placing import UpgradeReport as UpgradeReport
    from persist.tenants.placing import UpgradeStatus as UpgradeStatus
    from persist.tenants.tenants import AsyncTenants as AsyncTenants
    from persist.tenants.tenants import TenantOpening as TenantOpening
    from persist.tenants.tenants import Tenants as Tenants
    from persist.usage import schemas as _usage
    from persist.usage.schemas import Budget as Budget
    from persist.usage.schemas import BudgetStanding as BudgetStanding
    from persist.usage.schemas import CallFields as CallFields
    from persist.usage.schemas import UsageCall as UsageCall
    from persist.usage.schemas import UsageFilters as UsageFilters
    from persist.usage.schemas import UsageSum as UsageSum
    from persist.workflows import schemas as _workflows
    from persist.workflows.schemas import Approval as Approval
    from persist.workflows.schemas import ApprovalKind as ApprovalKind
    from persist.workflows.schemas import ApprovalStatus as ApprovalStatus
    from persist.workflows.schemas import CatchUp as CatchUp
    from persist.workflows.schemas import ChatThread as ChatThread
    from persist.workflows.schemas import CronOverride as CronOverride
    from persist.workflows.schemas import Effect as Effect
    from persist.workflows.schemas import EffectState as EffectState
    from persist.workflows.schemas import Execution as Execution
    from persist.workflows.schemas import ExecutionStats as ExecutionStats
    from persist.workflows.schemas import FailureKind as FailureKind
    from persist.workflows.schemas import FamilyTotals as FamilyTotals
    from persist.workflows.schemas import JoinUntil as JoinUntil
    from persist.workflows.schemas import Lease as Lease
    from persist.workflows.schemas import OnExpiry as OnExpiry
    from persist.workflows.schemas import Phase as Phase
    from persist.workflows.schemas import RunStatus as RunStatus
    from persist.workflows.schemas import Schedule as Schedule
    from persist.workflows.schemas import Signal as Signal
    from persist.workflows.schemas import StatsBucket as StatsBucket
    from persist.workflows.schemas import WorkflowOverride as WorkflowOverride
    from persist.workflows.schemas import WorkflowRun as WorkflowRun
    from persist.workflows.schemas import WorkflowRunSummary as WorkflowRunSummary
    from persist.workflows.steps import AsyncPhaseBlock as AsyncPhaseBlock
    from persist.workflows.steps import AsyncStep as AsyncStep
    from persist.workflows.steps import PhaseBlock as PhaseBlock
    from persist.workflows.steps import Step as Step
    from persist.workflows.storage.execution_rows import ExecutionTotals as ExecutionTotals
    from persist.workflows.verbs.run_reads import CountFilters as CountFilters
    from persist.workflows.verbs.run_reads import RunFilters as RunFilters

    LoadedAgentTask = _agent_tasks.LoadedTask
    AgentTaskPiece = _agent_tasks.Piece
    AgentTaskPage = _agent_tasks.TaskPage
    AgentTaskWebhook = _agent_tasks.Webhook
    AppendedEvents = _app_sessions.Appended
    AppArtifact = _app_sessions.Artifact
    AppArtifactKey = _app_sessions.ArtifactKey
    AppArtifactVersion = _app_sessions.ArtifactVersion
    FoundAppMemory = _app_sessions.FoundMemory
    AppEventsInHand = _app_sessions.InHand
    LoadedAppSession = _app_sessions.LoadedSession
    NewAppEvent = _app_sessions.NewEvent
    NewAppMemory = _app_sessions.NewMemory
    AppStateChange = _app_sessions.StateChange
    ChatRole = _chat.Role
    CheckpointBlob = _checkpoints.Blob
    LoadedCheckpoint = _checkpoints.Loaded
    PendingCheckpointWrite = _checkpoints.PendingWrite
    CheckpointWrite = _checkpoints.Write
    ConversationsPruned = _conversations.PruneReport
    ConversationStatus = _conversations.Status
    HistoryEntry = _histories.Entry
    HistoryMessage = _histories.Message
    NewHistoryEntry = _histories.NewEntry
    RunSnapshot = _histories.Snapshot
    ProgramAgent = _programs.Agent
    ProgramAgentScope = _programs.AgentScope
    ProgramAgentSegment = _programs.AgentSegment
    ProgramAuditFinding = _programs.AuditFinding
    ProgramBinding = _programs.Binding
    ProgramBindingKind = _programs.BindingKind
    ProgramExecutionStatus = _programs.ExecutionStatus
    ProgramImport = _programs.Import
    ProgramLoop = _programs.Loop
    ProgramParallelBlock = _programs.ParallelBlock
    ProgramRunStatus = _programs.RunStatus
    MissedMessages = _replay_streams.Missed
    TelemetryTask = _telemetry.Task
    BudgetPeriod = _usage.Period
    RunChildren = _workflows.Children
    RunLimit = _workflows.Limit
lazy_names(globals())

__version__ = "0.1.0"
