"""Run files: a separate folder for each run of a program, and the files of agents that outlive their runs.

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
from persist.programs.storage.strictness import make_strict
from persist.quoting import shown
from persist.settings import Settings
from persist.single_owner_files.single_owner_files import open_file, open_or_create_file, own
from persist.store.store import Store
from persist.store.transaction import Transaction, work_of

FOLDER = ".prose"
STATE, PROGRAM, AGENTS = "state.db", "program.prose", "agents.db"


def create_run_file(
    root: Path,
    *,
    program_path: str | None = None,
    program_source: str | None = None,
    strict: bool = False,
    now: datetime | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
) -> Store:
    """Create the folder, file and row of a new, running run. `store.path` is its file, `store.run_id` its id.

    The source is stored next to it as program.prose; without a source, `program_path` (relative to `root`) is read if it exists.
    `strict`: triggers refuse every change of run, execution and imports that is not made by this library, also by a shell. `now`
    is the instant in the run's id.
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
        if strict:
            make_strict(work_of(tx))

    with files(home):
        run_id = _new_folder(home, at)
    path = home / FOLDER / "runs" / run_id / STATE
    try:
        if text is not None:
            with files(path), open(path.with_name(PROGRAM), "wb", opener=private_opener) as program:
                program.write(text)
        return open_or_create_file(path, "run_id", run_id, fill=fill, settings=settings, clock=clock)
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)  # the new folder is not in use yet
        raise


def open_run_file(path: Path, *, read_only: bool = False, settings: Settings | None = None, clock: Clock | None = None) -> Store:
    """Open the store of a run, given its state.db or its folder. Raises NotFound if the file is missing.

    If the process that created the file died before it wrote the run id, the id is that of the only run, else the folder's name.
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
    """List the files of all runs below `root`, oldest first."""
    return sorted((check_path("root", root) / FOLDER / "runs").glob(f"*/{STATE}"))


def agents_file(
    scope: Literal["project", "user"],
    root: Path,
    *,
    path: Path | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
) -> Store:
    """Open the store of agents that outlive runs: `path`, or `root`/.prose/agents.db, or ~/.prose/agents.db for "user".

    The file is created on first use. `store.run_id` is "project" or "user", the first argument of `tx.programs.agents`.
    """
    if scope not in ("project", "user"):
        raise InvalidValue("scope", f"{shown(scope)} is neither 'project' nor 'user'.")
    home = check_path("root", root) if scope == "project" else Path.home()
    return open_or_create_file(path or home / FOLDER / AGENTS, "run_id", scope, settings=settings, clock=clock)


def _new_folder(root: Path, now: datetime) -> str:
    """Create a new folder for a run and return its name, which is the run's id."""
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
