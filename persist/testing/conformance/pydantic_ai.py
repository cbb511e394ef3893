"""Checks of a `ConversationStore` of Pydantic AI. `make()` returns a store; all of them are over one storage."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.usage import RunUsage

from persist.testing.conformance.running import NotConformant, cancel_after, checks_in, expect, expect_error, new_id

Make = Callable[[], Any]
Check = Callable[[Make], Awaitable[None]]

_AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def _asked(content: Any) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(content, timestamp=_AT)])


def _chain(*texts: Any, parent: str | None = None) -> list[Any]:
    """Entries that point at the entry before, with new ids."""
    entries: list[Any] = []
    for text in texts:
        entries.append(ConversationEntry(id=new_id("entry"), parent_id=parent, message=_asked(text)))
        parent = entries[-1].id
    return entries


def _record(entries: list[Any], **fields: Any) -> Any:
    given = {"conversation_id": new_id(), "head_id": entries[-1].id if entries else None, "updated_at": _AT, **fields}
    return ConversationRecord(**given)


async def _stored(store: Any, *texts: Any, **fields: Any) -> tuple[Any, list[Any]]:
    entries = _chain(*texts)
    record = _record(entries, **fields)
    await store.write_record(record, new_entries=entries, expected_revision=None)
    return record, entries


async def _is_missing(store: Any, entry_id: str, sentence: str) -> None:
    await expect_error(Exception, store.read_entry(entry_id), sentence)


async def an_unknown_conversation_is_nothing(make: Make) -> None:
    """What nobody stored is None or empty, deleting it does nothing, and an unknown entry raises."""
    store = make()
    expect(None, await store.read_record(new_id()), "There is no record of a conversation that nobody saved.")
    expect([], list(await store.read_history(None)), "A history without a head is empty.")
    expect([], list(await store.read_records(scope=new_id())), "Nothing was saved with this scope.")
    await store.delete(new_id())
    deleting = store.delete_record(new_id(), expected_revision="1")
    await expect_error(ConversationConflict, deleting, "To delete a record that is not there is a conflict.")
    await _is_missing(store, new_id(), "An unknown entry raises; a vanished one must not look like an empty message.")


async def a_record_and_its_entries_come_back(make: Make) -> None:
    """A record comes back with every field, and an entry with its parent and its message."""
    store, entries = make(), _chain("a", "b")
    usage = RunUsage(requests=2, input_tokens=2**53 + 1, output_tokens=3, details={"z": 1, "a": 2})
    more: dict[str, Any] = {"forked_from": new_id(), "forked_at": entries[0].id, "branches": [entries[0].id], "scope": new_id()}
    record = _record(entries, usage=usage, **more)
    await store.write_record(record, new_entries=entries, expected_revision=None)
    expect(record, await make().read_record(record.conversation_id), "A record comes back as it was written.")
    expect(entries, [await make().read_entry(entry.id) for entry in entries], "Entries come back as they were written.")


async def a_history_ends_at_its_head(make: Make) -> None:
    """A history has its entries from the first one to the head, or the last ones of a limit, oldest first."""
    store = make()
    _, entries = await _stored(store, *"abcdef")
    ids = [entry.id for entry in entries]
    expect(ids, [entry.id for entry in await store.read_history(ids[-1])], "A history is in order.")
    for limit in (0, 1, 4, 99):
        found = [entry.id for entry in await store.read_history(ids[-1], limit=limit)]
        expect(ids[-limit:] if limit else [], found, f"A limit of {limit} gives the last entries, oldest first.")
    expect(ids[:3], [entry.id for entry in await store.read_history(ids[2])], "A history ends at the entry that is named.")


async def an_outdated_revision_is_a_conflict(make: Make) -> None:
    """A write or a deletion that expects another revision than the stored one raises, and leaves nothing behind."""
    store = make()
    record, entries = await _stored(store, "a")
    new = _chain("b", parent=entries[-1].id)
    changed = replace(record, head_id=new[0].id, revision=new_id())
    for expected in (new_id(), None):
        writing = store.write_record(changed, new_entries=new, expected_revision=expected)
        await expect_error(ConversationConflict, writing, "Who expects another revision does not write.")
    deleting = store.delete_record(record.conversation_id, expected_revision=new_id())
    await expect_error(ConversationConflict, deleting, "Who expects another revision does not delete.")
    expect(record, await store.read_record(record.conversation_id), "A conflict leaves the record as it was.")
    await _is_missing(store, new[0].id, "A conflict leaves no entry behind.")
    await store.write_record(changed, new_entries=new, expected_revision=record.revision)
    expect(changed, await store.read_record(record.conversation_id), "Who expects the stored revision writes.")


async def a_head_is_stored_or_new(make: Make) -> None:
    """A record whose head is neither stored nor among the new entries is a conflict."""
    store = make()
    record = _record([], head_id=new_id())
    writing = store.write_record(record, expected_revision=None)
    await expect_error(ConversationConflict, writing, "A head that nobody stored is a conflict.")
    expect(None, await store.read_record(record.conversation_id), "A conflict leaves no record behind.")


async def a_fork_keeps_what_it_shares(make: Make) -> None:
    """A fork points at an entry of its origin, and still has its whole history once the origin is deleted."""
    store = make()
    record, entries = await _stored(store, *"abc")
    more = _chain("x", parent=entries[1].id)
    fork = _record(more, forked_from=record.conversation_id, forked_at=entries[1].id)
    await store.write_record(fork, new_entries=more, expected_revision=None)
    await store.delete_record(record.conversation_id, expected_revision=record.revision)
    kept = [entries[0].id, entries[1].id, more[0].id]
    expect(kept, [entry.id for entry in await store.read_history(more[0].id)], "What a fork shares outlives its origin.")


async def what_a_branch_holds_is_kept(make: Make) -> None:
    """The entries of a branch that a conversation has left are kept, also where another conversation is deleted."""
    store = make()
    record, entries = await _stored(store, *"abc")
    other, _ = await _stored(store, "z")
    more = _chain("x", parent=entries[0].id)
    moved = replace(record, head_id=more[0].id, branches=[entries[-1].id], revision=new_id())
    await store.write_record(moved, new_entries=more, expected_revision=record.revision)
    await store.delete_record(other.conversation_id, expected_revision=other.revision)
    left = [entry.id for entry in await store.read_history(entries[-1].id)]
    expect([entry.id for entry in entries], left, "A branch that was left can be read and returned to.")


async def what_nothing_reaches_is_erased(make: Make) -> None:
    """Deleting a conversation erases the entries that no other one reaches."""
    store = make()
    record, entries = await _stored(store, "a secret")
    await store.delete_record(record.conversation_id, expected_revision=record.revision)
    expect(None, await store.read_record(record.conversation_id), "A deleted record is gone.")
    await _is_missing(store, entries[0].id, "A message that nothing reaches any more is gone.")


async def records_are_listed_by_scope(make: Make) -> None:
    """Records of a scope are listed newest first, at most as many as asked for."""
    store, scope = make(), new_id()
    ids = []
    for number in (1, 3, 2):
        record, _ = await _stored(store, "a", scope=scope, updated_at=_AT + timedelta(seconds=number))
        ids.append(record.conversation_id)
    await _stored(store, "a", scope=scope + "-other")
    newest = [ids[1], ids[2], ids[0]]
    for limit in (None, 2, 0):
        found = [record.conversation_id for record in await store.read_records(scope=scope, limit=limit)]
        expect(newest[:limit], found, f"The records of a scope are listed newest first, with a limit of {limit}.")


async def similar_ids_are_different_conversations(make: Make) -> None:
    """Ids that differ in case, in spaces or in accents, or that are patterns of SQL, are conversations of their own."""
    store, base = make(), new_id("Name a")
    names = [base, base.upper(), base + " ", base + "%", base[:-1] + "_", base + "'", base.replace("a", "á")]
    for number, name in enumerate(names):
        await _stored(store, f"{number}", conversation_id=name, scope=name)
    for name in names:
        record = await store.read_record(name)
        expect(name, record and record.conversation_id, f"The conversation {name!r} has a record of its own.")
        expect([name], [found.conversation_id for found in await store.read_records(scope=name)], "Scopes are exact.")


async def messages_come_back_exactly(make: Make) -> None:
    """Messages come back equal: every character that UTF-8 has, the arguments of tools, bytes."""
    text = 'line\u2028separator, tab\t, quote", back\\slash, \u0085, \xe9, e\u0301, \U0001f600, \ufeff, \x7f, %s'
    arguments = {"z": 1, "a": {"z": None, "a": [1, True, -0.5, 2**53 + 1]}, "": ""}
    messages = [
        _asked([text, BinaryContent(bytes(range(256)), media_type="application/octet-stream")]),
        ModelResponse(parts=[TextPart(""), ToolCallPart("tool", arguments, tool_call_id="c")], timestamp=_AT),
        _asked("é" * 500_000),
    ]
    entries = [replace(entry, message=message) for entry, message in zip(_chain(*"abc"), messages, strict=True)]
    await make().write_record(_record(entries), new_entries=entries, expected_revision=None)
    found = await make().read_history(entries[-1].id)
    expect(messages, [entry.message for entry in found], "Messages come back as they were stored.")
    expect(list(arguments), list(found[1].message.parts[1].args), "The arguments of a tool keep the order of their keys.")


async def what_is_returned_is_a_copy(make: Make) -> None:
    """Changing what was given or what was returned changes nothing that is stored."""
    store = make()
    record, entries = await _stored(store, "a")
    record.branches.append("changed")
    found = await store.read_record(record.conversation_id)
    expect([], found.branches, "A record does not change with the object that was given.")
    found.usage.requests = 9
    (entry,) = await store.read_history(entries[0].id)
    entry.message.parts[0].content = "changed"
    expect(0, (await store.read_record(record.conversation_id)).usage.requests, "A record does not change with a returned one.")
    expect(
        "a", (await store.read_entry(entries[0].id)).message.parts[0].content, "A message does not change with a returned one."
    )


async def of_concurrent_writers_one_wins(make: Make) -> None:
    """Exactly one of many that write over the same revision at once does, and the others are conflicts that leave nothing."""
    record, entries = await _stored(make(), "a")

    async def write(number: int) -> Any:
        new = _chain(f"{number}", parent=entries[0].id)
        changed = replace(record, head_id=new[0].id, revision=new_id())
        try:
            await make().write_record(changed, new_entries=new, expected_revision=record.revision)
        except ConversationConflict:
            return None
        return changed

    won = [one for one in await asyncio.gather(*(write(number) for number in range(8))) if one is not None]
    if len(won) != 1:
        raise NotConformant("Of many writers of one revision exactly one wins.", 1, len(won))
    expect(won[0], await make().read_record(record.conversation_id), "What the winner wrote is stored.")


async def a_cancelled_write_is_whole_or_absent(make: Make) -> None:
    """After a cancelled write either the record and all of its entries are there or none, and the store goes on."""
    for turns in range(12):
        entries = _chain(*"abc")
        record = _record(entries)
        await cancel_after(turns, make().write_record(record, new_entries=entries, expected_revision=None))
        if await make().read_record(record.conversation_id) is None:
            await _is_missing(make(), entries[0].id, "A cancelled write that left no record left no entry.")
            await make().write_record(record, new_entries=entries, expected_revision=None)
        found = [entry.id for entry in await make().read_history(entries[-1].id)]
        expect([entry.id for entry in entries], found, "A cancelled write is done wholly or not at all, and can be repeated.")


CHECKS: tuple[Check, ...] = checks_in(globals())
"""All checks, in the order in which a failure tells the most."""
