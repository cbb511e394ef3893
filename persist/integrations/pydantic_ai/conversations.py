"""PersistConversationStore: the conversation store of Pydantic AI over a Store or an AsyncStore."""

import logging
from collections.abc import Sequence
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord, ConversationStore
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage
from pydantic_core import PydanticSerializationError

from persist.db.values.arguments import check_kind, check_list
from persist.errors import Conflict, NotFound, StoreCorrupt, named
from persist.framework_state.histories.appending import HistoryEntries
from persist.framework_state.histories.records import HistoryRecords
from persist.framework_state.histories.schemas import Entry, History, NewEntry
from persist.integrations.pydantic_ai.messages import Calls, InvalidInput, decoded, encoded, fields_of
from persist.integrations.store_bridge import kind_of
from persist.store.async_store import AsyncStore
from persist.store.store import Store

log = logging.getLogger("persist")
_USAGE: TypeAdapter[RunUsage] = TypeAdapter(RunUsage)
_DEFERRED: TypeAdapter[DeferredToolRequests] = TypeAdapter(DeferredToolRequests)
_OF_RECORD = ("revision", "head_id", "updated_at", "scope", "forked_from", "forked_at", "format_version")


class ConversationChanged(Conflict, ConversationConflict):
    """The conversation was saved or deleted since it was loaded: a Conflict, and the framework's ConversationConflict."""

    def __init__(self, conversation_id: str) -> None:
        ConversationConflict.__init__(self, conversation_id)
        self.constraint = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.conversation_id,)


class MissingEntry(NotFound, KeyError):  # noqa: N818  # named like the errors it stands among
    """There is no such entry: a NotFound, and the KeyError that the framework's own store raises."""

    def __init__(self, id: str) -> None:
        NotFound.__init__(self, "history entry", id)

    def __str__(self) -> str:
        return f"There is no history entry {named(self.id)}."

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.id,)


class PersistConversationStore(ConversationStore):
    """Keeps conversations in a store: every message once, however many conversations were forked from it.

    Every call is one transaction; a cancelled one is done either completely or not at all. `delete` erases a conversation's
    messages, except those that the history of another conversation, or a branch that it has left, still has. The caller opens
    and closes the store. A value that cannot be stored raises InvalidInput, which is also a UserError of the framework.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._calls = Calls("PersistConversationStore", store)
        self._store = store

    def __repr__(self) -> str:
        return f"PersistConversationStore({self._store!r})"

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation, or None."""
        found = await self._calls.read(lambda work: HistoryRecords(work).find(conversation_id))
        return None if found is None else _record(found)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """The records, or those with this scope, the one written last first; at most `limit` of them."""
        found = await self._calls.read(lambda work: HistoryRecords(work).latest(scope=scope, limit=limit))
        return [_record(one) for one in found]

    async def write_record(
        self, record: ConversationRecord, *, new_entries: Sequence[ConversationEntry] = (), expected_revision: str | None
    ) -> None:
        """Store a record with its new entries if the stored revision is the expected one, all or nothing."""
        with InvalidInput.raised():
            check_kind("record", record, ConversationRecord)
            id, branches = record.conversation_id, check_list("branches", record.branches)
            given_entries = check_list("new_entries", new_entries)
            for index, entry in enumerate(given_entries):
                check_kind(f"new_entries[{index}]", entry, ConversationEntry)
        messages = encoded("messages", [entry.message for entry in given_entries], [entry.kind for entry in given_entries])
        entries = [NewEntry(entry.id, entry.parent_id, message) for entry, message in zip(given_entries, messages, strict=True)]
        given: dict[str, Any] = {
            "expected_revision": expected_revision,
            "entries": entries,
            "branches": branches,
            "usage": _dumped("usage", _USAGE, record.usage),
            "deferred": _dumped("deferred_tool_requests", _DEFERRED, record.deferred_tool_requests),
            **fields_of(record, _OF_RECORD),
        }
        try:
            await self._calls.write(lambda work: HistoryRecords(work).put(id, **given))
        except Conflict as error:
            raise ConversationChanged(id) from error

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a record of this revision, and the entries that no other record's history or branch reaches."""
        with InvalidInput.raised():
            check_kind("expected_revision", expected_revision, str)
        try:
            await self._calls.write(
                lambda work: HistoryRecords(work).delete(conversation_id, expected_revision=expected_revision)
            )
        except Conflict as error:
            raise ConversationChanged(conversation_id) from error

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """The entry with this id. Raises MissingEntry."""
        try:
            found = await self._calls.read(lambda work: HistoryEntries(work).get(entry_id))
        except NotFound as error:
            raise MissingEntry(entry_id) from error
        return _entries([found])[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to `head_id`, oldest first, or the last `limit` of them: one query. Unreadable ones are left out.

        Raises MissingEntry for an unknown head, and StoreCorrupt where another program's rows are no chain of messages.
        """
        if limit is not None and type(limit) is not int:
            raise InvalidInput("limit", f"expected a whole number or None, got {type(limit).__name__}.")
        if head_id is None or (limit is not None and limit <= 0):
            return []
        try:
            found = await self._calls.read(lambda work: HistoryEntries(work).list(head_id, limit=limit))
        except NotFound as error:
            raise MissingEntry(head_id) from error
        return _readable(found)


def _entries(found: Sequence[Entry]) -> list[ConversationEntry]:
    return [
        ConversationEntry(id=entry.id, parent_id=entry.parent_id, message=message, kind=cast(Any, entry.kind))
        for entry, message in zip(found, decoded(found), strict=True)
    ]


def _readable(found: Sequence[Entry]) -> list[ConversationEntry]:
    """The entries, without those whose JSON is no message: another program, or another release of Pydantic AI, wrote them."""
    try:
        return _entries(found)
    except StoreCorrupt:
        entries = []
        for one in found:
            try:
                entries += _entries([one])
            except StoreCorrupt as error:
                log.warning("the message %s of a conversation is left out: %s", named(one.id), error)
        return entries


def _record(found: History) -> ConversationRecord:
    try:
        usage = _USAGE.validate_python(found.usage)
        deferred = None if found.deferred is None else _DEFERRED.validate_python(found.deferred)
    except ValidationError as error:
        reason = f"what is stored for {named(found.id)} is no conversation of Pydantic AI: {kind_of(error)}."
    else:
        own = {"conversation_id": found.id, "branches": found.branches, **fields_of(found, _OF_RECORD)}
        return ConversationRecord(usage=usage, deferred_tool_requests=deferred, **own)
    raise StoreCorrupt("history_records", reason)


def _dumped(path: str, adapter: TypeAdapter[Any], value: Any) -> Any:
    """The JSON of a value, None for None. Raises InvalidInput if the value could not be built again from it."""
    if value is None:
        return None
    try:
        dumped = adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        if adapter.validate_python(dumped) == value:
            return dumped
        reason = "it holds what JSON cannot say, such as bytes or NaN."
    except (PydanticSerializationError, ValidationError, ValueError, TypeError, RecursionError) as error:
        reason = f"Pydantic AI cannot serialize it: {kind_of(error)}."
    raise InvalidInput(path, reason)
