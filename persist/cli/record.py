"""`persist record`: a stream from standard input into a session, chunk by chunk."""

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, BinaryIO, Literal

import click

from persist.chat.reducer.sse import EventStream, Found
from persist.cli.database import Database, as_json, on_named_database, quiet
from persist.cli.output import Display, Interrupted, Interrupts, columns, inline, say, say_json
from persist.cli.root import Failed
from persist.db.values.json import decode
from persist.errors import Conflict, InvalidValue, NotFound, PersistError, SchemaOutdated, StreamProtocolError
from persist.store.store import Store

SaveOn = Literal["chunk", "step", "turn"]
Major = Literal[6, 7]
_MAJORS: dict[str, Major] = {"6": 6, "7": 7}
NEW = "new"
_LONGEST = 64 * 2**20
_BOM = b"\xef\xbb\xbf"
_CHARACTERS_PER_TOKEN = 4  # a rule of thumb: streams do not say how many tokens a piece of text is
_HINTS = {
    "chat_messages": " With --new-ids the message ids of the stream are ignored.",
    "chat_turns": " With --takeover the other recorder is stopped.",
}


@dataclass(slots=True)
class Report:
    """What became of a recording; printed at its end, as an object with --json."""

    session_id: str
    message_id: str | None = None
    message_ids: list[str] = field(default_factory=list)
    parts: int = 0
    chunks: int = 0
    ignored: int = 0
    skipped: int = 0
    bytes: int = 0
    seconds: float = 0.0
    finished: bool = False
    interrupted: bool = False
    stream_errors: list[str] = field(default_factory=list)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """How to record."""

    takeover: bool
    save_on: SaveOn | None
    ai_sdk: Major | None
    keep_going: bool
    new_ids: bool


class RecordProgress:
    """Counts chunks, bytes and tokens, and shows them while it is entered."""

    def __init__(self, stream: BinaryIO, *, terminal: bool, quiet: bool) -> None:
        self.chunks = self.bytes = self._characters = 0
        self._total = _size(stream)
        self._display = Display(quiet=quiet, terminal=terminal)

    @property
    def seconds(self) -> float:
        return self._display.seconds

    def line(self, size: int) -> None:
        self.bytes += size

    def fed(self, chunk: dict[str, Any]) -> None:
        self.chunks += 1
        piece = chunk.get("delta", chunk.get("inputTextDelta"))
        if isinstance(piece, str):
            self._characters += len(piece)
        if self._display.due:
            self._display.show(str(self), self.bytes, self._total)

    def __enter__(self) -> "RecordProgress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._display.stop()

    def __str__(self) -> str:
        rate = self._characters / _CHARACTERS_PER_TOKEN / max(self.seconds, 0.001)
        return f"{self.chunks:,} chunks, {self.bytes / 1000:,.1f} KB, about {rate:,.0f} tokens/s"


def _model(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, str] | None:
    if value is None:
        return None
    provider, _, id = value.partition("/")
    if not provider or not id:
        raise click.BadParameter(f"expected PROVIDER/ID, as in anthropic/claude; got {value!r}.")
    return {"provider_id": provider, "model_id": id}


@click.command(short_help="Record a stream from standard input, chunk by chunk.")
@on_named_database
@click.option("--session", required=True, metavar="new|ID", help="A new session, or the one to continue.")
@click.option("--agent", help="Who answers; a new session must have one.")
@click.option("--model", metavar="PROVIDER/ID", callback=_model, help="The model that answers.")
@click.option("--title", help="A title for the new session.")
@click.option("--workspace", help="The workspace root of the new session.")
@click.option("--save-on", type=click.Choice(["chunk", "step", "turn"]), help="When to write: by default at every chunk.")
@click.option("--ai-sdk", type=click.Choice(["6", "7"]), help="Whose reading counts where two majors differ: by default 7.")
@click.option("--takeover", is_flag=True, help="Record even if another recorder runs in the session; it is stopped.")
@click.option("--keep-going", is_flag=True, help="Leave out lines that are no valid chunk instead of stopping at the first.")
@click.option("--new-ids", is_flag=True, help="Ignore the message ids of the stream, to record the same stream once more.")
@as_json
@quiet("Print the session id alone, and no progress.")
def record(
    database: Database,
    session: str,
    agent: str | None,
    model: dict[str, str] | None,
    title: str | None,
    workspace: str | None,
    save_on: SaveOn | None,
    ai_sdk: str | None,
    takeover: bool,
    keep_going: bool,
    new_ids: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Record an AI SDK UI message stream from standard input: server-sent events, or one JSON chunk a line.

        persist record --session new --agent build < stream.sse

    Every chunk is durable before the next one is read, so Ctrl-C, a crash or a bad line loses nothing that came before. A
    stream whose `start` names a stored message continues that message.
    """
    if session == NEW and agent is None:
        raise click.UsageError("A new session needs an --agent.")
    if session != NEW and (title is not None or workspace is not None):
        raise click.UsageError("--title and --workspace are for a new session.")
    if sys.stdin is None:
        raise click.UsageError("There is no standard input to read a stream from.")
    stream, terminal = sys.stdin.buffer, sys.stderr.isatty()
    if stream.isatty() and not quiet:
        say("Reading the stream from this terminal; Ctrl-D ends it.", err=True)
    if session != NEW:
        _require(database, session)
    with database.open(read_only=False) as store:
        made = session == NEW
        if made:
            session = _create(store, agent or "", model, title, workspace)
        if not as_json or not quiet:
            say(inline(session) if quiet else f"session   {inline(session)}", err=as_json)
        report = Report(session)
        choices = Choices(takeover, save_on, _MAJORS.get(ai_sdk or ""), keep_going, new_ids)
        with Interrupts() as interrupts, RecordProgress(stream, terminal=terminal, quiet=quiet) as progress:
            _record(store, stream, report, choices, interrupts, progress, agent=agent, model=model)
        _count(store, report)
        if report.error is not None and made and not report.message_ids:
            with store.begin() as tx:
                tx.chat.sessions.delete(session)
            raise Failed(f"{report.error} Nothing was recorded, so the new session is gone again.")
    if as_json:
        say_json(asdict(report))
    elif not quiet:
        for line in columns(_rows(report)):
            say(line)
    if report.error is not None:
        raise Failed(report.error)
    if report.interrupted:
        click.get_current_context().exit(interrupts.exit_code)


def _require(database: Database, session: str) -> None:
    """Looked up before anything is created: a mistyped id, or file, must not leave a new file behind."""
    try:
        with database.open(read_only=True) as store, store.read() as tx:
            tx.chat.sessions.get(session)
    except SchemaOutdated:
        pass  # opening it for writing upgrades it, or says how


def _create(store: Store, agent: str, model: dict[str, str] | None, title: str | None, workspace: str | None) -> str:
    metadata = {} if title is None else {"title": title}
    with store.begin() as tx:
        return tx.chat.sessions.create(agent=agent, model=model or {}, workspace_root=workspace, metadata=metadata).id


def _record(
    store: Store,
    stream: BinaryIO,
    report: Report,
    choices: Choices,
    interrupts: Interrupts,
    progress: RecordProgress,
    *,
    agent: str | None,
    model: dict[str, str] | None,
) -> None:
    """Feed until the input ends, something is wrong, or somebody interrupts; what was fed stays whichever it was."""
    number = 0
    options: dict[str, Any] = {"takeover": choices.takeover, "save_on": choices.save_on, "ai_sdk": choices.ai_sdk}
    recorder = store.record(report.session_id, agent=agent, model=model, **options)
    try:
        with recorder:
            for number, size, found in _frames_of(stream, interrupts):
                if size:
                    progress.line(size)
                for chunk in found:
                    try:
                        if isinstance(chunk, InvalidValue):
                            raise chunk
                        if choices.new_ids and chunk.get("type") == "start":
                            chunk.pop("messageId", None)
                        recorder.feed(chunk)
                    except InvalidValue as error:
                        if isinstance(error, StreamProtocolError) or not choices.keep_going:
                            raise
                        report.skipped += 1
                        say(inline(f"Left out {_where(number, error)}"), err=True)
                        continue
                    _note(report, chunk, recorder.message_id)
                    progress.fed(chunk)
    except Interrupted:
        report.interrupted = True
    except PersistError as error:
        kept = " What came before is kept." if report.message_ids else ""
        report.error = _where(number, error) + kept
        if isinstance(error, Conflict):
            report.error += _HINTS.get(error.constraint or "", "")
    report.ignored = recorder.ignored
    report.chunks, report.bytes, report.seconds = progress.chunks, progress.bytes, round(progress.seconds, 3)


def _where(number: int, error: PersistError) -> str:
    reason = error.reason if isinstance(error, InvalidValue) and error.path == "line" else error
    return f"line {number}: {reason}" if number else str(reason)


def _note(report: Report, chunk: dict[str, Any], message_id: str | None) -> None:
    kind = chunk.get("type")
    if kind == "start":
        report.finished = False
    elif kind in ("finish", "abort"):
        report.finished = True
    elif kind == "error":
        report.stream_errors.append(str(chunk.get("errorText")))
    if message_id is not None and message_id != report.message_id:
        report.message_id = message_id
        report.message_ids.append(message_id)


def _count(store: Store, report: Report) -> None:
    """How many parts are stored, which under --save-on step or turn may be fewer than were fed."""
    with store.read() as tx:
        for id in list(report.message_ids):
            try:
                report.parts += len(tx.chat.messages.get(id)["parts"])
            except NotFound:
                report.message_ids.remove(id)
    report.message_id = report.message_ids[-1] if report.message_ids else None


def _rows(report: Report) -> list[tuple[str, str]]:
    skipped = f", {report.skipped:,} left out" if report.skipped else ""
    rows = [
        ("message ", ", ".join(map(inline, report.message_ids)) or "none"),
        ("parts", f"{report.parts:,}"),
        ("chunks", f"{report.chunks:,} fed, {report.ignored:,} ignored{skipped}"),
    ]
    rows += [("error", f"the stream says: {inline(text)}") for text in report.stream_errors]
    if not report.finished:
        rows.append(("ended", "by an interrupt" if report.interrupted else "without a finish chunk: the message is not complete"))
    return rows


def _frames_of(stream: BinaryIO, interrupts: Interrupts) -> Iterator[tuple[int, int, list[Found]]]:
    """Each line as soon as it arrives: number, size in bytes, and completed frames. The last item is the end of the stream."""
    events, number = EventStream(_LONGEST), 0
    while True:
        with interrupts.waiting():
            line = stream.readline(_LONGEST + 1)
        if not line:
            break
        number += 1
        size = len(line)
        yield number, size, _found(events, line.removeprefix(_BOM) if number == 1 else line)
    yield number, 0, events.end()


def _found(events: EventStream, line: bytes) -> list[Found]:
    if len(line) > _LONGEST:
        return [InvalidValue("line", f"it is longer than {_LONGEST:,} bytes.")]
    if events.pending or not line.lstrip().startswith(b"{"):
        return events.read(line)
    try:
        chunk = decode(line.decode())
    except (ValueError, RecursionError):
        return [InvalidValue("line", f"{line[:40].decode(errors='replace')!r} is not one JSON object.")]
    assert isinstance(chunk, dict)  # it begins with a brace
    return [chunk]


def _size(stream: BinaryIO) -> int | None:
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no descriptor: a stream in memory
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
