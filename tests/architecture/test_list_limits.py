"""Every verb that returns a list of rows has a limit, or returns what belongs to one row, or is named here."""

import inspect
import re

from persist import Store
from tests.statemachines.scene import verbs

OF_ONE = {
    "agent_tasks.webhooks.list": "a task",
    "app_sessions.artifacts.names": "a session",
    "app_sessions.artifacts.versions": "an artifact",
    "chat.messages.model_view": "a chat, since its last compaction",
    "chat.messages.queued": "a chat",
    "chat.messages.replay": "a message",
    "checkpoints.states.load": "the checkpoints that are asked for",
    "conversations.branches.list": "a session",
    "conversations.branches.transitions": "a branch",
    "conversations.progressions.containing": "a message",
    "conversations.progressions.get": "a progression",
    "conversations.sessions.transitions": "a session",
    "histories.run_events.list": "a run",
    "histories.snapshots.list": "a run",
    "histories.tool_effects.unresolved": "a run",
    "programs.agents.list": "a run",
    "programs.agents.segments": "an agent of a run",
    "programs.bindings.list": "a run",
    "programs.executions.children": "an execution",
    "programs.executions.list": "a run",
    "programs.imports.list": "a run",
    "programs.runs.audit": "a run",
    "programs.subagents.list": "a run",
    "telemetry.links.list": "an instance",
    "telemetry.tags.list": "an instance",
    "transcripts.entries.list": "a transcript",
    "transcripts.sessions.subpaths": "a transcript",
    "workflows.approvals.list_for_run": "a run",
    "workflows.effects.list": "a run",
    "workflows.executions.for_run": "a run",
    "workflows.runs.held_by": "a worker, which holds as many as it has places",
    "workflows.signals.list": "a run",
}
"""Lists of what belongs to one row, by what that is."""
WHOLE = {
    "app_sessions.sessions.of_app": "the framework asks for all sessions of an application; `list` has pages",
    "checkpoints.memories.embeddings": "the search of a framework compares with all",
    "checkpoints.memories.namespaces": "the framework sorts and cuts them itself",
    "workflows.runs.distinct_names": "names of workflows, which a program has few of",
}
"""Lists of a whole database that have no limit, and why."""
ACTS = ("expire_due", "fire_due", "recover_interrupted")
"""Verbs that return what they have changed."""
LIMITS = {"limit", "n", "k", "days", "hours"}
"""What the parameters that bound a list are called."""


def lists() -> dict[str, set[str]]:
    """Every verb that returns many values, with its parameters."""
    found = {}
    with Store.open("sqlite:///:memory:") as store, store.read() as tx:
        for verb in verbs():
            returned = str(inspect.signature(verb.of(tx)).return_annotation)
            if re.match(r"(list|List|tuple\[list|persist\.[a-z_.]*(Page|PagedList))\b", returned.removeprefix("typing.")):
                found[verb.name] = set(verb.parameters)
    return found


def test_a_list_has_a_limit_or_a_reason() -> None:
    found = lists()
    unlimited = {name for name, parameters in found.items() if not LIMITS & parameters and not name.endswith(ACTS)}
    assert {"chat.sessions.list", "workflows.runs.list_queued", "workflows.runs.held_by"} <= found.keys()
    assert unlimited == OF_ONE.keys() | WHOLE.keys()
