"""On trio a Store is used from threads, and an AsyncStore is refused."""

import pytest
import trio

from persist import AsyncStore, Store
from persist.errors import UnsupportedEngine
from persist.integrations.pydantic_ai import PersistStepStore
from tests.integrations.pydantic_ai_harness.scenes import effect, event, grown


def test_on_trio(store: Store | AsyncStore) -> None:
    steps = PersistStepStore(store)

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(steps.append_event, event("r", number))
        assert sorted(one.step_index for one in await steps.list_events(run_id="r")) == [0, 1, 2, 3, 4]
        await steps.save_snapshot(grown("r", 2))
        latest = await steps.latest_snapshot(run_id="r")
        assert latest is not None
        assert len(latest.messages) == 2
        await steps.record_tool_effect(effect("r", 1))
        assert len(await steps.list_unresolved_tool_effects(run_id="r")) == 1

    if isinstance(store, Store):
        trio.run(story)
        return
    with pytest.raises(UnsupportedEngine, match="elsewhere give the adapter a Store"):
        trio.run(steps.append_event, event("r", 1))
