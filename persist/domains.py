"""The registry of domains: whatever goes through all of them, such as transactions, pruning and the doctor, reads it.

A domain is a package with `models.py`, `repository.py` and `upkeep.py`, which are imported at their first use.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from persist.db.transactions.repository import Domain, F, on_demand
from persist.lazy_imports import lazy_modules

if TYPE_CHECKING:
    from persist.db.operations.upkeep import Upkeep

with lazy_modules(globals()):
    from persist.agent_tasks import repository as agent_tasks
    from persist.app_sessions import repository as app_sessions
    from persist.blobs import repository as blobs
    from persist.chat import repository as chat
    from persist.checkpoints import repository as checkpoints
    from persist.conversations import repository as conversations
    from persist.events import repository as events
    from persist.histories import repository as histories
    from persist.messaging import repository as messaging
    from persist.programs import repository as programs
    from persist.replay_streams import repository as replay_streams
    from persist.telemetry import repository as telemetry
    from persist.transcripts import repository as transcripts
    from persist.usage import repository as usage
    from persist.workflows import repository as workflows


class Domains(Domain[F]):
    """`<domain>.<aggregate>.<verb>`: the repositories of every domain, made at their first use.

    An export looks for its id in this order.
    """

    chat = on_demand(find=lambda: chat.Chat[F])
    conversations = on_demand(find=lambda: conversations.Conversations[F])
    messaging = on_demand(find=lambda: messaging.Messaging[F])
    workflows = on_demand(find=lambda: workflows.Workflows[F])
    programs = on_demand(find=lambda: programs.Programs[F])
    checkpoints = on_demand(find=lambda: checkpoints.Checkpoints[F])
    histories = on_demand(find=lambda: histories.Histories[F])
    transcripts = on_demand(find=lambda: transcripts.Transcripts[F])
    app_sessions = on_demand(find=lambda: app_sessions.AppSessionsDomain[F])
    replay_streams = on_demand(find=lambda: replay_streams.ReplayStreams[F])
    agent_tasks = on_demand(find=lambda: agent_tasks.AgentTaskDomain[F])
    telemetry = on_demand(find=lambda: telemetry.Telemetry[F])
    usage = on_demand(find=lambda: usage.Usage[F])
    events = on_demand(find=lambda: events.Events[F])
    blobs = on_demand(find=lambda: blobs.Blobs[F])


def names() -> list[str]:
    """The names of the domains and of their packages."""
    return [name for name, value in vars(Domains).items() if isinstance(value, on_demand)]


def import_models() -> None:
    """Import the tables of every domain, which registers them in the metadata."""
    for name in names():
        import_module(f"persist.{name}.models")


@cache
def upkeeps() -> "Mapping[str, Upkeep]":
    """The upkeep of each domain, in the order of the registry. The tables of all domains are imported before."""
    import_models()
    return {name: import_module(f"persist.{name}.upkeep").UPKEEP for name in names()}
