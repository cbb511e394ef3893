"""What `Store.metrics` returns: what this process did in a store since it was opened, and what waits in the database now."""

from persist.db.transactions.runtime import Runtime
from persist.db.transactions.snapshots import in_snapshot
from persist.db.transactions.unit_of_work import UnitOfWork
from persist.db.values.frozen import Value, construct
from persist.events.consumers import Consumers
from persist.workflows.storage.queue import backlog

_CONSUMERS = 1000
"""The most consumers of the log that are looked at."""


class Metrics(Value):
    """The numbers of one store, counted since it was opened. Seconds are sums; what the database was not asked is None.

    transactions            transactions that ended, by outcome: committed, rolled_back, unknown (the connection was lost in the
                            COMMIT), read (a snapshot); those of a caller that were joined are not counted
    writing, reading        transactions that are open now
    wait_seconds            waiting for a write transaction to begin: for the lock, a connection and BEGIN
    commit_seconds          COMMITs that were sent by themselves, not with a verb's last statements
    retries                 repeated attempts, by cause: lock, serialization, deadlock, connection, event_log_switched,
                            group_replayed (one member of a group commit failed)
    connections             connections that the pools have lent, also to recorders and to the cache for the next transaction
    recorders               recorders that are open now
    recorders_ended         recorders that have ended
    chunks, text_bytes      what recorders were fed, and the UTF-8 bytes of text in it
    folds                   parts of messages whose pieces of text were moved into them
    recorder_commits        commits of recorders
    recorder_waits          how often these found the lock or the connection taken, and the seconds that they waited
    groups, grouped         commits that were offered to several writers, and the tasks in them; the largest so far
    queued                  tasks that wait for the next group
    follower_looks          looks of followers after they were told of a change, and the seconds from there to the end of the look
    leases_lost             runs that a worker of this store lost while it worked on them
    wal_bytes               the size of the write-ahead log beside the file
    queue_depth             runs that a worker could claim, counted up to 10,000
    queue_age_seconds       how long the oldest of them has waited; 0 without any
    event_log_lag           events that the consumer that is furthest behind has not acknowledged; 0 without consumers
    consumers               the same of each consumer, by name
    """

    transactions: dict[str, int]
    writing: int
    reading: int
    wait_seconds: float
    commit_seconds: float
    retries: dict[str, int]
    connections: int
    recorders: int
    recorders_ended: int
    chunks: int
    text_bytes: int
    folds: int
    recorder_commits: int
    recorder_waits: int
    recorder_wait_seconds: float
    groups: int
    grouped: int
    largest_group: int
    queued: int
    follower_looks: int
    follower_lag_seconds: float
    leases_lost: int
    wal_bytes: int | None
    queue_depth: int | None
    queue_age_seconds: float | None
    event_log_lag: int | None
    consumers: dict[str, int] | None


def metrics_of(runtime: Runtime, *, database: bool, queued: int = 0) -> Metrics:
    """The numbers of a store now. `queued`: what waits for a group commit."""
    runtime.check_usable()
    counters = runtime.counters
    written = counters.connections()
    recorders, ended, recorded = counters.recorders()
    writing, reading = runtime.open_transactions
    depth, age, behind = in_snapshot(runtime, _asked) if database else (None, None, None)
    return construct(
        Metrics,
        {
            "transactions": {
                "committed": counters.commits,
                "rolled_back": counters.outcomes["rolled_back"],
                "unknown": counters.outcomes["unknown"],
                "read": counters.snapshots - reading,
            },
            "writing": writing,
            "reading": reading,
            "wait_seconds": counters.waited,
            "commit_seconds": counters.committing,
            "retries": dict(counters.retries),
            "connections": runtime.connections.lent,
            "recorders": recorders,
            "recorders_ended": ended,
            "chunks": recorded.chunks,
            "text_bytes": recorded.bytes,
            "folds": recorded.folds,
            "recorder_commits": written.commits,
            "recorder_waits": written.waits,
            "recorder_wait_seconds": written.waited,
            "groups": written.groups,
            "grouped": written.grouped,
            "largest_group": written.largest,
            "queued": queued,
            "follower_looks": counters.looks,
            "follower_lag_seconds": counters.lag,
            "leases_lost": counters.leases_lost,
            "wal_bytes": runtime.connections.wal_bytes(),
            "queue_depth": depth,
            "queue_age_seconds": age,
            "event_log_lag": None if behind is None else max(behind.values(), default=0),
            "consumers": behind,
        },
    )


def _asked(work: UnitOfWork) -> tuple[int, float, dict[str, int]]:
    depth, oldest = backlog(work)
    age = 0.0 if oldest is None else max(0.0, (work.now() - oldest).total_seconds())
    return depth, age, {one.name: one.behind for one in Consumers(work).list(limit=_CONSUMERS)}
