"""`tx.histories` of AsyncStore: every verb of the repositories as a coroutine."""

from persist.db.transactions.async_transactions import AsyncRepository, AsyncWork, awaitable
from persist.histories.entries import HistoryEntries
from persist.histories.records import HistoryRecords
from persist.histories.repository import Histories
from persist.histories.run_events import RunEvents
from persist.histories.runs import HistoryRuns
from persist.histories.snapshots import RunSnapshots
from persist.histories.tool_effects import ToolEffects


class AsyncHistoryRecords(AsyncRepository[HistoryRecords]):
    """See HistoryRecords."""

    find = awaitable(HistoryRecords.find)
    get = awaitable(HistoryRecords.get)
    list = awaitable(HistoryRecords.list)
    latest = awaitable(HistoryRecords.latest)
    put = awaitable(HistoryRecords.put)
    delete = awaitable(HistoryRecords.delete)


class AsyncHistoryEntries(AsyncRepository[HistoryEntries]):
    """See HistoryEntries."""

    get = awaitable(HistoryEntries.get)
    list = awaitable(HistoryEntries.list)


class AsyncHistoryRuns(AsyncRepository[HistoryRuns]):
    """See HistoryRuns."""

    register = awaitable(HistoryRuns.register)
    find = awaitable(HistoryRuns.find)
    get = awaitable(HistoryRuns.get)
    list = awaitable(HistoryRuns.list)
    started = awaitable(HistoryRuns.started)
    delete = awaitable(HistoryRuns.delete)


class AsyncRunEvents(AsyncRepository[RunEvents]):
    """See RunEvents."""

    append = awaitable(RunEvents.append)
    list = awaitable(RunEvents.list)


class AsyncRunSnapshots(AsyncRepository[RunSnapshots]):
    """See RunSnapshots."""

    save = awaitable(RunSnapshots.save)
    latest = awaitable(RunSnapshots.latest)
    list = awaitable(RunSnapshots.list)


class AsyncToolEffects(AsyncRepository[ToolEffects]):
    """See ToolEffects."""

    put = awaitable(ToolEffects.put)
    find = awaitable(ToolEffects.find)
    unresolved = awaitable(ToolEffects.unresolved)


class AsyncHistories:
    """See Histories."""

    def __init__(self, work: AsyncWork) -> None:
        histories = Histories(work.work)
        self.records = AsyncHistoryRecords(histories.records, work)
        self.entries = AsyncHistoryEntries(histories.entries, work)
        self.runs = AsyncHistoryRuns(histories.runs, work)
        self.run_events = AsyncRunEvents(histories.run_events, work)
        self.snapshots = AsyncRunSnapshots(histories.snapshots, work)
        self.tool_effects = AsyncToolEffects(histories.tool_effects, work)
