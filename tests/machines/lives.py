"""Every machine: one a domain."""

from tests.machines.chat import Chat
from tests.machines.checkpoints import Checkpoints
from tests.machines.conversations import Conversations
from tests.machines.events import Events
from tests.machines.machine import Machine
from tests.machines.messaging import Messaging
from tests.machines.programs import Programs
from tests.machines.telemetry import Telemetry
from tests.machines.workflows import Workflows

MACHINES: tuple[type[Machine], ...] = (
    Chat,
    Checkpoints,
    Conversations,
    Events,
    Messaging,
    Programs,
    Telemetry,
    Workflows,
)
