"""What saver and store refuse, hide and cost: wrong kinds, secrets, round trips; trio; rows of others; the example."""

import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
import trio
from click.testing import CliRunner
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp

from persist import Store
from persist.cli import main
from persist.errors import InvalidValue, StoreCorrupt, UnsupportedEngine
from persist.framework_state.checkpoints.schemas import Blob
from persist.integrations.langgraph import PersistSaver, PersistStore
from persist.schema.migrate import upgrade
from tests.integrations.kits import Do
from tests.integrations.langgraph.scenes import MODEL, checkpoint, config, messages, metadata, stored
from tests.integrations.langgraph.test_strict_saver import plant
from tests.integrations.telling import SECRET, require_silence
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors
from tests.roundtrips.bounds import Row
from tests.roundtrips.meter import Meter, complaint, require
from tests.subprocesses import ROOT

SAVER: dict[str, dict[str, Any]] = {
    "put": {"config": config(), "checkpoint": checkpoint("2", {"a": 1}), "metadata": metadata(), "new_versions": {"a": 1}},
    "put_writes": {"config": config(id="1"), "writes": [("a", 1)], "task_id": "t", "task_path": "p"},
    "get_tuple": {"config": config()},
    "list": {"config": config(), "filter": {"step": 1}, "before": config(id="9"), "limit": 1},
    "copy_thread": {"source_thread_id": "unknown", "target_thread_id": "u"},
    "prune": {"thread_ids": ["unknown"], "strategy": "keep_latest"},
    "delete_for_runs": {"run_ids": ["r"]},
    "get_delta_channel_history": {"config": config(), "channels": ["a"]},
    "delete_thread": {"thread_id": "unknown"},
}


def test_arguments_of_a_saver(store: Any, database_url: str, do: Do) -> None:
    saver = PersistSaver(store)
    do(saver.aput(config(), checkpoint("1", {"a": 1}), metadata(), {"a": 1}))
    methods = {f"a{name}": given for name, given in SAVER.items()}
    methods |= SAVER
    methods["get_next_version"] = {"current": None, "channel": None}
    ids = ("copy_thread.source_thread_id", "copy_thread.target_thread_id", "delete_thread.thread_id")
    require_typed_errors(
        lambda: saver,
        methods,
        do=do,
        database_url=database_url,
        error=InvalidValue,
        # a thread may have a number; LangGraph's runner gives no channel
        accepted=[*ids, *(f"a{id}" for id in ids), "get_next_version.channel", "get_next_version.current"],
        is_documented=lambda error: "msgpack serializable" in str(error),  # the serializer's own
    )


VALID: dict[str, Any] = {"namespace": ("n",), "key": "k"}
PREFIX = MatchCondition("prefix", ("n",))
OPERATIONS = [
    (GetOp, VALID),
    (PutOp, {**VALID, "value": {"a": 1}, "index": None, "ttl": 1.0}),
    (SearchOp, {"namespace_prefix": ("n",), "filter": {"a": 1}, "limit": 1, "offset": 0, "query": "q"}),
    (ListNamespacesOp, {"match_conditions": (PREFIX,), "max_depth": 1, "limit": 1, "offset": 0}),
]


@pytest.mark.parametrize(("kind", "valid"), OPERATIONS, ids=lambda one: getattr(one, "__name__", ""))
def test_parts_of_operations(store: Any, do: Do, kind: Any, valid: dict[str, Any]) -> None:
    items = PersistStore(store)
    complaints = []
    for name in valid:
        for wrong in WRONG:
            try:
                do(items.abatch([kind(**{**valid, name: wrong})]))
            except (InvalidValue, InvalidNamespaceError):
                pass
            except Exception as error:
                complaints.append(f"{kind.__name__}({name}={wrong!r}) raised {type(error).__name__}: {error}")
    assert not complaints, "\n".join(complaints)


def test_arguments_of_a_store(store: Any, database_url: str, do: Do) -> None:
    methods: dict[str, dict[str, Any]] = {"abatch": {"ops": [GetOp(("n",), "k")]}, "asweep_ttl": {}}
    methods |= {"batch": methods["abatch"], "sweep_ttl": {}}
    require_typed_errors(lambda: PersistStore(store), methods, do=do, database_url=database_url, error=InvalidValue)


@pytest.mark.parametrize("kind", [PersistSaver, PersistStore])
@pytest.mark.parametrize("wrong", WRONG, ids=KINDS)
def test_what_is_no_store(kind: Any, wrong: Any) -> None:
    with pytest.raises(InvalidValue, match="expected a Store or an AsyncStore"):
        kind(wrong)


ROWS = (
    Row("put", 1, goal=1),
    Row("put_writes", 1, goal=1),
    Row("list", 2, goal=2),
    Row("delete_thread", 1, goal=2),
    Row("prune", 2, goal=2),
    Row("store.put", 2, goal=2),
    Row("store.get", 1, goal=1),
    Row("store.search", 1, goal=1),
    Row("store.delete", 2, goal=2),
    Row("store.list_namespaces", 1, goal=1),
    Row("get_tuple", 2, goal=2),
)


@pytest.fixture
def calls(meter: Meter) -> Iterator[dict[str, Callable[[], object]]]:
    """Each method on a thread whose list of messages grows by one in every checkpoint."""
    with Store.open(meter.url) as store:
        saver, items = PersistSaver(store), PersistStore(store)
        numbers, tasks = count(3), count()

        def put() -> None:
            number = next(numbers)
            given = {"messages": messages(number)}
            saver.put(config(), checkpoint(f"{number:03}", given, {"messages": number}), metadata(), {"messages": number})

        put()
        yield {
            "put": put,
            "put_writes": lambda: saver.put_writes(config(id="003"), [("messages", 1)], f"task {next(tasks)}"),
            "get_tuple": lambda: saver.get_tuple(config()),
            "list": lambda: list(saver.list(config(), limit=5)),
            "delete_thread": lambda: saver.delete_thread("t"),
            "prune": lambda: saver.prune(["t"]),
            "store.put": lambda: items.put(("a",), "k", {"n": 1}),
            "store.get": lambda: items.get(("a",), "k"),
            "store.search": lambda: items.search(("a",)),
            "store.delete": lambda: items.delete(("a",), "k"),
            "store.list_namespaces": lambda: items.list_namespaces(),
        }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_method_keeps_its_bound(row: Row, meter: Meter, calls: dict[str, Callable[[], object]]) -> None:
    require(complaint(row.name, row.bound, meter.flights(calls[row.name], bound=row.bound)))


# What is stored stands in no error of a saver, nor in those that one comes from, nor in the log.


NO_VALUES = {
    "json": ("json", f'["{SECRET}",'.encode()),
    "json that is not utf-8": ("json", f'["{SECRET}'.encode() + b'\xff"]'),
    "msgpack": ("msgpack", b"\x92" + ormsgpack.packb(SECRET)),
    "an extension": ("msgpack", ormsgpack.packb(ormsgpack.Ext(99, SECRET.encode()))),
    "a short object": ("msgpack", ormsgpack.packb(ormsgpack.Ext(MODEL, ormsgpack.packb([SECRET])))),
    "an object of text": ("msgpack", ormsgpack.packb(ormsgpack.Ext(MODEL, ormsgpack.packb(SECRET)))),
}


@pytest.mark.parametrize("bad", NO_VALUES)
def test_a_value_that_cannot_be_read_is_not_told(
    call: Callable[..., Any], saver: PersistSaver, database_url: str, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plant(database_url, value=Blob(*NO_VALUES[bad]))
    if bad == "an object of text":  # its letters are a module, a name and a method: a class that nobody has
        call(saver.get_tuple, config(id="1"))
        assert SECRET not in caplog.text
        return
    with pytest.raises(StoreCorrupt, match="nothing that LangGraph's serializer writes") as caught:
        call(saver.get_tuple, config(id="1"))
    require_silence(caught, caplog)


def test_a_message_whose_class_fails_is_not_told(
    call: Callable[..., Any], saver: PersistSaver, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    plant(database_url, value=Blob(*stored(MODEL, "langchain_core.messages.human", "HumanMessage", {"content": {"a": SECRET}})))
    call(saver.get_tuple, config(id="1"))
    assert SECRET not in caplog.text


def test_a_text_that_is_refused_is_not_told(call: Callable[..., Any], saver: PersistSaver) -> None:
    with pytest.raises(InvalidValue, match="would not be stored as it is") as caught:
        call(saver.put, config("t"), checkpoint("1", {"said": f"{SECRET}\ud83d"}, {"said": "1"}), metadata(), {"said": "1"})
    require_silence(caught)


# The example survives its kill, and the command line shows what it left.


def run(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "langgraph_app.py"), "--url", url, *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_the_example_survives_its_kill(database_url: str) -> None:
    upgrade(database_url)
    killed = run(database_url, "--crash-in", "Faro")
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.split("\n")[:-1] == ["booking Lisbon", "booking Porto"]
    resumed = run(database_url)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout.split("\n")[:-1] == ["booking Faro", "All 3 are booked.", "booked: Faro Lisbon Porto"]
    assert run(database_url).stdout == "The trip is booked already.\n"


def test_the_command_line_shows_its_thread(database_url: str, tmp_path: Path) -> None:
    upgrade(database_url)
    run(database_url)
    listed = CliRunner().invoke(main, ["ls", "checkpoints", "--url", database_url, "-q"])
    assert listed.output == "trip\n"
    shown = CliRunner().invoke(main, ["show", "trip", "--url", database_url])
    assert shown.exit_code == 0
    assert "loop" in shown.output
    file = tmp_path / "trip.jsonl"
    exported = CliRunner().invoke(main, ["export", str(file), "--session", "trip", "--url", database_url])
    assert exported.exit_code == 0
    assert "checkpoint_states" in file.read_text(encoding="utf-8")


# On trio a Store is used from threads, and an AsyncStore is refused.


async def embed(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


def test_a_saver_on_trio(store: Any) -> None:
    saver = PersistSaver(store)

    async def story() -> None:
        await saver.aput(config(), checkpoint("1", {"a": 1}), metadata(), {"a": 1})
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(saver.aput_writes, config(id="1"), [("a", number)], f"task{number}")
        found = await saver.aget_tuple(config())
        assert found is not None
        assert sorted(value for _, _, value in found.pending_writes or ()) == [0, 1, 2, 3, 4]
        assert len([one async for one in saver.alist(config())]) == 1
        await saver.adelete_thread("t")
        assert await saver.aget_tuple(config()) is None

    if isinstance(store, Store):
        trio.run(story)
        return
    with pytest.raises(UnsupportedEngine, match="elsewhere give the adapter a Store"):
        trio.run(story)


def test_a_store_on_trio(store: Any) -> None:
    index: Any = {"dims": 2, "embed": embed}
    items = PersistStore(store, index=index)

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(items.aput, ("n",), f"k{number}", {"text": "x" * number})
        assert len(await items.asearch(("n",), query="xx", limit=3)) == 3
        assert await items.aget(("n",), "k1") is not None
        assert await items.alist_namespaces() == [("n",)]

    if isinstance(store, Store):
        trio.run(story)
        return
    with pytest.raises(UnsupportedEngine, match="elsewhere give the adapter a Store"):
        trio.run(items.aget, ("n",), "k")


# Threads into which other programs wrote are shown, whatever is in them.


@pytest.mark.parametrize("bad", ["5", "null", "[]", '"x"'])
@pytest.mark.parametrize("column", ["versions_json", "metadata_json", "partial_json"])
def test_a_foreign_checkpoint_is_shown(
    call: Callable[..., Any], saver: PersistSaver, execute: Callable[[str], int], database_url: str, column: str, bad: str
) -> None:
    call(saver.put, config("t"), checkpoint("1", {"said": "hi"}, {"said": "1"}), metadata(), {"said": "1"})
    assert execute(f"UPDATE checkpoint_states SET {column} = '{bad}'") == 1
    for command in (["ls", "checkpoints"], ["show", "t"]):
        result = CliRunner().invoke(main, [*command, "--url", database_url])
        assert result.exit_code == 0, result.exception
        assert "t" in result.output
