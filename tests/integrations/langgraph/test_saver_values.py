"""Values that databases refuse are kept, and keys that they refuse are refused before anything is written."""

import asyncio
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import Item
from langgraph.types import Send

from persist import AsyncStore, Store
from persist.errors import InvalidValue
from persist.integrations.langgraph import PersistSaver, PersistStore
from tests.aio.loops import in_loops
from tests.integrations.langgraph.scenes import CONTENT, Reversed, checkpoint, config, messages, metadata, put, seen
from tests.subprocesses import ROOT

Call = Callable[..., Any]
HALF = "\ud83d"
LONG_AGO = datetime(2026, 1, 2, tzinfo=UTC)


class Counting(JsonPlusSerializer):
    """Notes what it deserializes."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[bytes] = []

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        self.read.append(data[1])
        return super().loads_typed(data)


def test_each_value_is_deserialized_once_for_a_whole_history(call: Call, store: Any) -> None:
    saver, said, heads = PersistSaver(store, serde=Counting()), messages(60), 45
    state = {"same": {"k": "x" * 600}}
    for number in range(1, heads + 1):
        put(
            call,
            saver,
            f"{number:02}",
            {"messages": said[: number + 15], "state": state},
            versions={"messages": f"{number}", "state": "1"},
        )
    saver.serde = counted = Counting()
    found = call(saver.list, config())
    assert len(counted.read) == len(said) + 1 + heads
    whole = [seen(call(saver.get_tuple, config(id=f"{number:02}"))) for number in range(heads, 0, -1)]
    assert [seen(one) for one in found] == whole
    for channel in ("messages", "state"):  # each checkpoint has a list and a dictionary of its own
        found[0].checkpoint["channel_values"][channel].clear()
    assert [seen(one) for one in found[1:]] == whole[1:]


def test_equal_elements_of_a_list_are_objects_of_their_own_in_a_history(call: Call, saver: PersistSaver) -> None:
    same = {"k": "x" * 600}
    for id in ("1", "2"):
        put(call, saver, id, {"list": [same, 1, same, None, 1, None]})
    for one in call(saver.list, config()):
        value = one.checkpoint["channel_values"]["list"]
        assert value == [same, 1, same, None, 1, None]
        assert value[0] is not value[2]


def test_nul_is_kept_in_values_writes_and_metadata(call: Call, saver: PersistSaver) -> None:
    said = "before\x00after"
    put(call, saver, "1", {"text": said, "list": [said] * 300, "bytes": said.encode()}, note=said, nested={"a": [said]})
    call(saver.put_writes, config(id="1"), [("text", said)], "task")
    found = call(saver.get_tuple, config())
    assert found.checkpoint["channel_values"] == {"text": said, "list": [said] * 300, "bytes": said.encode()}
    assert found.metadata["note"] == said
    assert found.metadata["nested"] == {"a": [said]}
    assert found.pending_writes == [("task", "text", said)]
    assert [one.metadata["note"] for one in call(saver.list, config(), filter={"note": said})] == [said]


def test_a_lone_half_in_metadata_is_kept(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", note=HALF, nested={HALF: HALF})
    assert call(saver.get_tuple, config()).metadata["nested"] == {HALF: HALF}
    assert len(call(saver.list, config(), filter={"note": HALF})) == 1


class Kept(NamedTuple):
    """A tuple with names."""

    text: str


@dataclass
class Told:
    """Fields, of which one is private."""

    _text: str


HOLDERS: dict[str, Callable[[str], Any]] = {
    "text": lambda text: text,
    "list": lambda text: [*messages(9), {"content": text}],
    "message": HumanMessage,
    "set": lambda text: {text},
    "tuple with names": lambda text: (Kept(text),),
    "dataclass": Told,
    "send": lambda text: Send("node", {"text": [text]}),
    "path": Path,
    "pattern": lambda text: re.compile(re.escape(text)),
    "memory": lambda text: Item(value={"text": text}, key="k", namespace=(), created_at=LONG_AGO, updated_at=LONG_AGO),
    "delta": _DeltaSnapshot,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_lone_half_in_a_value_is_refused_before_anything_is_written(call: Call, saver: PersistSaver, holder: str) -> None:
    value = HOLDERS[holder](f"is it {HALF}?")
    with pytest.raises(ValueError, match=r"channel.*surrogates"):
        put(call, saver, "1", {"other": 1, "channel": value})
    with pytest.raises(ValueError, match=r"channel.*surrogates"):
        call(saver.put_writes, config(id="1"), [("other", 1), ("channel", value)], "task")
    assert call(saver.list, None) == []
    whole = HOLDERS[holder]("is it ??")
    put(call, saver, "1", {"channel": whole})
    assert call(saver.get_tuple, config()).checkpoint["channel_values"].keys() == {"channel"}


def test_a_lone_half_is_refused_where_values_are_encrypted(call: Call, store: Any) -> None:
    saver = PersistSaver(store, serde=EncryptedSerializer(Reversed(), JsonPlusSerializer()))
    with pytest.raises(ValueError, match=r"channel.*surrogates"):
        put(call, saver, "1", {"channel": [HALF]})
    put(call, saver, "1", {"channel": ["?"]})
    assert call(saver.get_tuple, config()).checkpoint["channel_values"] == {"channel": ["?"]}


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), 2**64 - 1, -(2**63), 1e300, -0.0], ids=repr)
def test_numbers_are_kept(call: Call, saver: PersistSaver, number: float) -> None:
    put(call, saver, "1", {"number": number}, number=number)
    found = call(saver.get_tuple, config())
    assert repr(found.checkpoint["channel_values"]["number"]) == repr(number)
    assert found.metadata["number"] == number


def test_nan_is_kept(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", {"number": float("nan")}, number=float("nan"))
    found = call(saver.get_tuple, config())
    assert repr([found.checkpoint["channel_values"]["number"], found.metadata["number"]]) == "[nan, nan]"


def test_metadata_that_is_no_json_is_kept_and_filtered_by(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", odd={1, 2}, plain="x")
    assert call(saver.get_tuple, config()).metadata["odd"] == {1, 2}
    assert len(call(saver.list, config(), filter={"odd": {1, 2}, "plain": "x"})) == 1
    assert call(saver.list, config(), filter={"odd": {1, 3}}) == []


@pytest.mark.parametrize(
    ("thread", "namespace"), [("a\x00", ""), (HALF, ""), ("t", "a\x00"), ("t", HALF)], ids=["nul", "half", "nul-ns", "half-ns"]
)
def test_a_key_that_databases_refuse_is_refused(call: Call, saver: PersistSaver, thread: str, namespace: str) -> None:
    with pytest.raises(ValueError, match="NUL or a lone surrogate half"):
        put(call, saver, "1", {"x": 1}, thread=thread, namespace=namespace)
    assert call(saver.list, None) == []


def test_a_channel_that_databases_refuse_is_refused_before_anything_is_written(call: Call, saver: PersistSaver) -> None:
    with pytest.raises(InvalidValue):
        put(call, saver, "1", {"x": 1, "a\x00": 2})
    with pytest.raises(InvalidValue):
        call(saver.put_writes, config(id="1"), [("x", 1), ("a\x00", 2)], "task")
    assert call(saver.list, None) == []


def test_what_cannot_be_serialized_is_the_frameworks_error_and_nothing_is_written(call: Call, saver: PersistSaver) -> None:
    for attempt in (
        lambda: put(call, saver, "1", {"x": 1, "y": object()}),
        lambda: put(call, saver, "1", {"x": 1, "y": {HALF: 1}}),
        lambda: put(call, saver, "1", {"x": [*messages(9), object()]}),
        lambda: call(saver.put_writes, config(id="1"), [("x", 1), ("y", object())], "task"),
    ):
        with pytest.raises(ormsgpack.MsgpackEncodeError):
            attempt()
    assert call(saver.list, None) == []


def test_a_class_that_is_not_allowed_comes_back_as_its_data(call: Call, store: Any) -> None:
    saver = PersistSaver(store, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    put(call, saver, "1", {"said": [HumanMessage("hi"), Unknown("x" * 600)]})
    (said, other) = call(saver.get_tuple, config()).checkpoint["channel_values"]["said"]
    assert said == HumanMessage("hi")
    assert other == {"text": "x" * 600}
    wider = saver.with_allowlist([(Unknown.__module__, "Unknown")])
    assert call(wider.get_tuple, config()).checkpoint["channel_values"]["said"][1] == Unknown("x" * 600)


class Unknown:
    """A class that no allowlist names."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and other.text == self.text

    __hash__ = None  # type: ignore[assignment]  # it is compared only

    def _asdict(self) -> dict[str, str]:
        return {"text": self.text}


# Random sequences of operations leave what the framework's in-memory saver has after them.


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


# 20 at once: threads of a process, and processes, on one thread id that nobody used before.


def test_one_async_store_serves_loops_and_plain_threads_at_once(database_url: str) -> None:
    """As LangGraph is used: `ainvoke` in one loop, the synchronous methods in a thread without one, a loop in yet another."""
    store = asyncio.run(_opened(database_url))
    saver, items = PersistSaver(store), PersistStore(store)

    async def work(number: int) -> None:
        async def one(turn: int) -> None:
            id = f"{number:02}-{turn}"
            await saver.aput(config(), checkpoint(id, {"said": messages(3)}, {"said": id}), metadata(), {"said": id})
            await items.aput(("shared",), id, {"n": number})
            assert await saver.aget_tuple(config(id=id)) is not None

        await asyncio.gather(*(one(turn) for turn in range(4)))

    def plain(number: int) -> None:
        for turn in range(4):
            id = f"{number:02}-{turn}"
            saver.put(config(), checkpoint(id, {"said": messages(3)}, {"said": id}), metadata(), {"said": id})
            items.put(("shared",), id, {"n": number})

    in_loops(9, lambda number: asyncio.to_thread(plain, number) if number % 3 == 0 else work(number))
    assert len(list(saver.list(config()))) == 9 * 4
    assert len(items.search(("shared",), limit=100)) == 9 * 4
    asyncio.run(store.close())


async def _opened(url: str) -> AsyncStore:
    return await AsyncStore.open(url)


@pytest.mark.long
@pytest.mark.parametrize("count", [4])
def test_processes_share_a_thread_from_its_first_use(database_url: str, count: int) -> None:
    line = [sys.executable, "-m", "tests.integrations.langgraph.worker", "first", database_url]
    processes = [
        subprocess.Popen([*line, f"p{number}"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("go\n", timeout=120)
        assert process.returncode == 0
    with Store.open(database_url) as store:
        found = list(PersistSaver(store).list(config()))
        assert len(found) == count * 10
        assert all(one.checkpoint["channel_values"]["said"] == messages(5 + int(one.checkpoint["id"][0])) for one in found)
        assert {one.pending_writes[0][2][0] for one in found if one.pending_writes} == {f"p{number}" for number in range(count)}
