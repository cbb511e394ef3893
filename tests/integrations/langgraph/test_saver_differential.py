"""Random sequences of operations leave what the framework's in-memory saver has after them."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from persist import Store
from persist.integrations.langgraph import PersistSaver
from tests.integrations.langgraph.scenes import CONTENT, checkpoint, config, metadata, seen

THREADS, NAMESPACES, IDS = ["a", "b"], ["", "child:1"], [f"1ef0-{number}" for number in range(5)]
TEXTS = st.text(max_size=8)  # without surrogates, which the framework's serializer replaces
PIECES = st.one_of(st.none(), st.integers(-9, 9), st.binary(max_size=4), TEXTS, st.sampled_from("abc").map(lambda c: c + CONTENT))
VALUES = st.one_of(PIECES, st.lists(PIECES, max_size=9), st.dictionaries(TEXTS, PIECES, max_size=2), st.floats(allow_nan=False))
METADATA = st.dictionaries(
    st.sampled_from(["run_id", "score", "odd", "step"]),
    st.one_of(st.sampled_from(["r1", "r2"]), st.integers(0, 3), st.just((1, 2)), st.floats(allow_nan=False)),
    max_size=3,
)
PUT = st.tuples(
    st.just("put"),
    st.sampled_from(THREADS),
    st.sampled_from(NAMESPACES),
    st.sampled_from(IDS),
    st.one_of(st.none(), st.sampled_from(IDS)),
    st.dictionaries(st.sampled_from(["x", "messages", "z"]), VALUES, max_size=3),
    st.dictionaries(st.sampled_from(["x", "messages", "z"]), st.integers(1, 3), max_size=3),
    METADATA,
)
WRITES = st.tuples(
    st.just("writes"),
    st.sampled_from(THREADS),
    st.sampled_from(NAMESPACES),
    st.sampled_from(IDS),
    st.lists(st.tuples(st.sampled_from(["x", "messages", *WRITES_IDX_MAP]), VALUES), max_size=3),
    st.sampled_from(["task-1", "task-2"]),
    st.sampled_from(["", "~1", "~2"]),
)
OPERATIONS = st.lists(st.one_of(PUT, WRITES, st.tuples(st.just("delete"), st.sampled_from(THREADS))), min_size=1, max_size=12)


def carry_out(saver: BaseCheckpointSaver[str], operation: tuple[Any, ...]) -> None:
    match operation:
        case ("put", thread, namespace, id, parent, values, versions, more):
            versions = {**dict.fromkeys(values, 3), **versions}  # the in-memory saver drops a value that no version names
            put = checkpoint(id, values, versions)
            saver.put(config(thread, namespace, parent), put, metadata(**more), versions)
        case ("writes", thread, namespace, id, written, task, path):
            saver.put_writes(config(thread, namespace, id), written, task, path)
        case ("delete", thread):
            saver.delete_thread(thread)


def everything(saver: BaseCheckpointSaver[str]) -> Any:
    """What every reading method gives, in an order that is the same for both."""
    found: dict[str, Any] = {"all": sorted(map(seen, saver.list(None)), key=lambda one: sorted(one["config"].items()))}
    for thread in THREADS:
        for namespace in NAMESPACES:
            at = config(thread, namespace)
            found[f"{thread} {namespace} latest"] = seen(saver.get_tuple(at))
            found[f"{thread} {namespace} list"] = [seen(one) for one in saver.list(at)]
            found[f"{thread} {namespace} two"] = [seen(one) for one in saver.list(at, limit=2, before=config(thread, id=IDS[3]))]
            for wanted in ({"step": 1}, {"run_id": "r1"}, {"odd": (1, 2)}, {"absent": None}):
                found[f"{thread} {namespace} {wanted}"] = [seen(one) for one in saver.list(at, filter=wanted, limit=3)]
            for id in IDS:
                one = config(thread, namespace, id)
                found[f"{thread} {namespace} {id}"] = seen(saver.get_tuple(one))
                if not _circular(saver, thread, namespace, id):
                    found[f"{thread} {namespace} {id} history"] = saver.get_delta_channel_history(
                        config=one, channels=["x", "messages"]
                    )
    return found


def _circular(saver: BaseCheckpointSaver[str], thread: str, namespace: str, id: str) -> bool:
    """Whether its ancestors lead back to one of them: nobody makes such, and the in-memory saver would walk for ever."""
    met: set[str] = set()
    at: str | None = id
    while at is not None and at not in met:
        met.add(at)
        found = saver.get_tuple(config(thread, namespace, at))
        at = None if found is None or found.parent_config is None else found.parent_config["configurable"]["checkpoint_id"]
    return at is not None


@settings(max_examples=60)
@given(operations=OPERATIONS)
def test_on_sqlite(operations: list[tuple[Any, ...]]) -> None:
    with Store.open("sqlite:///:memory:") as store:
        compare(PersistSaver(store), operations)


def test_on_postgres(new_postgres_database: Callable[..., str]) -> None:
    with Store.open(new_postgres_database()) as store:

        @settings(max_examples=30)
        @given(operations=OPERATIONS)
        def compared(operations: list[tuple[Any, ...]]) -> None:
            saver = PersistSaver(store)
            for thread in THREADS:
                saver.delete_thread(thread)
            compare(saver, operations)

        compared()


def compare(saver: PersistSaver, operations: list[tuple[Any, ...]]) -> None:
    reference = InMemorySaver()
    for operation in operations:
        carry_out(saver, operation)
        carry_out(reference, operation)
    assert everything(saver) == everything(reference)


def test_versions_are_those_of_the_frameworks_savers() -> None:
    with Store.open("sqlite:///:memory:") as store:
        for current in (None, 7, "00000000000000000000000000000007.0.5"):
            random.seed(1)
            ours = PersistSaver(store).get_next_version(current, None)
            random.seed(1)
            assert ours == InMemorySaver().get_next_version(current, None)  # type: ignore[arg-type]  # threads of old versions have numbers


def test_coroutines_give_the_same() -> None:
    async def run(saver: BaseCheckpointSaver[str]) -> list[Any]:
        await saver.aput(config(), checkpoint("1", {"x": [1, "two"]}), metadata(), {"x": 1})
        await saver.aput_writes(config(id="1"), [("x", 3)], "task")
        return [seen(found) async for found in saver.alist(config())]

    with Store.open("sqlite:///:memory:") as store:
        assert asyncio.run(run(PersistSaver(store))) == asyncio.run(run(InMemorySaver()))
