"""`persist agent_tasks`, `app_sessions`, `checkpoints`, `replay_streams`: what adapters of frameworks keep."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from persist.cli.database import Database, on_database
from persist.cli.logs import in_home, log_message_lines
from persist.cli.logs import project as of_logs
from persist.cli.nouns import Answer, Noun, Table, answers, facts, limit, pages, shown, table, told
from persist.cli.output import Paint, cut, inline
from persist.errors import NotFound
from persist.framework_state.agent_tasks.schemas import AgentTask
from persist.framework_state.app_sessions.schemas import AppSession, AppSessionEvent, LoadedSession
from persist.framework_state.checkpoints.schemas import Checkpoint, CheckpointThread
from persist.framework_state.replay_streams.schemas import ReplayMessage, ReplaySession
from persist.framework_state.transcripts.schemas import Transcript
from persist.maintenance.session_files import session_files_of, store_session_files
from persist.sessionlog import list_session_logs, messages_of
from persist.sessionlog.session_files import read_session_files, write_session_files
from persist.store.transaction import Transaction

transcripts = Noun(
    "transcripts", "List and show transcripts of agent sessions, import them from their files, and write them as files again."
)
project = click.option("--project", metavar="KEY", help="The session's project, where several have a session of that id.")
TRANSCRIPTS = Table[Transcript](
    "No transcripts.",
    ("SESSION", "PROJECT", "CREATED (UTC)", "WRITTEN (UTC)", "ENTRIES"),
    lambda found: (found.session_id, found.project, found.created_at, found.updated_at, found.length),
    name=lambda found: found.session_id,
)


@transcripts.reads("ls", "List sessions, the one written last first.", quiet="Print the session ids alone.")
@click.option("--project", metavar="KEY", help="Only this project's.")
@pages()
def ls(tx: Transaction, **wanted: Any) -> Answer:
    """List sessions, the one written last first. With --json: an object with `items` and `cursor`, null on the last page."""
    return TRANSCRIPTS.page(tx.transcripts.sessions.list(**wanted))


@transcripts.reads(
    "show", "Print a session's newest entries as a conversation.", quiet="Leave out what is known of the session as a whole."
)
@click.argument("session")
@project
@click.option("--subpath", default="", help="A part of it, such as subagents/agent-1.")
@limit(50, 100_000, help="How many of the newest entries.")
def show(tx: Transaction, session: str, project: str | None, subpath: str, limit: int) -> Answer:
    """Print a session's newest entries as a conversation, oldest first. SESSION is the id of a session or of its transcript.

    With --json everything is there: an object with `transcript`, `subpaths` and `entries`.
    """
    found = find_transcript(tx, session, project)
    key = (found.project, found.session_id)
    subpaths = tx.transcripts.sessions.subpaths(*key)
    entries = tx.transcripts.entries.tail(*key, limit, subpath=subpath)
    told = facts(found, session="session_id", project="project", transcript="id", entries="length")
    told += facts(found, created="created_at", written="updated_at") + [("subpath", subpath) for subpath in subpaths]
    paint = Paint()
    lines = (line for entry in entries for message in messages_of(entry) for line in ("", *log_message_lines(message, paint)))
    return shown({"transcript": found, "subpaths": subpaths, "entries": entries}, told, lines, apart=False)


@transcripts.command("import", short_help="Store what the files of sessions hold.")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@on_database
@in_home
@of_logs
@click.option("--as", "key", metavar="KEY", help="The project to store them in; without it the folder below projects/.")
@answers("Print no count.")
def import_(sessions: Sequence[str], database: Database, home: Path, project: str | None, key: str | None) -> Answer:
    """Store the log of every SESSION, with the logs of its subagents; without SESSION all logs below the folder.

    What is there already is left out, be it imported or mirrored, so the command can be repeated. Each session is stored wholly
    or not at all. With --home ~/.claude these are the sessions of Claude Code.
    """
    places = [(project, id) for id in sessions]
    if not sessions:
        logs = list_session_logs(home)
        places = [(info.project_slug, info.session_id) for info in logs if project in (None, info.project_slug)]
    counts = {"sessions": 0, "entries": 0, "skipped": 0}
    with database.open(read_only=False) as store:
        for slug, id in places:
            files = read_session_files(home, id, project_slug=slug)
            counts["entries"] += store.transact(lambda tx, files=files: store_session_files(tx, files, project=key))  # type: ignore[misc]  # a bound default
            counts["sessions"] += 1
            counts["skipped"] += files.skipped
    broken = f"; {counts['skipped']:,} broken lines were skipped" if counts["skipped"] else ""
    return told(counts, f"{counts['entries']:,} new entries of {counts['sessions']:,} sessions{broken}")


@transcripts.command(short_help="Write a session as files, to resume it from them.")
@click.argument("session")
@on_database
@in_home
@project
@click.option("-f", "--force", is_flag=True, help="Overwrite files that are there.")
@answers("Print nothing.")
def write(session: str, database: Database, home: Path, project: str | None, force: bool) -> Answer:
    """Write a session and its subagents as files below the folder, as `persist transcripts import` reads them.

    Each file gets its name when it is whole, and is readable for its owner alone.
    """
    with database.open(read_only=True) as store, store.read() as tx:
        found = find_transcript(tx, session, project)
        files = session_files_of(tx, found.project, found.session_id)
    paths = [str(path) for path in write_session_files(home, files, overwrite=force)]
    return told({"paths": paths}, *map(inline, paths))


def find_transcript(tx: Transaction, session: str, project: str | None = None) -> Transcript:
    """The transcript by its own id or its session's. Raises NotFound, or a usage error where projects share the session's id."""
    found = tx.transcripts.sessions.list(session_id=session, project=project).items
    if not found:
        transcript = tx.transcripts.sessions.get(session)
        if project not in (None, transcript.project):
            raise NotFound("transcript", session)
        return transcript
    if len(found) > 1:
        several = " and ".join(repr(one.project) for one in found)
        raise click.UsageError(f"The projects {several} have a session {session!r}; say which with --project.")
    return found[0]


_SAID, _MESSAGE = 100, 60


agent_tasks = Noun("agent_tasks")
TASKS = Table[AgentTask](
    "No tasks.",
    ("ID", "TASK", "OWNER", "STATE", "SAVED (UTC)"),
    lambda task: (task.id, task.task_id, task.owner or "-", task.state, task.updated_at),
)


agent_tasks.lists("List tasks of every owner, the one saved last first.", TASKS, lambda tx: tx.agent_tasks.tasks.latest)


@agent_tasks.reads(
    "show", "Print a task and the pieces that it consists of.", quiet="Leave out what is known of the task as a whole."
)
@click.argument("task")
def show_task(tx: Transaction, task: str) -> Answer:
    """Print a task, by the id that `ls` prints, and its pieces. With --json: an object with `task` and `pieces`.

    Messages and artifacts are opaque bytes of the protocol, and are not shown.
    """
    found = tx.agent_tasks.tasks.by_id(task)
    pieces = [
        {"kind": piece.kind, "position": piece.position, "part": piece.part, "bytes": len(piece.data)} for piece in found.pieces
    ]
    row = found.task
    return shown(
        {"task": row, "pieces": pieces},
        (
            ("task", row.task_id),
            ("owner", row.owner or "-"),
            ("context", row.context_id or "-"),
            ("state", row.state),
            ("saved", row.updated_at),
        ),
        table(("KIND", "POSITION", "PART", "BYTES"), map(_piece, pieces)),
    )


def _piece(piece: dict[str, Any]) -> tuple[object, ...]:
    part = piece["part"]
    return piece["kind"], str(piece["position"]), str(part) if part >= 0 else None, piece["bytes"]


app_sessions = Noun("app_sessions")
APP_SESSIONS = Table[AppSession](
    "No sessions.",
    ("ID", "APP", "USER", "SESSION", "EVENTS", "USED (UTC)"),
    lambda one: (one.id, one.app_name, one.user_id, one.session_id, one.revision, one.updated_at),
)


app_sessions.lists("List sessions, the one used last first.", APP_SESSIONS, lambda tx: tx.app_sessions.sessions.list)


@app_sessions.reads(
    "show", "Print a session, its state and its newest events.", quiet="Leave out what is known of the session as a whole."
)
@click.argument("session", metavar="ID")
@limit(50, help="How many of the newest events.")
def show_app_session(tx: Transaction, session: str, limit: int) -> Answer:
    """Print a session, its state and its newest events, oldest first. ID is APP/USER/SESSION, or what `ls` prints first.

    With --json: an object with `session`, `state` and `events`; values are the JSON texts that the runner stored.
    """
    row = find_app_session(tx, session)
    found = tx.app_sessions.sessions.load(row.app_name, row.user_id, row.session_id, recent=limit)
    assert found is not None, "the snapshot has the row"
    files = [key.filename for key in tx.app_sessions.artifacts.names(row.app_name, row.user_id, row.session_id)]
    scopes = {"app": found.state.app, "user": found.state.user, "session": found.state.session}
    return shown(
        {"session": row, "state": scopes, "events": found.events},
        _known(found, scopes, files),
        table(("EVENT", "AUTHOR", "SAID"), map(_event, found.events)),
    )


def find_app_session(tx: Transaction, given: str) -> AppSession:
    """The session of an id, or of APP/USER/SESSION. Raises NotFound."""
    names = given.split("/")
    for user in range(1, len(names) - 1):  # names may hold slashes, too
        for session in range(user + 1, len(names)):
            named = ("/".join(names[:user]), "/".join(names[user:session]), "/".join(names[session:]))
            found = tx.app_sessions.sessions.load(*named, recent=0) if all(named) else None
            if found is not None:
                return found.session
    return tx.app_sessions.sessions.get(given)


def _known(found: LoadedSession, scopes: dict[str, Mapping[str, str]], files: list[str]) -> Iterator[tuple[str, object]]:
    session = found.session
    for name, value in (
        ("id", session.id),
        ("app", session.app_name),
        ("user", session.user_id),
        ("session", session.session_id),
    ):
        yield name, cut(value, _SAID)
    yield "events", session.revision
    yield "created", session.created_at
    yield "used", session.updated_at
    yield from (
        (f"{scope} {inline(key)}", cut(text, _SAID)) for scope, entries in scopes.items() for key, text in entries.items()
    )
    yield from (("artifact", cut(name, _SAID)) for name in files)


def _event(event: AppSessionEvent) -> tuple[object, ...]:
    return event.id, event.author or "-", cut(_said(event.data), _SAID)


def _said(data: str) -> str:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):  # another program wrote it
        return data
    content = event.get("content") if isinstance(event, dict) else None
    parts = content.get("parts") if isinstance(content, dict) else None
    found = parts if isinstance(parts, list) else []
    return " ".join(part["text"] for part in found if isinstance(part, dict) and isinstance(part.get("text"), str)) or data


checkpoints = Noun("checkpoints")
THREADS = Table[CheckpointThread](
    "No threads.", ("THREAD", "CREATED (UTC)", "USED (UTC)"), lambda thread: (thread.id, thread.created_at, thread.updated_at)
)


checkpoints.lists("List threads, the one used last first.", THREADS, lambda tx: tx.checkpoints.threads.list)


@checkpoints.reads(
    "show", "Print a thread and its newest checkpoints.", quiet="Leave out what is known of the thread as a whole."
)
@click.argument("thread")
@click.option("--namespace", help="Only checkpoints of this namespace; '' is the graph itself.")
@limit(50, help="How many of the newest.")
def show_thread(tx: Transaction, thread: str, namespace: str | None, limit: int) -> Answer:
    """Print a thread and its newest checkpoints, newest first. With --json: an object with `thread` and `checkpoints`.

    Values of channels are what the runner's serializer made of them, and are not shown.
    """
    found = tx.checkpoints.threads.get(thread)
    steps = tx.checkpoints.states.page(thread_id=thread, namespace=namespace, limit=limit)
    return shown(
        {"thread": found, "checkpoints": (step.model_dump(mode="json", exclude={"head"}) for step in steps)},
        facts(found, thread="id", created="created_at", used="updated_at"),
        table(("CHECKPOINT", "NAMESPACE", "STEP", "SOURCE", "RUN", "CREATED (UTC)", "CHANNELS"), map(_step, steps)),
    )


def _step(step: Checkpoint) -> tuple[object, ...]:
    told = step.metadata if isinstance(step.metadata, dict) else {}
    versions: object = step.versions  # another program may have written anything
    return (
        step.id,
        step.namespace or "-",
        str(told.get("step", "-")),
        str(told.get("source", "-")),
        step.run_id or "-",
        step.created_at,
        len(versions) if isinstance(versions, dict) else None,
    )


replay_streams = Noun("replay_streams")
REPLAYS = Table[ReplaySession](
    "No sessions.",
    ("SESSION", "CREATED (UTC)", "WRITTEN (UTC)"),
    lambda session: (session.id, session.created_at, session.updated_at),
)


replay_streams.lists("List sessions, the one written to last first.", REPLAYS, lambda tx: tx.replay_streams.sessions.list)


@replay_streams.reads(
    "show", "Print a session and its newest messages.", quiet="Leave out what is known of the session as a whole."
)
@click.argument("session")
@limit(50, help="How many of the newest.")
def show_replay(tx: Transaction, session: str, limit: int) -> Answer:
    """Print a session and its newest messages, newest first. With --json: an object with `session` and `messages`."""
    found = tx.replay_streams.sessions.get(session)
    messages = tx.replay_streams.messages.newest(session, limit=limit)
    return shown(
        {"session": found, "messages": messages},
        facts(found, session="id", created="created_at", written="updated_at"),
        table(("ID", "STREAM", "STORED (UTC)", "MESSAGE"), map(_message, messages)),
    )


def _message(message: ReplayMessage) -> tuple[object, ...]:
    return message.id, message.stream, message.created_at, None if message.message is None else cut(message.message, _MESSAGE)
