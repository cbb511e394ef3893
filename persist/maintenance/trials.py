"""Runs a trial of a maintenance job on a private copy of the file, so that other writers need not wait for its lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from persist.db.dialects.from_url import dialect_for_file
from persist.maintenance.backups import backup
from persist.store.store import Store


class Trial(Store):
    """A store on a temporary copy, which is deleted after the trial. `bodies`: where the original keeps bodies of blobs."""

    bodies: Any = None


@contextmanager
def tried_on(store: Store) -> Iterator[Store]:
    """Yield the store for a trial: a copy of the file; the store itself on a server, in memory or on the caller's engine."""
    runtime = store.runtime
    if isinstance(store, Trial) or runtime.dialect.path is None or not runtime.owns_engine or runtime.read_only:
        yield store
        return
    # the bodies are those of the store itself, and stay
    settings = runtime.settings.model_copy(update={"synchronous": "normal", "blobs": None})
    with TemporaryDirectory(prefix="persist-trial-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "trial.db"
        backup(store, path)
        dialect = dialect_for_file(path, settings)
        # not as the owner: a store that opens its own file folds text of dead writers, and the trial must count that itself
        copy = Trial.on_dialect(dialect, settings, runtime.clock, runtime.sleep, migrate=False, owns_engine=False)
        copy.runtime.owns_engine = True
        assert isinstance(copy, Trial)
        copy.bodies = runtime.blob_store
        with copy:
            yield copy
