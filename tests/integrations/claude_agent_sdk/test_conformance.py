"""The framework's own conformance kit, and random histories beside its store in memory."""

from typing import Any

from claude_agent_sdk import InMemorySessionStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persist import Store
from persist.integrations.claude_agent_sdk import PersistSessionStore
from tests.integrations.kits import Do

KEYS = st.builds(
    lambda project, session, subpath: {
        "project_key": project,
        "session_id": session,
        **({"subpath": subpath} if subpath else {}),
    },
    st.sampled_from(["p", "q"]),
    st.sampled_from(["s", "t"]),
    st.sampled_from([None, None, "subagents/agent-1", "subagents/agent-2", "subagents/run/agent-1"]),
)
TEXTS = st.sampled_from(["", "hi", "\x00", "\ud83d", "Naïve 😀", "x" * 300, "<command-name>/x</command-name>", "line\nline"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
ENTRIES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"type": st.sampled_from(["x", "summary"]), "summary": VALUES, "any": VALUES}),
        st.fixed_dictionaries(
            {
                "type": st.just("user"),
                "timestamp": st.sampled_from(["2026-01-01T00:00:00.000Z", "never", 1, None]),
                "isMeta": st.booleans(),
                "cwd": TEXTS,
                "gitBranch": VALUES,
                "message": st.fixed_dictionaries(
                    {"content": TEXTS | st.lists(st.builds(lambda t: {"type": "text", "text": t}, TEXTS))}
                ),
            }
        ),
        st.fixed_dictionaries({"type": st.sampled_from(["tag", "custom-title"]), "tag": TEXTS, "customTitle": TEXTS}),
    ),
    max_size=3,
)
STEPS = st.lists(st.tuples(st.sampled_from(["append", "append", "append", "delete"]), KEYS, ENTRIES), max_size=12)


def emptied(look: Store) -> None:
    with look.begin() as tx:
        for found in tx.transcripts.sessions.list(limit=1000).items:
            tx.transcripts.sessions.delete(found.project, found.session_id)


def test_random_histories_read_as_in_memory(store: Any, look: Store, do: Do) -> None:
    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def history(steps: list[Any]) -> None:
        emptied(look)
        do(both_read_alike(PersistSessionStore(store), steps))

    history()


async def both_read_alike(ours: Any, steps: list[Any]) -> None:
    theirs: Any = InMemorySessionStore()
    keys: list[Any] = []
    for number, (step, key, entries) in enumerate(steps):
        keys.append(key)
        if step == "delete":
            await ours.delete(key)
            await theirs.delete(key)
        elif entries:  # of an empty batch the store in memory makes a key
            given = [{**entry, "uuid": f"{number}-{place}"} if place % 2 else entry for place, entry in enumerate(entries)]
            await ours.append(key, given)
            await theirs.append(key, given)
    for key in keys:
        assert await ours.load(key) == await theirs.load(key)
        assert sorted(await ours.list_subkeys(key)) == sorted(await theirs.list_subkeys(key))
        listed, expected = await ours.list_sessions(key["project_key"]), await theirs.list_sessions(key["project_key"])
        assert sorted(one["session_id"] for one in listed) == sorted(one["session_id"] for one in expected)
        summaries = await ours.list_session_summaries(key["project_key"])
        assert {one["session_id"]: one["data"] for one in summaries} == {
            one["session_id"]: one["data"] for one in await theirs.list_session_summaries(key["project_key"])
        }
        mtimes = {one["session_id"]: one["mtime"] for one in listed}
        assert {one["session_id"]: one["mtime"] for one in summaries} == mtimes
        assert all(type(mtime) is int and mtime > 1e12 for mtime in mtimes.values())
