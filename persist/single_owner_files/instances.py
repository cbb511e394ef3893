"""Files of agent instances and workspaces: an instance's file is `<data_dir>/<name>/jackin.db`, next to its other data.

An error that prevents creating, opening or upgrading the file is raised; there is no fallback to memory. The rows have an empty
owner column, and returned values show the owner from the file's `_meta`.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from persist.db.dialects.database_files import remove_file
from persist.db.dialects.from_url import file_dialect
from persist.db.files.paths import check_path, files
from persist.db.files.private_files import make_private
from persist.db.values.arguments import check_label
from persist.db.values.clock import Clock
from persist.errors import Conflict, InvalidValue, NotFound, NotPermitted
from persist.settings import Settings, current_settings
from persist.single_owner_files.single_owner_files import own
from persist.store.store import Store

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
    with `read_only`. MigrationFailed (with file, versions, revision and cause), SchemaTooNew and SchemaUnknown leave it as it
    was.
    """
    path = _path(data_dir, name)
    if not read_only:
        with files(path.parent, "folder"):
            make_private(path.parent)
    return _open(path, "instance_id", name, read_only, settings, clock, sleep)


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
    """Open the file of a workspace, whose queue of tasks it holds, and make it if it is not there. Errors as `open_instance`."""
    return _open(check_path("path", path), "workspace_id", workspace_id, read_only, settings, clock, sleep)


def _path(data_dir: Path, name: str) -> Path:
    drive = sys.platform == "win32" and ":" in name
    if check_label("name", name) in ("", ".", "..") or "/" in name or "\\" in name or drive:
        raise InvalidValue("name", f"{name!r} is no name of a folder.")
    return check_path("name", Path(data_dir) / name / FILE)


def _open(
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
