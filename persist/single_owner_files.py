"""Small files that belong to one run, agent or instance: created on first use and marked with their owner."""

import secrets
import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal

from persist.db.dialects.backends import file_dialect
from persist.db.dialects.untrusted_files import remove_file
from persist.db.files import check_path, files, make_private, private_opener, typed
from persist.db.transactions.own_scope import claim_file
from persist.db.values.arguments import check_label
from persist.db.values.clock import Clock, as_utc, system_clock
from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted, shown
from persist.programs import names
from persist.programs.storage.run_rows import make_strict
from persist.settings import Settings, current_settings
from persist.store.store import Store
from persist.store.transaction import Transaction, work_of


def open_file(path: Path, *, read_only: bool = False, settings: Settings | None = None, clock: Clock | None = None) -> Store:
    """Open the store of an existing file. Raises NotFound if it is missing."""
    if not check_path("path", path).exists():
        raise NotFound("file", str(path))
    return _open(path, read_only=read_only, settings=settings, clock=clock)


def open_or_create_file(
    path: Path,
    scope_column: str,
    id: str,
    *,
    fill: Callable[[Transaction], object] | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
) -> Store:
    """Open or create the file of `id`; `fill` runs in the transaction that marks the owner. Raises Conflict for another owner."""
    if check_path("path", path).is_dir():
        raise InvalidValue("path", f"{path} is a folder.")
    with files(path.parent, "folder"):
        make_private(path.parent)
    store = _open(path, read_only=False, settings=settings, clock=clock)
    try:
        own(store, scope_column, id, fill=fill)
    except BaseException:
        store.close()
        raise
    return store


def own(store: Store, scope_column: str, id: str, *, fill: Callable[[Transaction], object] | None = None) -> None:
    """Mark `id` as the owner of an open store's file, unless it is marked already."""
    if store.runtime.scopes.get(scope_column) == id:
        return
    scopes = store.runtime.scopes
    try:
        with store.begin() as tx:
            claim_file(work_of(tx), scope_column, id)
            scopes[scope_column] = id  # set first, so that `fill` stores rows of the file's owner
            if fill is not None:
                fill(tx)
    except BaseException:
        scopes.pop(scope_column, None)
        raise


def _open(path: Path, *, read_only: bool, settings: Settings | None, clock: Clock | None) -> Store:
    settings = settings or current_settings()
    dialect = file_dialect(path, settings, read_only=read_only)
    return Store.on_dialect(dialect, settings, clock)


# Files of agent instances and workspaces: an instance's file is `<data_dir>/<name>/jackin.db`, next to its other data.
#
# An error that prevents creating, opening or upgrading the file is raised; there is no fallback to memory. The rows have an empty
# owner column, and returned values show the owner from the file's `_meta`.

FILE = "jackin.db"


def open_instance(
    data_dir: Path,
    name: str,
    *,
    read_only: bool = False,
    settings: Settings | None = None,
    clock: Clock | None = None,
    sleep: Callable[[float], None] | None = None,
) -> Store:
    """Open an instance's file, and make it, and its folder, if it is not there; `instance_id` of the store is the name.

    Raises NotPermitted if it cannot be made, Conflict if it is the file of another instance, and NotFound instead of making one
    with `read_only`. MigrationFailed (with file, versions, revision, cause), SchemaTooNew and SchemaUnknown leave it as it was.
    """
    path = _path(data_dir, name)
    if not read_only:
        with files(path.parent, "folder"):
            make_private(path.parent)
    return _open_instance(path, "instance_id", name, read_only, settings, clock, sleep)


def purge_instance(data_dir: Path, name: str) -> None:
    """Delete an instance's file with its -wal and -shm; the folder and its other files stay. A missing file is no error.

    Raises StoreInUse while a connection has the file open. A damaged file, or one that cannot be upgraded, is deleted too.
    """
    remove_file(_path(data_dir, name))


def open_workspace(
    path: Path,
    workspace_id: str,
    *,
    read_only: bool = False,
    settings: Settings | None = None,
    clock: Clock | None = None,
    sleep: Callable[[float], None] | None = None,
) -> Store:
    """Open the file of a workspace with its queue of tasks; make a missing file. Errors as `open_instance`."""
    return _open_instance(check_path("path", path), "workspace_id", workspace_id, read_only, settings, clock, sleep)


def _path(data_dir: Path, name: str) -> Path:
    drive = sys.platform == "win32" and ":" in name
    if check_label("name", name) in ("", ".", "..") or "/" in name or "\\" in name or drive:
        raise InvalidValue("name", f"{name!r} is no name of a folder.")
    return check_path("name", Path(data_dir) / name / FILE)


def _open_instance(
    path: Path,
    scope: str,
    owner: str,
    read_only: bool,
    settings: Settings | None,
    clock: Clock | None,
    sleep: Callable[[float], None] | None,
) -> Store:
    if not check_label(scope, owner):
        raise InvalidValue(scope, "it is empty.")
    if not path.parent.is_dir():
        raise NotFound("folder", str(path.parent))
    if path.is_dir():
        raise NotPermitted(f"{path} is a folder, not a file.")
    settings = settings or current_settings()
    store = Store.on_dialect(file_dialect(path, settings, read_only=read_only), settings, clock, sleep)
    try:
        if not read_only:
            own(store, scope, owner)
        elif store.runtime.scopes.setdefault(scope, owner) != owner:
            raise Conflict(f"{path} is the file of another {scope}: {store.runtime.scopes[scope]!r}.")
    except BaseException:
        store.close()
        raise
    return store


# Run files: a separate folder for each run of a program, and the files of agents that outlive their runs.
#
# .prose/runs/20260116-143052-a7b3c9/    state.db, program.prose, attachments/
# .prose/agents.db                       below the project, and below the home directory for agents of the user

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
