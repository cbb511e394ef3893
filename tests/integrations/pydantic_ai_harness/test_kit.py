"""persist's conformance kit: our store passes it, the harness's but for two checks, and each check finds the fault it is for."""

import asyncio
from dataclasses import replace
from typing import Any

from pydantic_ai_harness.step_persistence import ContinuableSnapshot, InMemoryStepStore, RunRecord, StepEvent, ToolEffectRecord

from persist import AsyncStore, Store
from persist.integrations.pydantic_ai import PersistStepStore
from persist.testing.conformance import pydantic_ai_harness
from tests.contract.faces import every_way
from tests.integrations.kits import Do, require_all, require_all_but_beyond, require_faults_found

BEYOND = ("a_run_is_registered_once", "what_is_returned_is_a_copy")


@every_way
def test_our_store_conforms(store: Store | AsyncStore, do: Do) -> None:
    require_all(do, pydantic_ai_harness.CHECKS, lambda: PersistStepStore(store))


def test_the_harnesss_own_store_conforms(do: Do) -> None:
    own = InMemoryStepStore()
    require_all_but_beyond(do, pydantic_ai_harness.CHECKS, lambda: own)


class Inventing(InMemoryStepStore):
    async def get_run(self, *, run_id: str) -> RunRecord | None:
        return await super().get_run(run_id=run_id) or RunRecord(run_id=run_id)


class Anonymous(InMemoryStepStore):
    async def register_run(self, record: RunRecord) -> None:
        await super().register_run(replace(record, registration_id=None))


class AsRegistered(InMemoryStepStore):
    async def list_runs(self, **filters: Any) -> list[RunRecord]:
        found = {run.run_id for run in await super().list_runs(**filters)}
        return [run for run in self._runs.values() if run.run_id in found]


class ByStep(InMemoryStepStore):
    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        return sorted(await super().list_events(run_id=run_id), key=lambda event: event.step_index)


class Repeating(InMemoryStepStore):
    async def append_event(self, event: StepEvent) -> None:
        self._events[event.run_id].append(event)


class Newest(InMemoryStepStore):
    async def latest_snapshot(self, *, run_id: str, include_interrupted: bool = False) -> ContinuableSnapshot | None:
        return await super().latest_snapshot(run_id=run_id, include_interrupted=True)


class LastCome(InMemoryStepStore):
    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        self._snapshots[snapshot.run_id].append(snapshot)


class Cutting(InMemoryStepStore):
    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        await super().save_snapshot(replace(snapshot, messages=snapshot.messages[:3]))


class OnlyGrowing(InMemoryStepStore):
    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        before = await self.latest_snapshot(run_id=snapshot.run_id)
        known = [] if before is None else before.messages
        await super().save_snapshot(replace(snapshot, messages=[*known, *snapshot.messages[len(known) :]]))


class FirstWord(InMemoryStepStore):
    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        self._tool_effects.setdefault((record.run_id, record.tool_call_id), record)


class Racing(InMemoryStepStore):
    async def append_event(self, event: StepEvent) -> None:
        known = any(one.idempotency_key == event.idempotency_key for one in self._events[event.run_id])
        await asyncio.sleep(0)
        if event.idempotency_key is None or not known:
            self._events[event.run_id].append(event)


class InTwoSteps(InMemoryStepStore):
    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        half = replace(snapshot, messages=[])
        await super().save_snapshot(half)
        await asyncio.sleep(0)
        half.messages.extend(snapshot.messages)


def test_each_check_finds_its_fault(do: Do) -> None:
    faults = {
        "an_unknown_run_is_nothing": Inventing,
        "a_run_comes_back": Anonymous,
        "runs_are_listed_by_their_start": AsRegistered,
        "events_come_back_in_order": ByStep,
        "an_event_that_is_repeated_is_stored_once": Repeating,
        "the_latest_complete_snapshot_is_given": Newest,
        "an_older_snapshot_is_ignored": LastCome,
        "messages_come_back_exactly": Cutting,
        "a_history_may_be_rewritten": OnlyGrowing,
        "the_last_word_on_a_tool_call_counts": FirstWord,
        "what_comes_at_once_is_kept_once": Racing,
        "a_cancelled_snapshot_is_whole_or_absent": InTwoSteps,
    }
    require_faults_found(do, pydantic_ai_harness.CHECKS, faults, *BEYOND)
