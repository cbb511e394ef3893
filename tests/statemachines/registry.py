"""Every machine: one a domain."""

from tests.statemachines.agent_tasks import AgentTasks
from tests.statemachines.app_sessions import AppSessions
from tests.statemachines.blobs import Blobs
from tests.statemachines.chat import Chat
from tests.statemachines.checkpoints import Checkpoints
from tests.statemachines.conversations import Conversations
from tests.statemachines.events import Events
from tests.statemachines.histories import Histories
from tests.statemachines.machine import Machine
from tests.statemachines.messaging import Messaging
from tests.statemachines.programs import Programs
from tests.statemachines.replay_streams import ReplayStreams
from tests.statemachines.telemetry import Telemetry
from tests.statemachines.transcripts import Transcripts
from tests.statemachines.workflows import Workflows

MACHINES: tuple[type[Machine], ...] = (
    AgentTasks,
    AppSessions,
    Blobs,
    Chat,
    Checkpoints,
    Conversations,
    Events,
    Histories,
    Messaging,
    Programs,
    ReplayStreams,
    Telemetry,
    Transcripts,
    Workflows,
)
