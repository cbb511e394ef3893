"""PersistStepStore: the step store of Pydantic AI's harness over a Store or an AsyncStore."""

from typing import Any, cast

from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord

from persist.db.values.arguments import check_kind
from persist.errors import Conflict, named
from persist.framework_state.histories.runs import HistoryRuns, RunEvents, ToolEffects
from persist.framework_state.histories.schemas import HistoryRun, LoadedSnapshot, RunEvent, ToolEffect
from persist.framework_state.histories.snapshots import RunSnapshots
from persist.integrations.pydantic_ai.messages import Calls, InvalidInput, decoded, encoded, fields_of
from persist.store.async_store import AsyncStore
from persist.store.store import Store

# What the harness and the store name alike.
_OF_RUN = ("conversation_id", "agent_name", "registration_id", "metadata", "started_at")
_OF_SNAPSHOT = ("step_index", "conversation_id", "parent_run_id", "agent_name", "idempotency_key")
_OF_EVENT = (*_OF_SNAPSHOT, "tool_call_id", "tool_name", "error", "metadata")
_OF_EFFECT = ("tool_name", "started_at", "ended_at", "idempotency_key", "effect_summary")


class RunTaken(Conflict, ValueError):  # noqa: N818  # named like the errors it stands among
    """Another run is registered under the id: a Conflict, and the ValueError that the harness's own stores raise."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        Conflict.__init__(self, f"The run_id {named(run_id)} is already in the store.", constraint="pk_history_runs")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run_id,)


class PersistStepStore:
    """Keeps runs, their events, snapshots and tool effects in a store: `StepPersistence(store=PersistStepStore(store))`.

    Messages that the snapshots of a run share are stored once. `max_snapshots_per_run`: so many of the newest stay, and the
    newest one and the newest complete one at any rate; None: all stay. Every call is one transaction; a cancelled one is done
    either completely or not at all. A run is registered once: another one of the same id raises RunTaken. The caller opens and
    closes the store. A value that cannot be stored raises InvalidInput, which is also a UserError of the framework.
    """

    def __init__(self, store: Store | AsyncStore, *, max_snapshots_per_run: int | None = None) -> None:
        self._calls = Calls("PersistStepStore", store)
        self._store = store
        if max_snapshots_per_run is not None and (type(max_snapshots_per_run) is not int or max_snapshots_per_run < 1):
            raise InvalidInput(
                "max_snapshots_per_run", f"expected a whole number from 1 on or None, got {max_snapshots_per_run!r}."
            )
        self._keep = max_snapshots_per_run

    def __repr__(self) -> str:
        return f"PersistStepStore({self._store!r})"

    async def register_run(self, record: RunRecord) -> None:
        """Register a run. To register the very same again does nothing."""
        _check("record", record, RunRecord)
        given = {"parent_id": record.parent_run_id, **fields_of(record, _OF_RUN)}
        try:
            await self._calls.write(lambda work: HistoryRuns(work).register(record.run_id, **given))
        except Conflict as error:
            raise RunTaken(record.run_id) from error

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        """The run, or None."""
        found = await self._calls.read(lambda work: HistoryRuns(work).find(run_id))
        return None if found is None else _run(found)

    async def list_runs(self, *, parent_run_id: str | None = None, conversation_id: str | None = None) -> list[RunRecord]:
        """The runs with this parent and of this conversation, as far as these are given, the one started first first."""
        runs = await self._calls.read(
            lambda work: HistoryRuns(work).started(parent_id=parent_run_id, conversation_id=conversation_id)
        )
        return [_run(found) for found in runs]

    async def append_event(self, event: StepEvent) -> None:
        """Append an event, unless the run has one with its idempotency key."""
        _check("event", event, StepEvent)
        given = {"at": event.timestamp, **fields_of(event, _OF_EVENT)}
        await self._calls.write(lambda work: RunEvents(work).append(event.run_id, event.kind, **given))

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        """The events of a run, oldest first."""
        return [_event(found) for found in await self._calls.read(lambda work: RunEvents(work).list(run_id))]

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Add a snapshot, unless the run has one with its idempotency key, or had one with a key of a greater number."""
        _check("snapshot", snapshot, ContinuableSnapshot)
        messages = encoded("messages", snapshot.messages)
        given = {"state": snapshot.state, "taken_at": snapshot.timestamp, **fields_of(snapshot, _OF_SNAPSHOT)}
        given |= {"sequence": _sequence(snapshot.idempotency_key), "keep": self._keep}
        await self._calls.write(lambda work: RunSnapshots(work).save(snapshot.run_id, messages, **given))

    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        """The newest complete snapshot of a run, or with `include_interrupted` the newest one; None without one."""
        found = await self._calls.read(lambda work: RunSnapshots(work).latest(run_id, include_interrupted=include_interrupted))
        return None if found is None else _snapshot(found)

    async def list_snapshots(self, *, run_id: str, include_interrupted: bool = False) -> list[ContinuableSnapshot]:
        """The snapshots that a run still has, oldest first; interrupted ones with `include_interrupted` only."""
        found = await self._calls.read(lambda work: RunSnapshots(work).list(run_id, include_interrupted=include_interrupted))
        return [_snapshot(one) for one in found]

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Note what is known of a tool call, in place of what was known."""
        _check("record", record, ToolEffectRecord)
        given = {"status": record.status, **fields_of(record, _OF_EFFECT)}
        await self._calls.write(lambda work: ToolEffects(work).put(record.run_id, record.tool_call_id, **given))

    async def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """What is known of a tool call, or None."""
        found = await self._calls.read(lambda work: ToolEffects(work).find(run_id, tool_call_id))
        return None if found is None else _effect(found)

    async def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """The started calls of a run without a known end, in the order of their starts."""
        return [_effect(found) for found in await self._calls.read(lambda work: ToolEffects(work).unresolved(run_id))]


def _check(path: str, value: object, kind: type) -> None:
    with InvalidInput.raised():
        check_kind(path, value, kind)


def _sequence(key: object) -> int | None:
    """The number before the colon of a key, as the harness reads it; None without one."""
    number, colon, _ = (key if isinstance(key, str) else "").partition(":")
    try:
        sequence = int(number) if colon else -1
    except ValueError:
        return None
    return sequence if sequence >= 0 else None


def _run(found: HistoryRun) -> RunRecord:
    return RunRecord(run_id=found.id, parent_run_id=found.parent_id, **fields_of(found, _OF_RUN))


def _event(found: RunEvent) -> StepEvent:
    return StepEvent(run_id=found.run_id, kind=cast(Any, found.kind), timestamp=found.at, **fields_of(found, _OF_EVENT))


def _snapshot(found: LoadedSnapshot) -> ContinuableSnapshot:
    row = found.snapshot
    state: Any = str(row.state)
    own = {"run_id": row.run_id, "timestamp": row.taken_at, **fields_of(row, _OF_SNAPSHOT)}
    return ContinuableSnapshot(messages=decoded(found.entries), state=state, **own)


def _effect(found: ToolEffect) -> ToolEffectRecord:
    status: Any = str(found.status)
    return ToolEffectRecord(run_id=found.run_id, tool_call_id=found.tool_call_id, status=status, **fields_of(found, _OF_EFFECT))
