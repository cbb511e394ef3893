"""`tx.histories`: the repositories of the domain."""

from persist.db.transactions.repository import Domain, F, on_demand
from persist.framework_state.histories.appending import HistoryEntries
from persist.framework_state.histories.records import HistoryRecords
from persist.framework_state.histories.runs import HistoryRuns, RunEvents, ToolEffects
from persist.framework_state.histories.snapshots import RunSnapshots


class Histories(Domain[F]):
    """Conversations as logs of messages, and runs of agents with their events, snapshots and tool effects."""

    records = on_demand(HistoryRecords[F])
    entries = on_demand(HistoryEntries[F])
    runs = on_demand(HistoryRuns[F])
    run_events = on_demand(RunEvents[F])
    snapshots = on_demand(RunSnapshots[F])
    tool_effects = on_demand(ToolEffects[F])
