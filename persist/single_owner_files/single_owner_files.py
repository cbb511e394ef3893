"""Small files that belong to one run, agent or instance: created on first use and marked with their owner."""

from collections.abc import Callable
from pathlib import Path

from persist.db.dialects.from_url import file_dialect
from persist.db.files.paths import check_path, files
from persist.db.files.private_files import make_private
from persist.db.transactions.own_scope import claim_file
from persist.db.values.clock import Clock
from persist.errors import InvalidValue, NotFound
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
    """Open or create the file that belongs to `id`; `fill` runs in the transaction that marks the owner.

    Raises Conflict if the file has another owner.
    """
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
