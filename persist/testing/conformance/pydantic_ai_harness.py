"""Checks of a `StepStore` of Pydantic AI's harness. `make()` returns a store; all of them are over one storage."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai_harness.step_persistence import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord

from persist.testing.conformance.running import beyond, cancel_after, checks_in, expect, expect_error, new_id

Make = Callable[[], Any]
Check = Callable[[Make], Awaitable[None]]

_AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def _said(*texts: Any) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(text, timestamp=_AT)]) for text in texts]


def _run(id: str, **fields: Any) -> Any:
    return RunRecord(run_id=id, **{"started_at": _AT, **fields})


def _event(run: str, number: int = 0, key: str | None = None) -> Any:
    return StepEvent(run_id=run, kind="tool_call_started", step_index=number, timestamp=_AT, idempotency_key=key)


def _snapshot(run: str, *texts: Any, key: str | None = None, state: Any = "complete") -> Any:
    return ContinuableSnapshot(
        run_id=run, step_index=len(texts), messages=_said(*texts), timestamp=_AT, state=state, idempotency_key=key
    )


def _effect(run: str, call: str, status: Any = "started", **fields: Any) -> Any:
    return ToolEffectRecord(run_id=run, tool_call_id=call, tool_name="tool", status=status, started_at=_AT, **fields)


async def an_unknown_run_is_nothing(make: Make) -> None:
    """A run that was never registered has nothing."""
    store, run = make(), new_id()
    expect(None, await store.get_run(run_id=run), "There is no run that nobody registered.")
    expect([], await store.list_runs(conversation_id=run), "There are no runs of an unknown conversation.")
    expect([], await store.list_events(run_id=run), "An unknown run has no events.")
    expect(None, await store.latest_snapshot(run_id=run, include_interrupted=True), "An unknown run has no snapshot.")
    expect(None, await store.get_tool_effect(run_id=run, tool_call_id="c"), "An unknown run has no tool effects.")
    expect([], await store.list_unresolved_tool_effects(run_id=run), "An unknown run has no unresolved tool effects.")


async def a_run_comes_back(make: Make) -> None:
    """A run comes back with every field."""
    more = {"conversation_id": new_id(), "parent_run_id": new_id(), "agent_name": "agent é", "registration_id": new_id()}
    record = _run(new_id(), metadata={"z": "1", "a": "2"}, **more)
    await make().register_run(record)
    expect(record, await make().get_run(run_id=record.run_id), "A run comes back as it was registered.")


async def runs_are_listed_by_their_start(make: Make) -> None:
    """Runs are listed by their start, the first one first, and both filters hold where both are given."""
    store, talk, parent = make(), new_id(), new_id()
    ids = [new_id() for _ in range(4)]
    for number, id in zip((2, 0, 1, 3), ids, strict=True):
        more = {"parent_run_id": parent} if number % 2 else {}
        await store.register_run(_run(id, conversation_id=talk, started_at=_AT + timedelta(seconds=number), **more))
    await store.register_run(_run(new_id(), parent_run_id=parent))
    found = [run.run_id for run in await store.list_runs(conversation_id=talk)]
    expect([ids[1], ids[2], ids[0], ids[3]], found, "The runs of a conversation are listed by their start.")
    found = [run.run_id for run in await store.list_runs(conversation_id=talk, parent_run_id=parent)]
    expect([ids[2], ids[3]], found, "Two filters hold both.")
    expect(3, len(await store.list_runs(parent_run_id=parent)), "Runs are found by their parent.")


@beyond
async def a_run_is_registered_once(make: Make) -> None:
    """Another run under an id that is taken is refused with a ValueError, and leaves the first one as it was."""
    store, run = make(), _run(new_id(), agent_name="first")
    await store.register_run(run)
    taking = store.register_run(replace(run, agent_name="second"))
    await expect_error(ValueError, taking, "Another run does not take the place of one that is registered.")
    expect(run, await store.get_run(run_id=run.run_id), "A run stays as it was registered.")


async def events_come_back_in_order(make: Make) -> None:
    """The events of a run come back whole, in the order in which they were appended."""
    run = new_id()
    events = [_event(run, number) for number in (3, 1, 2)]
    more: dict[str, Any] = {"conversation_id": "c", "parent_run_id": "p", "agent_name": "a", "tool_call_id": "t"}
    events.append(replace(events[0], tool_name="n", error="it\u2028failed", metadata={"z": "1", "a": ""}, **more))
    for event in events:
        await make().append_event(event)
    await make().append_event(_event(new_id()))
    expect(events, await make().list_events(run_id=run), "Events come back as they were appended.")


async def an_event_that_is_repeated_is_stored_once(make: Make) -> None:
    """An event whose key its run has is ignored; another run may have it, too; events without a key are all kept."""
    store, one, other = make(), new_id(), new_id()
    for run, number, key in ((one, 1, "k"), (one, 2, "k"), (other, 3, "k"), (one, 4, None), (one, 4, None), (one, 5, "l")):
        await store.append_event(_event(run, number, key))
    expect([1, 4, 4, 5], [event.step_index for event in await store.list_events(run_id=one)], "A repeated event is stored once.")
    expect([3], [event.step_index for event in await store.list_events(run_id=other)], "Keys of events belong to their run.")


async def the_latest_complete_snapshot_is_given(make: Make) -> None:
    """The newest complete snapshot is given, or with `include_interrupted` the newest one."""
    store, run = make(), new_id()
    for letters, state in (("a", "complete"), ("ab", "complete"), ("abc", "interrupted")):
        await store.save_snapshot(_snapshot(run, *letters, state=state))
    expect(_snapshot(run, *"ab"), await store.latest_snapshot(run_id=run), "The newest complete snapshot is given.")
    newest = await store.latest_snapshot(run_id=run, include_interrupted=True)
    expect(_snapshot(run, *"abc", state="interrupted"), newest, "With `include_interrupted` the newest snapshot is given.")


async def an_older_snapshot_is_ignored(make: Make) -> None:
    """A snapshot whose key the run has, or whose number is smaller than that of the newest key, is ignored."""
    store, run = make(), new_id()
    for key, text in (("10:a", "first"), ("9:b", "older"), ("10:a", "repeated"), ("10:b", "second"), ("2:c", "oldest")):
        await store.save_snapshot(_snapshot(run, text, key=key))
    found = await store.latest_snapshot(run_id=run)
    expect("10:b", found.idempotency_key, "What comes late does not take the place of a newer snapshot.")
    await store.save_snapshot(_snapshot(run, "third", key="11:a"))
    expect("11:a", (await store.latest_snapshot(run_id=run)).idempotency_key, "A greater number is newer: they are no texts.")


async def messages_come_back_exactly(make: Make) -> None:
    """The messages of a snapshot come back equal: every character that UTF-8 has, the arguments of tools, bytes."""
    text = 'line\u2028separator, tab\t, quote", back\\slash, \u0085, \xe9, e\u0301, \U0001f600, \ufeff, \x7f, %s'
    arguments = {"z": 1, "a": {"z": None, "a": [1, True, -0.5, 2**53 + 1]}, "": ""}
    taken = _snapshot(new_id(), text, [BinaryContent(bytes(range(256)), media_type="application/octet-stream")], "é" * 300_000)
    taken.messages.append(ModelResponse(parts=[TextPart(""), ToolCallPart("tool", arguments, tool_call_id="c")], timestamp=_AT))
    await make().save_snapshot(taken)
    found = await make().latest_snapshot(run_id=taken.run_id)
    expect(taken, found, "Messages come back as they were stored.")
    expect(list(arguments), list(found.messages[-1].parts[1].args), "The arguments of a tool keep the order of their keys.")


async def a_history_may_be_rewritten(make: Make) -> None:
    """A snapshot has its own messages, even if it has fewer or different messages than the snapshot before."""
    store, run = make(), new_id()
    for letters in ("abc", "abcd", "ab", "abxd", "xy", "", "aa"):
        await store.save_snapshot(_snapshot(run, *letters))
        expect(_snapshot(run, *letters), await store.latest_snapshot(run_id=run), "A snapshot has its own messages.")


async def the_last_word_on_a_tool_call_counts(make: Make) -> None:
    """The new state of a tool call replaces its former state; calls without an end are unresolved."""
    store, run, other = make(), new_id(), new_id()
    for call in "abc":
        await store.record_tool_effect(_effect(run, call))
    await store.record_tool_effect(_effect(other, "a", "failed"))
    ended = _effect(run, "b", "completed", ended_at=_AT, idempotency_key="k", effect_summary="sent\u2028it")
    await store.record_tool_effect(ended)
    expect(ended, await store.get_tool_effect(run_id=run, tool_call_id="b"), "The last word on a tool call counts, whole.")
    expect(_effect(run, "a"), await store.get_tool_effect(run_id=run, tool_call_id="a"), "Runs have calls of their own.")
    unresolved = [effect.tool_call_id for effect in await store.list_unresolved_tool_effects(run_id=run)]
    expect(["a", "c"], sorted(unresolved), "A call that ended is resolved, the others are not.")


@beyond
async def what_is_returned_is_a_copy(make: Make) -> None:
    """Changing what was given or what was returned changes nothing that is stored."""
    store, run = make(), new_id()
    taken, record = _snapshot(run, "a"), _run(run, metadata={"k": "v"})
    await store.save_snapshot(taken)
    await store.register_run(record)
    taken.messages.append(_said("changed")[0])
    record.metadata["k"] = "changed"
    expect(_snapshot(run, "a"), await store.latest_snapshot(run_id=run), "A snapshot does not change with what was given.")
    found = await store.get_run(run_id=run)
    expect("v", found.metadata["k"], "A run does not change with the object that was given.")
    found.metadata["k"] = "changed"
    expect("v", (await store.get_run(run_id=run)).metadata["k"], "A run does not change with the object that was returned.")


async def what_comes_at_once_is_kept_once(make: Make) -> None:
    """Each event of many that are appended at once is kept, and one with the key of another is not."""
    run = new_id()
    calls = [make().append_event(_event(run, number, f"{number % 6}")) for number in range(12)]
    await asyncio.gather(*calls, *(make().append_event(_event(run, 99)) for _ in range(6)))
    events = await make().list_events(run_id=run)
    keys = sorted(event.idempotency_key for event in events if event.idempotency_key is not None)
    expect([f"{number}" for number in range(6)], keys, "Of events with one key one is kept, also where they come at once.")
    expect(12, len(events), "Every event without a key is kept.")


async def a_cancelled_snapshot_is_whole_or_absent(make: Make) -> None:
    """After a cancelled save the snapshot is there wholly or not at all, and the store goes on."""
    for turns in range(12):
        taken = _snapshot(new_id(), *"abc", key="1:a")
        await cancel_after(turns, make().save_snapshot(taken))
        found = await make().latest_snapshot(run_id=taken.run_id)
        if found is not None:
            expect(taken, found, "A cancelled save is done wholly or not at all.")
        await make().save_snapshot(taken)
        expect(taken, await make().latest_snapshot(run_id=taken.run_id), "A cancelled save can be repeated.")


CHECKS: tuple[Check, ...] = checks_in(globals())
"""All checks, in the order in which a failure tells the most."""
