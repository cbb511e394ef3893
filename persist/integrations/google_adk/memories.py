"""PersistMemoryService: Google ADK's memory service over a Store or an AsyncStore, searched by words."""

import itertools
import re
import unicodedata
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types
from pydantic import ValidationError

from persist.db.values.arguments import check_kind, check_list
from persist.framework_state.app_sessions.memories import AppMemories
from persist.framework_state.app_sessions.schemas import NewMemory
from persist.integrations.google_adk import encoding
from persist.integrations.store_bridge import StoreBridge, kind_of
from persist.store.async_store import AsyncStore
from persist.store.store import Store

_OF_NO_SESSION = "__unknown_session_id__"
_MOST = 10


class PersistMemoryService(BaseMemoryService):
    """Keeps memories in a store: `Runner(..., memory_service=PersistMemoryService(store))`.

    A search finds what the framework's InMemoryMemoryService finds: at most ten events, those that share the most words with
    the query. A session may be added again and again; it replaces what was remembered of it. Every call is one transaction.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        with encoding.InvalidArgument.raised():
            self._bridge = StoreBridge(store)

    async def add_session_to_memory(self, session: Session) -> None:
        """Replace the session's memories by its events that have content."""
        with encoding.InvalidArgument.raised():
            given = _memories("session.events", check_kind("session", session, Session).events, {})
            await self._bridge.call_async(
                lambda work: AppMemories(work).replace(session.app_name, session.user_id, session.id, given), writes=True
            )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add events to the memories, except events that are there already. The metadata are stored with each event."""
        with encoding.InvalidArgument.raised():
            given = _memories("events", events, encoding.mapping("custom_metadata", custom_metadata))
            await self._bridge.call_async(
                lambda work: AppMemories(work).add(app_name, user_id, session_id or _OF_NO_SESSION, given), writes=True
            )

    async def add_memory(
        self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry], custom_metadata: Mapping[str, object] | None = None
    ) -> None:
        """Add memory entries under their ids, or under new ids. The metadata are added to each entry's own."""
        with encoding.InvalidArgument.raised():
            shared, given = encoding.mapping("custom_metadata", custom_metadata), []
            for number, one in enumerate(check_list("memories", memories)):
                path = f"memories[{number}]"
                entry = check_kind(path, one, MemoryEntry)
                metadata = {**shared, **encoding.mapping(f"{path}.custom_metadata", entry.custom_metadata)}
                given.append(_memory(entry.model_copy(update={"id": entry.id or str(uuid.uuid4()), "custom_metadata": metadata})))
            await self._bridge.call_async(
                lambda work: AppMemories(work).add(app_name, user_id, _OF_NO_SESSION, given), writes=True
            )

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """The user's memories that share the most words with the query, at most ten."""
        if not isinstance(query, str):
            raise encoding.InvalidArgument("query", f"expected text, got {type(query).__name__}.")
        with encoding.InvalidArgument.raised():
            words = _words(query)
            found = await self._bridge.call_async(
                lambda work: AppMemories(work).search(app_name, user_id, words, limit=_MOST), writes=False
            )
        return SearchMemoryResponse(memories=[encoding.model_of(MemoryEntry, one.entry, f"memory {one.id}") for one in found])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete a memory by its id. Adding its session or event again does not bring it back."""
        if memory_id:
            with encoding.InvalidArgument.raised():
                await self._bridge.call_async(lambda work: AppMemories(work).delete(app_name, user_id, memory_id), writes=True)


def _memories(path: str, given: object, metadata: Mapping[str, object]) -> list[NewMemory]:
    events = [check_kind(f"{path}[{number}]", one, Event) for number, one in enumerate(check_list(path, given))]
    return [
        _memory(_entry(event, metadata))
        for event in events
        if event.content and check_kind("event.content", event.content, types.Content).parts
    ]


def _entry(event: Event, metadata: Mapping[str, object]) -> MemoryEntry:
    at = _local_time(event.timestamp)
    try:
        return MemoryEntry(id=event.id, content=event.content, author=event.author, timestamp=at, custom_metadata=dict(metadata))
    except ValidationError as error:
        found = kind_of(error)
    raise encoding.InvalidArgument("event", f"it cannot be remembered: {found}.")


def _local_time(timestamp: float) -> str:
    try:
        return datetime.fromtimestamp(timestamp).isoformat()
    except (ValueError, TypeError, OverflowError, OSError):
        pass
    raise encoding.InvalidArgument("event.timestamp", "it is no instant of a calendar.")


def _memory(entry: MemoryEntry) -> NewMemory:
    text = _text(check_kind("memory.content", entry.content, types.Content))
    return NewMemory(
        id=entry.id or "",
        entry=encoding.model_text("memory", entry),
        text=unicodedata.normalize("NFC", text).lower(),
        words=_words_found_by(text),
    )


def _text(content: types.Content) -> str:
    text = " ".join(part.text for part in content.parts or () if part.text)
    return text.replace("\0", " ")  # SQLite searches a text up to its first NUL


def _words(text: str) -> set[str]:
    return {word.lower() for word in re.findall(r"\w+", unicodedata.normalize("NFC", text))}


def _words_found_by(text: str) -> set[str]:
    """The words that find a text: the word itself, and where it mixes Latin with other letters, each run of one kind."""
    found = _words(text)
    mixed = [word for word in found if not word.isascii()]
    runs = ("".join(run) for word in mixed for _, run in itertools.groupby(word, _is_latin))
    return found.union(runs)


def _is_latin(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character == "_"
    return unicodedata.name(character, "").startswith("LATIN")
