"""persist's conformance kit: our saver and our store pass it, the framework's as far as they go, and each fault is found."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from persist.integrations.langgraph import PersistSaver, PersistStore
from persist.testing.conformance.langgraph import CHECKS, STORE_CHECKS
from tests.contract.faces import every_way
from tests.integrations.kits import Do, require_all, require_all_but_beyond, require_faults_found


@every_way
def test_our_saver_and_store_conform(store: Any, do: Do) -> None:
    saver, items = PersistSaver(store), PersistStore(store)
    require_all(do, CHECKS, lambda: saver)
    require_all(do, STORE_CHECKS, lambda: items)


def test_the_frameworks_own_conform(do: Do) -> None:
    saver, items = InMemorySaver(), InMemoryStore()
    require_all_but_beyond(do, CHECKS, lambda: saver)
    require_all_but_beyond(do, STORE_CHECKS, lambda: items)


class AsJson(InMemorySaver):
    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        checkpoint = {**checkpoint, "channel_values": json.loads(json.dumps(checkpoint["channel_values"], default=str))}
        return await super().aput(config, checkpoint, metadata, new_versions)


class LatestList(InMemorySaver):
    """Keeps one list per channel, whatever the checkpoint."""

    async def aget_tuple(self, config: Any) -> Any:
        found = await super().aget_tuple(config)
        return found and self._newest(found)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        async for found in super().alist(config, **options):
            yield self._newest(found)

    def _newest(self, found: Any) -> Any:
        configurable = found.config["configurable"]
        named = {"thread_id": configurable["thread_id"], "checkpoint_ns": configurable["checkpoint_ns"]}
        newest = super().get_tuple({"configurable": named})
        assert newest is not None
        values = {**found.checkpoint["channel_values"], **newest.checkpoint["channel_values"]}
        return found._replace(checkpoint={**found.checkpoint, "channel_values": values})


class ByReference(InMemorySaver):
    def __init__(self) -> None:
        super().__init__()
        self.given: dict[Any, Any] = {}

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.given[config["configurable"]["thread_id"], checkpoint["id"]] = checkpoint["channel_values"]
        return await super().aput(config, checkpoint, metadata, new_versions)

    async def aget_tuple(self, config: Any) -> Any:
        found = await super().aget_tuple(config)
        if found is None:
            return None
        values = self.given[found.config["configurable"]["thread_id"], found.checkpoint["id"]]
        return found._replace(checkpoint={**found.checkpoint, "channel_values": values})


class Folding(InMemorySaver):
    def _of(self, config: Any) -> Any:
        named = config["configurable"]
        return {"configurable": {**named, "thread_id": named["thread_id"].lower()}}

    async def aput(self, config: Any, *given: Any) -> Any:
        return await super().aput(self._of(config), *given)

    async def aget_tuple(self, config: Any) -> Any:
        return await super().aget_tuple(self._of(config))


class AsTheyCome(InMemorySaver):
    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.number = getattr(self, "number", 0) + 1
        await super().aput_writes(config, writes, task_id, f"{self.number:09}")


class FirstStays(InMemorySaver):
    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        found = await self.aget_tuple(config)
        known = {channel for task, channel, _ in (found.pending_writes or [] if found else []) if task == task_id}
        await super().aput_writes(config, [one for one in writes if one[0] not in known], task_id, task_path)


class NeedingACheckpoint(InMemorySaver):
    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if await self.aget_tuple(config) is not None:
            await super().aput_writes(config, writes, task_id, task_path)


class Locking(InMemorySaver):
    listing = False

    async def aput(self, *given: Any) -> Any:
        if self.listing:
            raise TimeoutError("the database is locked")
        return await super().aput(*given)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        self.listing = True
        async for found in super().alist(config, **options):
            yield found
        self.listing = False


class OneAtATime(InMemorySaver):
    busy = False

    async def aput(self, *given: Any) -> Any:
        if self.busy:
            return given[0]
        self.busy = True
        await asyncio.sleep(0)
        self.busy = False
        return await super().aput(*given)


class InTwoSteps(InMemorySaver):
    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        empty: Any = {**checkpoint, "channel_values": {}}
        await super().aput(config, empty, metadata, {})
        await asyncio.sleep(0)
        return await super().aput(config, checkpoint, metadata, new_versions)


def test_each_check_of_savers_finds_its_fault(do: Do) -> None:
    faults: dict[str, type[InMemorySaver]] = {
        "values_come_back_equal": AsJson,
        "a_list_is_what_it_was_at_every_checkpoint": LatestList,
        "forks_do_not_mix": LatestList,
        "what_is_changed_in_place_is_not_stored": ByReference,
        "similar_threads_are_different": Folding,
        "writes_come_in_the_order_of_tasks": AsTheyCome,
        "an_ordinary_write_stays": FirstStays,
        "writes_may_come_first": NeedingACheckpoint,
        "a_listing_holds_nothing": Locking,
        "what_comes_at_once_is_kept": OneAtATime,
        "a_cancelled_put_is_whole_or_absent": InTwoSteps,
    }
    require_faults_found(do, CHECKS, faults)


class Changing(InMemoryStore):
    """Does something else than it was told."""

    def told(self, op: Any) -> Any:
        return op

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        return await super().abatch([self.told(op) for op in ops])


class NotDeleting(Changing):
    def told(self, op: Any) -> Any:
        return GetOp(op.namespace, op.key) if isinstance(op, PutOp) and op.value is None else op


class Merging(Changing):
    def told(self, op: Any) -> Any:
        if not isinstance(op, PutOp) or op.value is None:
            return op
        known = self._data[op.namespace].get(op.key)
        return op._replace(value={**(known.value if known else {}), **op.value})


class Floats(Changing):
    def told(self, op: Any) -> Any:
        if not isinstance(op, PutOp) or op.value is None:
            return op
        return op._replace(value=json.loads(json.dumps(op.value), parse_int=float))


class FoldingKeys(Changing):
    def told(self, op: Any) -> Any:
        return op._replace(key=op.key.lower()) if isinstance(op, PutOp | GetOp) else op


class ByText(InMemoryStore):
    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        given = list(ops)
        results = await super().abatch(given)
        for number, op in enumerate(given):
            if isinstance(op, SearchOp):
                prefix = ".".join(op.namespace_prefix)
                below = [one for name, items in self._data.items() if ".".join(name).startswith(prefix) for one in items.values()]
                results[number] = below
        return results


class Unfiltered(Changing):
    def told(self, op: Any) -> Any:
        return op._replace(filter=None) if isinstance(op, SearchOp) else op


class FirstPage(Changing):
    def told(self, op: Any) -> Any:
        return op._replace(offset=0) if isinstance(op, SearchOp) else op


class AllNamespaces(Changing):
    def told(self, op: Any) -> Any:
        return op._replace(match_conditions=None) if isinstance(op, ListNamespacesOp) else op


class ReadsFirst(InMemoryStore):
    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        return sorted(await super().abatch(ops), key=lambda found: found is None)


class AnyNamespace(InMemoryStore):
    async def aput(self, namespace: Any, key: str, value: Any, *given: Any, **options: Any) -> None:
        await self.abatch([PutOp(namespace, key, value)])


class Racing(InMemoryStore):
    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        given = list(ops)
        kept = {name: dict(items) for name, items in self._data.items()}
        await asyncio.sleep(0)
        if any(isinstance(op, PutOp) for op in given):
            self._data.clear()
            self._data.update(kept)
        return await super().abatch(given)


class HalfPut(InMemoryStore):
    async def aput(self, namespace: Any, key: str, value: Any, *given: Any, **options: Any) -> None:
        await super().aput(namespace, key, dict(list(value.items())[:1]))
        await asyncio.sleep(0)
        await super().aput(namespace, key, value)


def test_each_check_of_stores_finds_its_fault(do: Do) -> None:
    faults: dict[str, type[InMemoryStore]] = {
        "an_item_is_there_until_it_is_deleted": NotDeleting,
        "a_put_takes_the_place_of_the_last": Merging,
        "values_come_back_exactly": Floats,
        "similar_places_are_different": FoldingKeys,
        "a_prefix_is_made_of_whole_labels": ByText,
        "items_are_filtered": Unfiltered,
        "pages_have_each_item_once": FirstPage,
        "namespaces_are_listed": AllNamespaces,
        "a_batch_answers_in_its_order": ReadsFirst,
        "a_namespace_that_is_none_is_refused": AnyNamespace,
        "items_put_at_once_are_kept": Racing,
        "a_cancelled_put_of_an_item_is_whole_or_absent": HalfPut,
    }
    require_faults_found(do, STORE_CHECKS, faults, "an_item_keeps_when_it_was_made", "what_is_returned_is_a_copy")
