"""persist's conformance kit: our store passes it, the framework's but for four checks, and each check finds its fault."""

import asyncio
import json
from typing import Any

from claude_agent_sdk import InMemorySessionStore

from persist.integrations.claude_agent_sdk import PersistSessionStore
from persist.testing.conformance.claude_agent_sdk import CHECKS
from tests.contract.faces import every_way
from tests.integrations.kits import Do, require_all, require_all_but_beyond, require_faults_found

BEYOND = (
    "a_retried_batch_is_stored_once",
    "entries_that_share_an_id_and_differ_are_kept",
    "similar_keys_are_different_transcripts",
    "what_is_returned_is_a_copy",
)


@every_way
def test_our_store_conforms(store: Any, do: Do) -> None:
    require_all(do, CHECKS, lambda: PersistSessionStore(store))


def test_the_sdks_own_store_conforms(do: Do) -> None:
    own = InMemorySessionStore()
    require_all_but_beyond(do, CHECKS, lambda: own)


class ListingSubagents(InMemorySessionStore):
    async def list_subkeys(self, key: Any) -> list[str]:
        return [*await super().list_subkeys(key), "main"]


class EachOnce(InMemorySessionStore):
    async def append(self, key: Any, entries: Any) -> None:
        known = await self.load(key) or []
        await super().append(key, [entry for entry in entries if entry not in known])


class Floats(InMemorySessionStore):
    async def append(self, key: Any, entries: Any) -> None:
        await super().append(key, json.loads(json.dumps(entries), parse_int=float))


class ByText(InMemorySessionStore):
    async def load(self, key: Any) -> Any:
        found = await super().load(key)
        return found and sorted(found, key=lambda entry: str(entry.get("message")))


class Interleaving(InMemorySessionStore):
    async def append(self, key: Any, entries: Any) -> None:
        for entry in entries:
            await super().append(key, [entry])
            await asyncio.sleep(0)


class FirstSummary(InMemorySessionStore):
    async def append(self, key: Any, entries: Any) -> None:
        before = dict(self._summaries)
        await super().append(key, entries)
        self._summaries = {**self._summaries, **before}


class DeletingAlike(InMemorySessionStore):
    async def delete(self, key: Any) -> None:
        await super().delete(key)
        named = f"{key['project_key']}/{key['session_id']}"
        self._store = {name: found for name, found in self._store.items() if not name.startswith(named)}


class InTwoSteps(InMemorySessionStore):
    async def append(self, key: Any, entries: Any) -> None:
        await super().append(key, entries[:1])
        await asyncio.sleep(0)
        await super().append(key, entries[1:])


def test_each_check_finds_its_fault(do: Do) -> None:
    faults: dict[str, type[InMemorySessionStore]] = {
        "the_published_kit_passes": ListingSubagents,
        "entries_without_an_id_are_all_kept": EachOnce,
        "entries_come_back_equal": Floats,
        "many_entries_stay_in_order": ByText,
        "batches_of_many_writers_stay_whole": Interleaving,
        "summaries_are_those_of_all_entries": FirstSummary,
        "a_deleted_session_can_be_written_again": DeletingAlike,
        "a_cancelled_append_is_whole_or_absent": InTwoSteps,
    }
    require_faults_found(do, CHECKS, faults, *BEYOND)
