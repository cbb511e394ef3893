"""Where a job is tried out: on a private copy of a file, so that nobody waits for its write lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from persist.db.dialects.from_url import dialect_for_file
from persist.maintenance.backups import backup
from persist.store.store import Store


class Trial(Store):
    """A copy that goes when the trial is over."""


@contextmanager
def tried_on(store: Store) -> Iterator[Store]:
    """The store to try a job on. On a server, in memory and on an engine of the caller's it is the store itself."""
    runtime = store.runtime
    if isinstance(store, Trial) or runtime.dialect.path is None or not runtime.owns_engine or runtime.read_only:
        yield store
        return
    settings = runtime.settings.model_copy(update={"synchronous": "normal"})
    with TemporaryDirectory(prefix="persist-trial-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "trial.db"
        backup(store, path)
        dialect = dialect_for_file(path, settings)
        # as if it were somebody's else: a store that opens its own file folds what dead writers left, which would be counted
        copy = Trial._prepared(dialect, settings, runtime.clock, runtime.sleep, migrate=False, owns_engine=False)
        copy.runtime.owns_engine = True
        with copy:
            yield copy
