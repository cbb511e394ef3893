"""The repositories of every domain over one asynchronous unit of work."""

from persist.db.transactions.async_transactions import AsyncWork
from persist.db.transactions.repository import on_demand
from persist.lazy_imports import lazy_modules

with lazy_modules(globals()):
    from persist.agent_tasks import aio as agent_tasks
    from persist.app_sessions import aio as app_sessions
    from persist.blobs import aio as blobs
    from persist.chat import aio as chat
    from persist.checkpoints import aio as checkpoints
    from persist.conversations import aio as conversations
    from persist.events import aio as events
    from persist.histories import aio as histories
    from persist.messaging import aio as messaging
    from persist.programs import aio as programs
    from persist.replay_streams import aio as replay_streams
    from persist.telemetry import aio as telemetry
    from persist.transcripts import aio as transcripts
    from persist.usage import aio as usage
    from persist.workflows import aio as workflows


class AsyncDomains:
    """See Domains: the repositories of every domain, whose verbs are coroutines."""

    agent_tasks = on_demand(lambda work: agent_tasks.AsyncAgentTaskDomain(work))
    chat = on_demand(lambda work: chat.AsyncChat(work))
    app_sessions = on_demand(lambda work: app_sessions.AsyncAppSessionsDomain(work))
    blobs = on_demand(lambda work: blobs.async_blobs(work))
    checkpoints = on_demand(lambda work: checkpoints.AsyncCheckpoints(work))
    conversations = on_demand(lambda work: conversations.AsyncConversations(work))
    events = on_demand(lambda work: events.async_events(work))
    histories = on_demand(lambda work: histories.AsyncHistories(work))
    messaging = on_demand(lambda work: messaging.AsyncMessaging(work))
    programs = on_demand(lambda work: programs.AsyncPrograms(work))
    replay_streams = on_demand(lambda work: replay_streams.AsyncReplayStreams(work))
    telemetry = on_demand(lambda work: telemetry.AsyncTelemetry(work))
    transcripts = on_demand(lambda work: transcripts.AsyncTranscripts(work))
    usage = on_demand(lambda work: usage.AsyncUsage(work))
    workflows = on_demand(lambda work: workflows.AsyncWorkflows(work))

    def __init__(self, work: AsyncWork) -> None:
        self._work = work
