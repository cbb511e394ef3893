"""The memory service finds what the framework's in-memory service finds."""

import math
from typing import Any

import pytest
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from persist import Store
from persist.integrations.google_adk import PersistMemoryService
from tests.integrations.google_adk.scenes import APP, NAMES, USER
from tests.integrations.kits import Do

WORDS = [
    "hello",
    "Hello",
    "wor_ld",
    "100%",
    "naïve",
    "NAÏVE",
    "e\u0301te",
    "éte",
    "私はPythonを使う",
    "python",
    "使う",
    "İx",
    "ß",
    "a\x00b",
    "!",
    "Σας",
]
TEXT = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
EVENTS = st.lists(st.tuples(st.integers(0, 6), st.lists(TEXT, max_size=2)), max_size=4, unique_by=lambda one: one[0])
OPERATION = st.one_of(
    st.tuples(st.just("session"), st.sampled_from("st"), EVENTS),
    st.tuples(st.just("events"), st.sampled_from(["s", None]), EVENTS),
    st.tuples(st.just("delete"), st.none(), st.integers(0, 6)),
)


def made(number: int, texts: list[str]) -> Event:
    parts = [types.Part(text=text) for text in texts]
    return Event(id=f"e{number}", author="user", content=types.Content(role="user", parts=parts), timestamp=1e9 + number)


async def carry_out(service: BaseMemoryService, operation: tuple[str, Any, Any], user: str) -> None:
    kind, session_id, more = operation
    names: dict[str, Any] = {"app_name": APP, "user_id": user}
    if kind == "delete":
        await service.delete_memory(**names, memory_id=f"e{more}")
        return
    events = [made(*one) for one in more]
    if kind == "session":
        await service.add_session_to_memory(Session(id=session_id, events=events, **names))
    else:
        await service.add_events_to_memory(**names, events=events, session_id=session_id)


async def found(service: BaseMemoryService, query: str, user: str = USER) -> list[dict[str, Any]]:
    response = await service.search_memory(app_name=APP, user_id=user, query=query)
    return [one.model_dump() for one in response.memories]


def test_searches_find_what_the_in_memory_service_finds(database_url: str, do: Do) -> None:
    with Store.open(database_url) as store:

        @settings(max_examples=25, deadline=None)
        @given(operations=st.lists(OPERATION, max_size=6), queries=st.lists(TEXT, max_size=3))
        def compared(operations: list[Any], queries: list[str]) -> None:
            store.app_sessions.sessions.erase_user(APP, USER)
            ours, theirs = PersistMemoryService(store), InMemoryMemoryService()
            for operation in operations:
                for service in (ours, theirs):
                    do(carry_out(service, operation, USER))
            for query in queries:
                assert do(found(ours, query)) == do(found(theirs, query))

        compared()


async def test_ten_are_found_at_most_and_those_with_most_words_first(memories: PersistMemoryService) -> None:
    theirs = InMemoryMemoryService()
    events = [made(number, ["common " * (number % 3) + "word " + "rare" * (number == 13)]) for number in range(15)]
    for service in (memories, theirs):
        await service.add_session_to_memory(Session(id="s", events=events, **NAMES))
        await service.add_session_to_memory(Session(id="s", events=events, **NAMES))
    listed = await found(memories, "common rare WORD?")
    assert listed == await found(theirs, "common rare WORD?")
    assert (len(listed), listed[0]["id"]) == (10, "e13")
    long = " ".join(f"word{number}" for number in range(500)) + " common"
    assert await found(memories, long) == await found(theirs, long) != []
    assert await found(memories, "common", user="joe") == await found(memories, "") == []


async def test_entries_that_are_written_directly(memories: PersistMemoryService) -> None:
    entry = MemoryEntry(
        content=types.Content(parts=[types.Part(text="likes tea\x00 \ud83d"), types.Part(thought_signature=b"\xff")]),
        custom_metadata={"n": float("inf"), "z": 2**70},
        author="maria",
        timestamp="yesterday",
        id="one",
    )
    unnamed = MemoryEntry(content=types.Content(parts=[types.Part(text="tea")]))
    await memories.add_memory(**NAMES, memories=[entry, unnamed], custom_metadata={"ttl": "1d"})
    await memories.add_memory(**NAMES, memories=[entry])
    first, second = (await memories.search_memory(**NAMES, query="likes tea")).memories
    assert first == entry.model_copy(update={"custom_metadata": {"ttl": "1d", "n": math.inf, "z": 2**70}})
    assert second.content == unnamed.content
    assert second.id is not None
    await memories.delete_memory(**NAMES, memory_id=second.id)
    await memories.delete_memory(**NAMES)
    assert len((await memories.search_memory(**NAMES, query="tea")).memories) == 1
    with pytest.raises(InputValidationError):
        await memories.add_memory(**NAMES, memories=[entry], custom_metadata={"b": b"bytes"})
