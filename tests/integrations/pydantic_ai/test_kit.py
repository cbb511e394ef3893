"""persist's conformance kit: our store passes it, the framework's passes it, and each check finds the fault it is for."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord, InMemoryConversationStore
from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.usage import RunUsage

from persist import AsyncStore, Store
from persist.integrations.pydantic_ai import PersistConversationStore
from persist.testing.conformance import pydantic_ai
from tests.contract.faces import every_way
from tests.integrations.kits import Do, require_all, require_all_but_beyond, require_faults_found


@every_way
def test_our_store_conforms(store: Store | AsyncStore, do: Do) -> None:
    require_all(do, pydantic_ai.CHECKS, lambda: PersistConversationStore(store))


def test_the_frameworks_own_store_conforms(do: Do) -> None:
    own = InMemoryConversationStore()
    require_all_but_beyond(do, pydantic_ai.CHECKS, lambda: own)


class Inventing(InMemoryConversationStore):
    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return await super().read_record(conversation_id) or ConversationRecord(conversation_id=conversation_id, head_id=None)


class Faulty(InMemoryConversationStore):
    """Changes what is written before it is."""

    def changed(self, record: ConversationRecord, entries: list[ConversationEntry]) -> tuple[Any, list[ConversationEntry]]:
        return record, entries

    async def write_record(
        self, record: ConversationRecord, *, new_entries: Sequence[ConversationEntry] = (), expected_revision: str | None
    ) -> None:
        given, entries = self.changed(record, list(new_entries))
        await super().write_record(given, new_entries=entries, expected_revision=expected_revision)


class WithoutUsage(Faulty):
    def changed(self, record: ConversationRecord, entries: list[ConversationEntry]) -> Any:
        return replace(record, usage=RunUsage()), entries


class NewestFirst(InMemoryConversationStore):
    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        return (await super().read_history(head_id, limit=limit))[::-1]


class Overwriting(InMemoryConversationStore):
    async def write_record(self, record: ConversationRecord, **options: Any) -> None:
        stored = self._records.get(record.conversation_id)
        options["expected_revision"] = None if stored is None else stored.revision
        await super().write_record(record, **options)


class AnyHead(InMemoryConversationStore):
    async def write_record(self, record: ConversationRecord, **options: Any) -> None:
        self._records[record.conversation_id] = record


class ErasingWhatIsShared(InMemoryConversationStore):
    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        at = self._records[conversation_id].head_id
        chain = [] if at is None else await self.read_history(at)
        await super().delete_record(conversation_id, expected_revision=expected_revision)
        for entry in chain:
            self._entries.pop(entry.id, None)


class ForgettingBranches(InMemoryConversationStore):
    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        kept = {id: record.branches for id, record in self._records.items()}
        for record in self._records.values():
            record.branches = []
        await super().delete_record(conversation_id, expected_revision=expected_revision)
        for id, record in self._records.items():
            record.branches = kept[id]


class KeepingAll(InMemoryConversationStore):
    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        del self._records[conversation_id]


class OfAllScopes(InMemoryConversationStore):
    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        return await super().read_records(limit=limit)


class Folding(Faulty):
    def changed(self, record: ConversationRecord, entries: list[ConversationEntry]) -> Any:
        self._records.pop(record.conversation_id.lower(), None)
        return replace(record, conversation_id=record.conversation_id.lower()), entries

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return await super().read_record(conversation_id.lower())


class Cutting(Faulty):
    def changed(self, record: ConversationRecord, entries: list[ConversationEntry]) -> Any:
        for number, entry in enumerate(entries):
            if isinstance(entry.message, ModelRequest) and isinstance(entry.message.parts[0], UserPromptPart):
                part = entry.message.parts[0]
                cut = replace(entry.message, parts=[replace(part, content=part.content[:65_536])])
                entries[number] = replace(entry, message=cut)
        return record, entries


class Sharing(InMemoryConversationStore):
    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return self._records.get(conversation_id)


class Racing(InMemoryConversationStore):
    async def write_record(self, record: ConversationRecord, **options: Any) -> None:
        stored = self._records.get(record.conversation_id)
        if stored is not None and stored.revision == options["expected_revision"]:
            await asyncio.sleep(0)
            options["expected_revision"] = self._records[record.conversation_id].revision
        await super().write_record(record, **options)


class InTwoSteps(Faulty):
    async def write_record(self, record: ConversationRecord, **options: Any) -> None:
        self._entries |= {entry.id: entry for entry in options["new_entries"]}
        await asyncio.sleep(0)
        await super().write_record(record, **options)


FAULTS: dict[str, type[InMemoryConversationStore]] = {
    "an_unknown_conversation_is_nothing": Inventing,
    "a_record_and_its_entries_come_back": WithoutUsage,
    "a_history_ends_at_its_head": NewestFirst,
    "an_outdated_revision_is_a_conflict": Overwriting,
    "a_head_is_stored_or_new": AnyHead,
    "a_fork_keeps_what_it_shares": ErasingWhatIsShared,
    "what_a_branch_holds_is_kept": ForgettingBranches,
    "what_nothing_reaches_is_erased": KeepingAll,
    "records_are_listed_by_scope": OfAllScopes,
    "similar_ids_are_different_conversations": Folding,
    "messages_come_back_exactly": Cutting,
    "what_is_returned_is_a_copy": Sharing,
    "of_concurrent_writers_one_wins": Racing,
    "a_cancelled_write_is_whole_or_absent": InTwoSteps,
}


def test_each_check_finds_its_fault(do: Do) -> None:
    require_faults_found(do, pydantic_ai.CHECKS, FAULTS)
