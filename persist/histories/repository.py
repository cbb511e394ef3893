"""`tx.histories`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, on_demand
from persist.histories.entries import HistoryEntries
from persist.histories.records import HistoryRecords
from persist.histories.run_events import RunEvents
from persist.histories.runs import HistoryRuns
from persist.histories.snapshots import RunSnapshots
from persist.histories.tool_effects import ToolEffects


class Histories(Domain):
    """Conversations as logs of messages, and runs of agents with their events, snapshots and tool effects."""

    records = on_demand(HistoryRecords)
    entries = on_demand(HistoryEntries)
    runs = on_demand(HistoryRuns)
    run_events = on_demand(RunEvents)
    snapshots = on_demand(RunSnapshots)
    tool_effects = on_demand(ToolEffects)
