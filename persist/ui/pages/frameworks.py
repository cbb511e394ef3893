"""What agent frameworks keep in the store: what each keeps, lists of it, and one of each kind as a person reads it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from persist.cli.framework_state import (
    agent_tasks,
    app_sessions,
    checkpoints,
    find_app_session,
    find_transcript,
    replay_streams,
    transcripts,
)
from persist.cli.histories import histories
from persist.cli.nouns import Answer, Noun
from persist.errors import Conflict
from persist.framework_state.app_sessions.schemas import ArtifactKey
from persist.store.transaction import Transaction
from persist.ui.framework_messages import readable, said_in_entry, said_in_event
from persist.ui.pages.graphs import graph, graph_json, step, step_json
from persist.ui.said import said_in, value_of
from persist.ui.views import MOST_ROWS, ROWS, Section, View, Visit, found

_FEW = 5
"""How many of each kind the first page shows."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of what frameworks keep. `columns`: the head and the value of each column after the first, which names it."""

    name: str
    label: str
    help: str
    filled_by: str
    noun: Noun
    rows: Callable[..., Any]
    title: Callable[[Any], str]
    columns: tuple[tuple[str, Callable[[Any], Any]], ...]
    verb: str = "ls"
    filter: str | None = None

    @property
    def path(self) -> str:
        """The address of one of the kind: that of a run is the one of a history, as `persist histories show` takes both."""
        return f"/frameworks/{self.noun.name}/{{}}"

    def row(self, one: Any) -> dict[str, Any]:
        return {"id": one.id, "title": self.title(one), "cells": [value(one) for _, value in self.columns]}


def _tokens(history: Any) -> int | None:
    usage: object = history.usage  # another program may have written anything
    counts = [usage.get(name) for name in ("input_tokens", "output_tokens")] if isinstance(usage, dict) else []
    return sum(count for count in counts if type(count) is int) or None


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "checkpoints",
            "Threads of graphs",
            "The state of a graph after each step, to go on from any of them (LangGraph).",
            "A graph that was compiled with persist's checkpointer stores a checkpoint after each step.",
            checkpoints,
            lambda tx, **page: tx.checkpoints.threads.list(**page),
            lambda one: one.id,
            (("Created", lambda one: one.created_at), ("Used", lambda one: one.updated_at)),
        ),
        Kind(
            "histories",
            "Histories",
            "Conversations with the messages of a model, and their forks (Pydantic AI).",
            "A program that keeps its messages by persist's adapter of Pydantic AI stores them here.",
            histories,
            lambda tx, **page: tx.histories.records.list(**page),
            lambda one: one.id,
            (
                ("Scope", lambda one: one.scope),
                ("Forked from", lambda one: one.forked_from),
                ("Branches", lambda one: len(one.branches)),
                ("Tokens", _tokens),
                ("Updated", lambda one: one.updated_at),
            ),
            filter="scope",
        ),
        Kind(
            "agent_runs",
            "Runs of agents",
            "Runs of an agent with their steps, their snapshots and the calls of whose end nothing is known (Pydantic AI).",
            "An agent that runs under persist's adapter of Pydantic AI notes its steps here.",
            histories,
            lambda tx, **page: tx.histories.runs.list(**page),
            lambda one: one.id,
            (
                ("Agent", lambda one: one.agent_name),
                ("Conversation", lambda one: one.conversation_id),
                ("Started", lambda one: one.started_at),
                ("Last step", lambda one: one.updated_at),
            ),
            verb="runs",
        ),
        Kind(
            "transcripts",
            "Transcripts",
            "Sessions of an agent, line by line, from which it can be resumed (Claude Agent SDK).",
            "A client with persist's store of sessions mirrors them here; persist transcripts import takes them from files.",
            transcripts,
            lambda tx, **page: tx.transcripts.sessions.list(**page),
            lambda one: one.session_id,
            (
                ("Project", lambda one: one.project),
                ("Entries", lambda one: one.length),
                ("Created", lambda one: one.created_at),
                ("Written", lambda one: one.updated_at),
            ),
            filter="project",
        ),
        Kind(
            "app_sessions",
            "Sessions of applications",
            "Conversations of an application's users, with what the application, the user and the session remember (Google ADK).",
            "A runner with persist's session service stores them.",
            app_sessions,
            lambda tx, **page: tx.app_sessions.sessions.list(**page),
            lambda one: one.session_id,
            (
                ("App", lambda one: one.app_name),
                ("User", lambda one: one.user_id),
                ("Events", lambda one: one.revision),
                ("Used", lambda one: one.updated_at),
            ),
        ),
        Kind(
            "agent_tasks",
            "Tasks of agents",
            "What other agents asked for, and how far it is (A2A).",
            "A server with persist's task store keeps its tasks here.",
            agent_tasks,
            lambda tx, **page: tx.agent_tasks.tasks.latest(**page),
            lambda one: one.task_id,
            (("State", lambda one: one.state), ("Owner", lambda one: one.owner), ("Saved", lambda one: one.updated_at)),
        ),
        Kind(
            "replay_streams",
            "Replay streams",
            "What was sent to the clients of a server, to be sent again after a broken connection (MCP).",
            "A server with persist's event store keeps what it sends.",
            replay_streams,
            lambda tx, **page: tx.replay_streams.sessions.list(**page),
            lambda one: one.id,
            (("Created", lambda one: one.created_at), ("Written", lambda one: one.updated_at)),
        ),
    )
}


# -- lists


def _overview(visit: Visit) -> dict[str, Any]:
    kinds = []
    for kind in KINDS.values():
        some = kind.rows(visit.tx, limit=_FEW)
        kinds.append({"kind": kind, "rows": [kind.row(one) for one in some.items], "more": some.cursor is not None})
    return {"title": "Frameworks", "kinds": kinds}


def _overview_json(visit: Visit) -> Answer:
    return Answer({kind.name: kind.rows(visit.tx, limit=visit.page(20)["limit"]).items for kind in KINDS.values()})


def _filter(kind: Kind, visit: Visit) -> dict[str, Any]:
    return {kind.filter: visit.text(kind.filter)} if kind.filter else {}


def _list(kind: Kind) -> View:
    def body(visit: Visit) -> dict[str, Any]:
        page = kind.rows(visit.tx, **_filter(kind, visit), **visit.page())
        return {"title": kind.label, "kind": kind, "rows": [kind.row(one) for one in page.items], "cursor": page.cursor}

    def json(visit: Visit) -> Answer:
        return kind.noun.answer(kind.verb, visit.tx, **_filter(kind, visit), **visit.page(20))

    return View(f"/frameworks/{kind.name}", "framework_list.html", body, json)


# -- one of each


def _history(visit: Visit) -> dict[str, Any]:
    tx, id = visit.tx, visit.values["id"]
    limit = visit.number("limit", MOST_ROWS, 1_000)
    history = tx.histories.records.find(id)
    if history is None:
        return _agent_run(visit, limit)
    entries = [] if history.head_id is None else tx.histories.entries.list(history.head_id, limit=limit)
    return {
        "title": history.id,
        "history": history,
        "run": None,
        "messages": [said_in_entry(entry, place) for place, entry in enumerate(entries)],
        "cut": len(entries) == limit,
        "tokens": _tokens(history),
        "address": None,
    }


def _agent_run(visit: Visit, limit: int) -> dict[str, Any]:
    tx, id = visit.tx, visit.values["id"]
    run = found(tx.histories.runs.find(id), "history", id)
    events = tx.histories.run_events.list(id)
    last = tx.histories.snapshots.latest(id, include_interrupted=True)
    entries = [] if last is None else list(last.entries)[-limit:]
    return {
        "title": run.agent_name or run.id,
        "history": None,
        "run": run,
        "events": events[-limit:],
        "events_left": max(0, len(events) - limit),
        "unresolved": tx.histories.tool_effects.unresolved(id),
        "snapshot": None if last is None else last.snapshot,
        "messages": [said_in_entry(entry, place) for place, entry in enumerate(entries)],
        "address": None,
    }


def _transcript(visit: Visit) -> dict[str, Any]:
    one = _found_transcript(visit)
    key, subpath, limit = (one.project, one.session_id), visit.query.get("subpath", ""), visit.number("limit", MOST_ROWS, 1_000)
    entries = visit.tx.transcripts.entries.tail(*key, limit, subpath=subpath)
    return {
        "title": one.session_id,
        "transcript": one,
        "subpath": subpath,
        "subpaths": visit.tx.transcripts.sessions.subpaths(*key),
        "messages": [said for place, entry in enumerate(entries) for said in said_in(entry, place)],
        "entries": len(entries),
        "cut": len(entries) == limit,
        "address": None,
    }


def _found_transcript(visit: Visit) -> Any:
    try:
        return find_transcript(visit.tx, visit.values["id"], visit.text("project"))
    except click.UsageError as error:
        raise Conflict(f"{error.message} In an address that is ?project=") from None


def _transcript_json(visit: Visit) -> Answer:
    about = {"subpath": visit.query.get("subpath", ""), "limit": visit.number("limit", ROWS, 1_000)}
    return transcripts.answer("show", visit.tx, session=_found_transcript(visit).id, project=None, **about)


def _app_session(visit: Visit) -> dict[str, Any]:
    row = find_app_session(visit.tx, visit.values["id"])
    limit = visit.number("limit", MOST_ROWS, 1_000)
    key = (row.app_name, row.user_id, row.session_id)
    loaded = found(visit.tx.app_sessions.sessions.load(*key, recent=limit), "session", row.id)
    state = loaded.state
    scopes = (("the application", state.app), ("the user", state.user), ("the session", state.session))
    return {
        "title": row.session_id,
        "session": row,
        "state": [(name, _values(entries)) for name, entries in scopes if entries],
        "artifacts": _artifacts(visit.tx, key),
        "messages": [said_in_event(event) for event in loaded.events],
        "cut": len(loaded.events) < row.revision,
        "address": None,
    }


def _values(entries: Mapping[str, str]) -> dict[str, Any]:
    return {name: value_of(text) for name, text in entries.items()}


def _artifacts(tx: Transaction, key: tuple[str, str, str]) -> list[ArtifactKey]:
    return tx.app_sessions.artifacts.names(*key)


def _agent_task(visit: Visit) -> dict[str, Any]:
    loaded = visit.tx.agent_tasks.tasks.by_id(visit.values["id"])
    pieces = loaded.pieces[:MOST_ROWS]
    return {
        "title": loaded.task.task_id,
        "task": loaded.task,
        "head": readable(loaded.head),
        "pieces": [(piece, readable(piece.data)) for piece in pieces],
        "left": len(loaded.pieces) - len(pieces),
    }


def _replay_stream(visit: Visit) -> dict[str, Any]:
    id, limit = visit.values["id"], visit.number("limit", ROWS, MOST_ROWS)
    session = visit.tx.replay_streams.sessions.get(id)
    messages = visit.tx.replay_streams.messages.newest(id, limit=limit)
    return {
        "title": session.id,
        "session": session,
        "messages": [(one, None if one.message is None else value_of(one.message)) for one in messages],
        "cut": len(messages) == limit,
    }


def _one(noun: Noun, argument: str) -> Callable[[Visit], Answer]:
    """The answer of `show`, of the newest rows."""
    return lambda visit: noun.answer("show", visit.tx, limit=visit.number("limit", ROWS, 1_000), **{argument: visit.values["id"]})


SECTION = Section(
    "Frameworks",
    "/frameworks",
    views=(
        View("/frameworks", "frameworks.html", _overview, _overview_json),
        *map(_list, KINDS.values()),
        View("/frameworks/checkpoints/{id}", "graph.html", graph, graph_json),
        View("/frameworks/checkpoints/{id}/{step}", "graph_step.html", step, step_json),
        View("/frameworks/histories/{id}", "history.html", _history, _one(histories, "id")),
        View("/frameworks/transcripts/{id}", "transcript.html", _transcript, _transcript_json),
        View("/frameworks/app_sessions/{id}", "app_session.html", _app_session, _one(app_sessions, "session")),
        View(
            "/frameworks/agent_tasks/{id}",
            "agent_task.html",
            _agent_task,
            lambda visit: agent_tasks.answer("show", visit.tx, task=visit.values["id"]),
        ),
        View("/frameworks/replay_streams/{id}", "replay_stream.html", _replay_stream, _one(replay_streams, "session")),
    ),
)
