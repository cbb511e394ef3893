"""`python -m tests.systems.story SYSTEM PART FOLDER`: what a harness does with files, on this system or on a pretended one.

The part `crash` records half an answer and dies; `rest` is everything else, a chapter after the other.
"""

import asyncio
import contextlib
import os
import sqlite3
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.adopt.shapes import PROGRAMS
from tests.systems import pretending

if TYPE_CHECKING:
    from persist import Store
    from persist.errors import PersistError

DIED = 9
_WORDS = ("It ", "goes ", "on.")


def main() -> None:
    system, part, folder = sys.argv[1:]
    if system != "this":
        {"windows": pretending.windows, "mac": pretending.mac}[system]()
    (crash if part == "crash" else rest)(Path(folder))


def crash(folder: Path) -> None:
    """Half an answer is in the file, and nobody said goodbye."""
    store = _opened(folder)
    with store.begin() as tx:
        session = tx.chat.sessions.create(agent="build", model={"model_id": "large"})
        tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "Go on?"}])
    recorder = store.record(session.id)
    for chunk in _answer("msg_1", _WORDS[:2])[:-2]:
        recorder.feed(chunk)
    os._exit(DIED)


def rest(folder: Path) -> None:
    store = _opened(folder)
    with store:
        _durable(store)
        answer(store)
        asyncio.run(other_face(store))
        workflow(store)
        upkeep(store, folder)
        files_in_use(store, folder)
    for chapter in (adopted, run_file, instance, logs, command_line):
        chapter(folder)
    assert not [path.name for path in folder.rglob("*.part")]


def _opened(folder: Path) -> "Store":
    from persist import Store

    return Store.open(f"sqlite:///{folder / 'state.db'}")


def _durable(store: "Store") -> None:
    """What each connection is told, which only a Mac needs."""
    with store.runtime.connections.writer.connect() as connection:
        told = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("fullfsync", "checkpoint_fullfsync")]
    assert told == ([1, 1] if sys.platform == "darwin" else [0, 0]), told


def _answer(message: str, words: tuple[str, ...]) -> list[dict[str, str]]:
    texts = [{"type": "text-delta", "id": "t", "delta": word} for word in words]
    return [
        {"type": "start", "messageId": message},
        {"type": "text-start", "id": "t"},
        *texts,
        {"type": "text-end", "id": "t"},
        {"type": "finish"},
    ]


def _refused(kind: "type[PersistError]", call: Any, *arguments: Any, **options: Any) -> str:
    """What is said of it."""
    try:
        call(*arguments, **options)
    except kind as error:
        return str(error)
    raise AssertionError(f"{call} was not refused")


def answer(store: "Store") -> None:
    """The recorder's process is gone, which is known at once on systems that tell; on others somebody takes over."""
    from persist import Conflict

    with store.read() as tx:
        session = tx.chat.sessions.list().items[0]
    first, *others = _answer("msg_1", _WORDS[2:])

    def begin() -> None:
        with store.record(session.id) as another:
            another.feed(first)

    if sys.platform == "darwin":
        _refused(Conflict, begin)
    with store.record(session.id, takeover=sys.platform == "darwin") as recorder:
        recorder.feed(first)
        _refused(Conflict, begin)
        for chunk in others:
            recorder.feed(chunk)
    with store.read() as tx:
        said = tx.chat.messages.list(session.id)[-1]
    assert "".join(part.get("text", "") for part in said["parts"]) == "".join(_WORDS), said


async def other_face(store: "Store") -> None:
    """An event loop, on the same file."""
    from persist import AsyncStore

    async with AsyncStore.open(f"sqlite:///{store.path}") as other:
        async with other.begin() as tx:
            session = await tx.chat.sessions.create(agent="other", model={"model_id": "small"})
        async with other.record(session.id) as recorder:
            for chunk in _answer("msg_2", _WORDS):
                await recorder.feed(chunk)
        async with other.read() as tx:
            assert len(await tx.chat.messages.list(session.id)) == 1


def workflow(store: "Store") -> None:
    """Queued, claimed by one worker, and finished."""
    with store.begin() as tx:
        runs = tx.workflows.runs
        runs.create("triage", trigger_id="issue/1", current_phase="plan", status="queued")
        lease = runs.claim("worker", lease=timedelta(minutes=1))
        assert lease is not None
        assert runs.claim("another", lease=timedelta(minutes=1)) is None
        runs.finish(lease.run.id, "succeeded", lease=lease)


def upkeep(store: "Store", folder: Path) -> None:
    """A backup, a copy and an export, there and back; the doctor finds nothing."""
    from persist import Store, maintenance

    maintenance.backup(store, folder / "backup.db")
    maintenance.backup(store, folder / "backup.db", overwrite=True)
    maintenance.export(store, folder / "all.jsonl")
    maintenance.export(store, folder / "all.jsonl", overwrite=True)
    maintenance.maintain(store)
    for name in ("copy", "imported"):
        with Store.open(f"sqlite:///{folder / name}.db") as other:
            if name == "copy":
                maintenance.copy(store, other)
            else:
                maintenance.import_(other, folder / "all.jsonl")
            assert maintenance.doctor(other, full=True) == []
            assert maintenance.stats(other)
    assert maintenance.doctor(store, full=True) == []


def files_in_use(store: "Store", folder: Path) -> None:
    """What somebody has open is not replaced, and the refusal is a sentence of ours, where the system refuses it at all."""
    from persist import maintenance
    from persist.errors import StoreInUse

    target = folder / "read.jsonl"
    maintenance.export(store, target)
    with open(target, "rb"):
        if sys.platform == "win32":
            assert str(target) in _refused(StoreInUse, maintenance.export, store, target, overwrite=True)
        else:
            maintenance.export(store, target, overwrite=True)
    maintenance.export(store, target, overwrite=True)


def adopted(folder: Path) -> None:
    """A file of another program, which is kept as it was beside it."""
    from persist import maintenance

    path = folder / "foreign.db"
    with contextlib.closing(sqlite3.connect(path)) as foreign:
        foreign.executescript(PROGRAMS)
    maintenance.adopt(f"sqlite:///{path}", dry_run=True)
    report = maintenance.adopt(f"sqlite:///{path}")
    assert report.backup_path is not None
    assert report.backup_path.exists()


def run_file(folder: Path) -> None:
    """Values small and large, in files of their own; a subagent gets a handle, and a shell's commands where there is one."""
    from persist.errors import InvalidValue
    from persist.programs import audit, create_run_file, instructions_for_subagent, list_run_files, open_run_file, subagent

    with create_run_file(folder, program_source="session 'hi'\n") as store:
        run = store.run_id
        assert run is not None
        assert store.path is not None
        large = "many words\n" * 20_000
        for value in (large, large.upper()):
            with store.begin() as tx:
                tx.programs.bindings.bind(run, "result", value)
        with store.read() as tx:
            assert tx.programs.bindings.resolve(run, "result").value == large.upper()
        assert len(list((store.path.parent / "attachments").iterdir())) == 1
        subagent(store, run).bindings.bind("small", "1")
        if sys.platform == "win32":
            assert "handle" in _refused(InvalidValue, instructions_for_subagent, store, run)
        else:
            assert "sqlite3" in instructions_for_subagent(store, run)
        assert audit(store, run) == []
    with open_run_file(list_run_files(folder)[0], read_only=True) as store, store.read() as tx:
        assert len(tx.programs.bindings.list(run)) == 2


def instance(folder: Path) -> None:
    """Removed while it is open, it stays; afterwards it goes."""
    from persist.errors import InvalidValue, StoreInUse
    from persist.telemetry import open_instance, purge_instance

    with open_instance(folder, "one"):
        _refused(StoreInUse, purge_instance, folder, "one")
    purge_instance(folder, "one")
    assert not (folder / "one" / "jackin.db").exists()
    if sys.platform == "win32":
        _refused(InvalidValue, open_instance, folder, "C:")


def logs(folder: Path) -> None:
    """Two writers of one log, as several processes have them."""
    from persist.sessionlog import SessionLogWriter, list_session_logs, read_session_log, slug_for_cwd

    where = "C:\\Users\\agent" if sys.platform == "win32" else "/home/agent"
    said = {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}]}
    event = {"type": "message_end", "sessionId": "ses-1", "timestamp": 1781521200000, "message": said}
    for fsync in ("never", "batch", "close"):
        with SessionLogWriter(folder / "logs", slug_for_cwd(where), initial_prompt="Look", model="m", fsync=fsync) as log:
            log.feed({"type": "session", "id": "ses-1"})
            log.feed(event)
    assert [found.session_id for found in list_session_logs(folder / "logs")] == ["ses-1"]
    assert log.path is not None
    assert len(list(read_session_log(log.path))) == 6


def command_line(folder: Path) -> None:
    """Commands that read, write and move."""
    from click.testing import CliRunner

    from persist.cli import main

    url = f"sqlite:///{folder / 'state.db'}"
    commands = [
        ("ls",),
        ("runs", "ls"),
        ("stats",),
        ("doctor",),
        ("backup", str(folder / "another.db")),
        ("copy", url, f"sqlite:///{folder / 'again.db'}"),
        ("export", str(folder / "again.jsonl")),
        ("events", "on"),
        ("watch", "--timeout", "0"),
        ("maintain",),
    ]
    for words in commands:
        options = [] if words[0] == "copy" else ["--url", url]
        result = CliRunner().invoke(main, [*words, *options])
        assert result.exit_code == 0, (words, result.output, result.exception)
    fed = "\n".join('data: {"type": "%s"}' % kind for kind in ("start", "finish"))  # noqa: UP031  # braces
    result = CliRunner().invoke(main, ["record", "--session", "new", "--agent", "a", "--model", "p/m", "--url", url], input=fed)
    assert result.exit_code == 0, result.output


if __name__ == "__main__":
    main()
