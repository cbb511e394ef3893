"""Checks of a `SessionStore` of the Claude Agent SDK: the SDK's own kit, and what it does not ask for.

`make()` returns a store; all are over one storage. Methods that the SDK calls optional are checked where a store has them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.testing import run_session_store_conformance
from claude_agent_sdk.types import SessionStore

from persist.testing.conformance.running import NotConformant, beyond, cancel_after, checks_in, expect, new_id

Make = Callable[[], Any]
Check = Callable[[Make], Awaitable[None]]

_OPTIONAL = frozenset({"list_sessions", "list_session_summaries", "delete", "list_subkeys"})


def _has(store: Any, method: str) -> bool:
    own = getattr(type(store), method, None)
    return own is not None and own is not getattr(SessionStore, method, None)


def _key(session: str | None = None, **more: Any) -> Any:
    return {"project_key": new_id("project"), "session_id": session or new_id(), **more}


def _entries(*texts: Any, uuids: bool = True) -> list[Any]:
    return [{"type": "user", **({"uuid": new_id()} if uuids else {}), "message": {"content": text}} for text in texts]


class _SeparateStore:
    """A store with project names that are not used elsewhere, so that it is empty at first."""

    def __init__(self, store: Any) -> None:
        self._store, self._prefix = store, new_id()

    def _named(self, key: Any) -> Any:
        return {**key, "project_key": self._prefix + key["project_key"]}

    async def append(self, key: Any, entries: Any) -> None:
        await self._store.append(self._named(key), entries)

    async def load(self, key: Any) -> Any:
        return await self._store.load(self._named(key))

    async def delete(self, key: Any) -> None:
        await self._store.delete(self._named(key))

    async def list_subkeys(self, key: Any) -> Any:
        return await self._store.list_subkeys(self._named(key))

    async def list_sessions(self, project_key: str) -> Any:
        return await self._store.list_sessions(self._prefix + project_key)

    async def list_session_summaries(self, project_key: str) -> Any:
        return await self._store.list_session_summaries(self._prefix + project_key)


async def the_published_kit_passes(make: Make) -> None:
    """The SDK's own kit passes, with every method that the store has."""
    missing = frozenset(name for name in _OPTIONAL if not _has(make(), name))

    def apart() -> Any:
        return _SeparateStore(make())

    await run_session_store_conformance(apart, skip_optional=missing)


@beyond
async def a_retried_batch_is_stored_once(make: Make) -> None:
    """Entries with a `uuid` that a transcript has are left out, since the SDK repeats a batch whose answer was lost."""
    key, entries = _key(), _entries(*"abc")
    await make().append(key, entries[:2])
    await make().append(key, entries)
    expect(entries, await make().load(key), "A batch that is repeated is stored once.")
    sub = {**key, "subpath": "subagents/agent-1"}
    await make().append(sub, entries[:1])
    expect(entries[:1], await make().load(sub), "Transcripts have entries of their own.")


@beyond
async def entries_that_share_an_id_and_differ_are_kept(make: Make) -> None:
    """Entries of one `uuid` that differ are all kept, as programs write them, and stored once when a batch overlaps another."""
    key, uuid = _key(), new_id()
    entries = [{"type": "attachment", "uuid": uuid, "content": content} for content in ("a", ["b"], {"c": 1, "d": 2})]
    entries.insert(1, *_entries("between"))
    await make().append(key, entries[:2])
    await make().append(key, entries)
    await make().append(key, entries[2:])
    expect(entries, await make().load(key), "Entries that share an id and differ are all kept, in their order.")


async def entries_without_an_id_are_all_kept(make: Make) -> None:
    """Entries without a `uuid`, such as titles, are appended every time."""
    key, entries = _key(), _entries("a", "a", uuids=False)
    await make().append(key, entries)
    await make().append(key, entries)
    expect(entries * 2, await make().load(key), "Entries without an id are all kept.")


async def entries_come_back_equal(make: Make) -> None:
    """Entries come back equal: every character that UTF-8 has, nesting, numbers, an entry of a megabyte."""
    text = 'line\u2028separator, tab\t, quote", back\\slash, \u0085, \xe9, e\u0301, \U0001f600, \ufeff, \x7f, %s\n'
    key, entries = _key(), _entries(text, {"z": {"z": None, "a": [1, True, -0.5, 2**53 + 1]}, "": ""}, "é" * 500_000)
    await make().append(key, entries)
    found = await make().load(key)
    if found != entries:
        raise NotConformant("Entries come back as they were appended.", entries, found)


async def many_entries_stay_in_order(make: Make) -> None:
    """A thousand entries of many batches come back in the order in which they were appended."""
    key, entries = _key(), _entries(*range(1000))
    for begin in range(0, 1000, 125):
        await make().append(key, entries[begin : begin + 125])
    expect(entries, await make().load(key), "Entries come back in the order in which they were appended.")


@beyond
async def similar_keys_are_different_transcripts(make: Make) -> None:
    """Keys that differ in case, in spaces or in accents, or that read alike when joined, are transcripts of their own."""
    base = new_id("Name a")
    names = [base, base.upper(), base + " ", base + "%", base[:-1] + "_", base + "'", base.replace("a", "á"), base + "/x"]
    keys = [{"project_key": name, "session_id": name} for name in names]
    keys += [
        {"project_key": base, "session_id": "x/y"},
        {"project_key": base + "/x", "session_id": "y"},
        {"project_key": base, "session_id": "x", "subpath": "y"},
    ]
    for number, key in enumerate(keys):
        await make().append(key, _entries(number, uuids=False))
    for number, key in enumerate(keys):
        expect(_entries(number, uuids=False), await make().load(key), f"The transcript {key} has its own entries only.")


@beyond
async def what_is_returned_is_a_copy(make: Make) -> None:
    """Changing entries that were given or returned changes nothing that is stored."""
    store, key, given = make(), _key(), _entries("a", uuids=False)
    await store.append(key, given)
    given[0]["message"]["content"] = "changed"
    found = await store.load(key)
    expect(_entries("a", uuids=False), found, "An entry does not change with the object that was given.")
    found[0]["message"]["content"] = "changed"
    expect(_entries("a", uuids=False), await store.load(key), "An entry does not change with one that was returned.")


async def batches_of_many_writers_stay_whole(make: Make) -> None:
    """Batches that many tasks append at once are all kept, each with its entries side by side."""
    key, batches = _key(), [_entries(*(f"{batch}.{number}" for number in range(4))) for batch in range(8)]
    await asyncio.gather(*(make().append(key, batch) for batch in batches))
    found = await make().load(key)
    expect(32, len(found), "Every entry is kept once.")
    for batch in batches:
        first = found.index(batch[0])
        expect(batch, found[first : first + 4], "The entries of a batch stand side by side, in their order.")


async def summaries_are_those_of_all_entries(make: Make) -> None:
    """The summary of a session is what the SDK folds of all its entries, however many writers appended them."""
    if not _has(make(), "list_session_summaries"):
        return
    key = _key()
    for number in range(4):
        entry = {"type": "custom-title", "customTitle": f"title {number}", "timestamp": f"2026-01-01T00:00:0{number}.000Z"}
        await make().append(key, [entry])
        await make().append({**key, "subpath": "subagents/agent-1"}, [{**entry, "customTitle": "of a subagent"}])
    folded = fold_session_summary(None, key, await make().load(key))
    (found,) = await make().list_session_summaries(key["project_key"])
    if found["data"] != folded["data"]:
        raise NotConformant("A summary is what the SDK folds of all entries.", folded["data"], found["data"])
    if _has(make(), "list_sessions"):
        (session,) = await make().list_sessions(key["project_key"])
        expect(True, found["mtime"] >= session["mtime"] > 1e12, "A summary is not older than its session, in milliseconds.")


async def a_deleted_session_can_be_written_again(make: Make) -> None:
    """A deleted session is empty when it is written again; its old ids are free, and its neighbours are untouched."""
    if not _has(make(), "delete"):
        return
    key, entries = _key(new_id()), _entries(*"ab")
    neighbour = {**key, "session_id": key["session_id"] + "x"}
    for one in (key, {**key, "subpath": "subagents/agent-1"}, neighbour):
        await make().append(one, entries)
    await make().delete(key)
    await make().append(key, entries[:1])
    expect(entries[:1], await make().load(key), "What is written again is new.")
    expect(
        None, await make().load({**key, "subpath": "subagents/agent-1"}), "What a session's subagents wrote is deleted with it."
    )
    expect(entries, await make().load(neighbour), "A session whose id begins alike is another one.")


async def a_cancelled_append_is_whole_or_absent(make: Make) -> None:
    """After a cancelled append all entries of the batch are there or none, and the session goes on."""
    for turns in range(12):
        key, entries = _key(), _entries(*"abc")
        await cancel_after(turns, make().append(key, entries))
        found = await make().load(key)
        if found is not None:
            expect(entries, found, "A cancelled append is done wholly or not at all.")
        more = _entries("d")
        await make().append(key, more)
        expect([*(found or []), *more], await make().load(key), "A session goes on after a cancelled call.")


CHECKS: tuple[Check, ...] = checks_in(globals())
"""All checks, in the order in which a failure tells the most."""
