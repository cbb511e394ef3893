"""Run files: one run of a program in a folder of its own, and the files of agents that outlive their runs.

.prose/runs/20260116-143052-a7b3c9/state.db, program.prose, attachments/
.prose/agents.db     below the project, and below the home directory for agents of the user
"""

import secrets
import shutil
from datetime import datetime
from pathlib import Path
from typing import Literal

from persist.db.files.paths import check_path, files, typed
from persist.db.files.private_files import make_private, private_opener
from persist.db.values.clock import Clock, as_utc, system_clock
from persist.errors import InvalidValue, NotFound
from persist.programs import names
from persist.quoting import shown
from persist.settings import Settings
from persist.single_owner_files.single_owner_files import make_file, open_file, own
from persist.store.store import Store
from persist.store.transaction import Transaction

FOLDER = ".prose"
STATE, PROGRAM, AGENTS = "state.db", "program.prose", "agents.db"


def create_run_file(
    root: Path,
    *,
    program_path: str | None = None,
    program_source: str | None = None,
    now: datetime | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
) -> Store:
    """A new run below `root`, with its row, running. `store.path` is its file, `store.run_id` its id.

    The source is kept as program.prose beside it; without one `program_path` is read, if it is a file (relative to `root`).
    `now` is the instant in the run's id.
    """
    home, source = check_path("root", root), program_source
    try:
        if source is None and program_path is not None and (home / program_path).is_file():
            source = (home / program_path).read_text(encoding="utf-8")
        at = as_utc("now", now if now is not None else (clock or system_clock)())
        text = None if source is None else source.encode()
    except UnicodeError:
        raise InvalidValue("program_source", "it is not text in UTF-8.") from None
    except OSError as error:
        raise typed(error, home) from error

    def fill(tx: Transaction) -> None:
        tx.programs.runs.create(program_path=program_path, program_source=source, id=run_id)

    with files(home):
        run_id = _new_folder(home, at)
    path = home / FOLDER / "runs" / run_id / STATE
    try:
        if text is not None:
            with files(path), open(path.with_name(PROGRAM), "wb", opener=private_opener) as program:
                program.write(text)
        return make_file(path, "run_id", run_id, fill=fill, settings=settings, clock=clock)
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)  # nobody knows of it yet
        raise


def open_run_file(path: Path, *, read_only: bool = False, settings: Settings | None = None, clock: Clock | None = None) -> Store:
    """The store of a run: of its state.db, or of its folder. NotFound without the file.

    A file whose run id was never noted (its maker died) is that of its only run, else of the folder's name.
    """
    given = check_path("path", path)
    store = open_file(given / STATE if given.is_dir() else given, read_only=read_only, settings=settings, clock=clock)
    if store.run_id is not None:
        return store
    try:
        with store.read() as tx:
            runs = [run.id for run in tx.programs.runs.list(limit=2).items]
        assert store.path is not None
        run_id = runs[0] if len(runs) == 1 else store.path.absolute().parent.name
        if read_only:
            store.runtime.scopes["run_id"] = run_id
        else:
            own(store, "run_id", run_id)
    except BaseException:
        store.close()
        raise
    return store


def list_run_files(root: Path) -> list[Path]:
    """The files of every run below `root`, the oldest first."""
    return sorted((check_path("root", root) / FOLDER / "runs").glob(f"*/{STATE}"))


def agents_file(
    scope: Literal["project", "user"],
    root: Path,
    *,
    path: Path | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
) -> Store:
    """The store of agents that outlive runs: `root`/.prose/agents.db, ~/.prose/agents.db for the user's, or `path`.

    Made on first use. `store.run_id` is "project" or "user", the first argument of `tx.programs.agents`.
    """
    if scope not in ("project", "user"):
        raise InvalidValue("scope", f"{shown(scope)} is neither 'project' nor 'user'.")
    home = check_path("root", root) if scope == "project" else Path.home()
    return make_file(path or home / FOLDER / AGENTS, "run_id", scope, settings=settings, clock=clock)


def _new_folder(root: Path, now: datetime) -> str:
    """A folder that was not there before; its name is the run's id."""
    if not root.is_dir():
        raise NotFound("folder", str(root))
    while True:
        run_id = names.run_id(now, secrets.choice)
        runs = root / FOLDER / "runs"
        make_private(runs)
        try:
            (runs / run_id).mkdir(mode=0o700)
        except FileExistsError:
            continue
        return run_id
