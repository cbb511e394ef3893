"""The registry of domains: transactions, pruning, the doctor and others that visit every domain read it.

A domain is a package with `models.py`, `repository.py` and `upkeep.py`, which are imported at their first use.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from persist.db.transactions.repository import Domain, F, on_demand
from persist.lazy_imports import lazy_module

if TYPE_CHECKING:
    from persist.blobs import repository as blobs
    from persist.chat import repository as chat
    from persist.conversations import repository as conversations
    from persist.db.operations.upkeep import Upkeep
    from persist.events import repository as events
    from persist.framework_state.agent_tasks import repository as agent_tasks
    from persist.framework_state.app_sessions import repository as app_sessions
    from persist.framework_state.checkpoints import repository as checkpoints
    from persist.framework_state.histories import repository as histories
    from persist.framework_state.replay_streams import repository as replay_streams
    from persist.framework_state.transcripts import repository as transcripts
    from persist.messaging import repository as messaging
    from persist.programs import repository as programs
    from persist.telemetry import repository as telemetry
    from persist.usage import repository as usage
    from persist.workflows import repository as workflows
else:
    for _name in ("blobs", "chat", "conversations", "events", "messaging", "programs", "telemetry", "usage", "workflows"):
        globals()[_name] = lazy_module(f"persist.{_name}.repository")
    for _name in ("agent_tasks", "app_sessions", "checkpoints", "histories", "replay_streams", "transcripts"):
        globals()[_name] = lazy_module(f"persist.framework_state.{_name}.repository")


class Domains(Domain[F]):
    """`<domain>.<aggregate>.<verb>`: every domain's repositories, made at first use. An export looks in this order."""

    chat = on_demand(find=lambda: chat.Chat[F])
    conversations = on_demand(find=lambda: conversations.Conversations[F])
    messaging = on_demand(find=lambda: messaging.Messaging[F])
    workflows = on_demand(find=lambda: workflows.Workflows[F])
    # its package imports the store: mypy knows the parameter of the class in a type only
    programs: "on_demand[programs.Programs[F]]" = on_demand(find=lambda: programs.Programs)
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
    """The names of the domains."""
    return [name for name, value in vars(Domains).items() if isinstance(value, on_demand)]


@cache
def packages() -> Mapping[str, str]:
    """The package of each domain, by its name: persist.chat, persist.framework_state.checkpoints."""
    stand_ins = globals()
    return {name: str(stand_ins.get(name, f"persist.{name}.repository")).rpartition(".")[0] for name in names()}


def domain_of_module(module: str) -> str:
    """The domain that a module of persist belongs to; elsewhere the part of persist that it is in, or nothing."""
    found = (name for name, package in packages().items() if module.startswith(f"{package}."))
    return next(found, module.partition(".")[2].partition(".")[0])


def import_models() -> None:
    """Import the tables of every domain, which registers them in the metadata."""
    for package in packages().values():
        import_module(f"{package}.models")


@cache
def upkeeps() -> "Mapping[str, Upkeep]":
    """The upkeep of each domain, in the order of the registry. The tables of all domains are imported before."""
    import_models()
    return {name: import_module(f"{package}.upkeep").UPKEEP for name, package in packages().items()}
