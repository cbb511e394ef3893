"""What the tests of pruning and maintenance share: a database with something of everything, and every row of it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from typing import Any

from persist import Store
from persist.maintenance import prune
from persist.schema.metadata import domain_of, metadata
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.schema.filling import fill

DAY = timedelta(days=1)
DOMAINS = sorted({domain_of(table) for table in metadata.sorted_tables} - {"db"})

Rows = dict[str, Counter[str]]


def month_old(store: Store, what: str, **options: Any) -> dict[str, int]:
    """Prune what is older than 30 days -> the rows that went."""
    return prune(store, what, older_than=30 * DAY, **options).tables


def age(clock: FrozenClock, days: float = 40) -> None:
    clock.advance(delta=days * DAY)


def every_row(url: str) -> Rows:
    """All that is stored, by table, but for what only counts events."""
    with closing(Raw(url)) as raw:
        names = [table.name for table in metadata.sorted_tables if table.name != "event_heads"]
        if raw.is_sqlite:
            return {name: Counter(repr(row) for row in raw.rows(f'SELECT * FROM "{name}"')) for name in names}
        found: Rows = {name: Counter() for name in names}
        for name, row in raw.rows(" UNION ALL ".join(f"SELECT '{name}', t::text FROM \"{name}\" t" for name in names)):
            found[name][row] += 1
        return found


def gone(before: Rows, after: Rows) -> dict[str, int]:
    """How many rows of which tables are missing, or are not what they were."""
    return {name: (before[name] - after[name]).total() for name in before if before[name] - after[name]}


def added(before: Rows, after: Rows) -> dict[str, int]:
    """How many rows of which tables are new, or are not what they were."""
    return gone(after, before)


def everything(url: str) -> None:
    """Put something in every table, and close the store; nothing of it runs any more."""
    clock = FrozenClock()
    with Store.open(url, clock=clock) as store, ExitStack() as recorders:
        fill(store, clock, recorders)
        with store.begin() as tx:
            tx.programs.runs.finish(tx.programs.runs.list().items[0].id, "failed")
            tx.programs.runs.create(id="still running")


@contextmanager
def all_locked(writer: Raw) -> Iterator[None]:
    """On Postgres whoever writes or locks a row of any table waits until the block ends."""
    names = ", ".join(f"persist.{table.name}" for table in metadata.sorted_tables)
    writer.rows("BEGIN")
    writer.rows(f"LOCK TABLE {names} IN EXCLUSIVE MODE")
    yield
    writer.rows("ROLLBACK")


@contextmanager
def forty_days_later(url: str) -> Iterator[Store]:
    """A store over what `everything` made, forty days after all of it happened, and less than forty-one.

    Nobody waits for its lock, so it need not pause between two transactions.
    """
    clock = FrozenClock()
    clock.advance(delta=40 * DAY + timedelta(hours=1))
    with Store.open(url, clock=clock, sleep=lambda seconds: None) as store:
        yield store
