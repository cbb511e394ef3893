"""Files that belong to one run, agent or instance: made on first use, small, and marked with whose they are."""

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
from persist.store.transaction import Transaction


def open_file(path: Path, *, read_only: bool = False, settings: Settings | None = None, clock: Clock | None = None) -> Store:
    """The store of a file that is there; NotFound if it is not."""
    if not check_path("path", path).exists():
        raise NotFound("file", str(path))
    return _open(path, read_only=read_only, settings=settings, clock=clock)


def make_file(
    path: Path,
    scope: str,
    id: str,
    *,
    fill: Callable[[Transaction], object] | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
) -> Store:
    """The store of a file that is `id`'s own, made if need be; `fill` runs in the transaction that marks it.

    Conflict if the file is another one's.
    """
    if check_path("path", path).is_dir():
        raise InvalidValue("path", f"{path} is a folder.")
    with files(path.parent, "folder"):
        make_private(path.parent)
    store = _open(path, read_only=False, settings=settings, clock=clock)
    try:
        own(store, scope, id, fill=fill)
    except BaseException:
        store.close()
        raise
    return store


def own(store: Store, scope: str, id: str, *, fill: Callable[[Transaction], object] | None = None) -> None:
    """Mark the file of an open store as `id`'s own, unless it is already."""
    if store.runtime.scopes.get(scope) == id:
        return
    scopes = store.runtime.scopes
    try:
        with store.begin() as tx:
            claim_file(tx._work, scope, id)
            scopes[scope] = id  # so that what is filled in is stored as the file's own
            if fill is not None:
                fill(tx)
    except BaseException:
        scopes.pop(scope, None)
        raise


def _open(path: Path, *, read_only: bool, settings: Settings | None, clock: Clock | None) -> Store:
    settings = settings or current_settings()
    dialect = file_dialect(path, settings, read_only=read_only)
    return Store._prepared(dialect, settings, clock, None, migrate=None)
