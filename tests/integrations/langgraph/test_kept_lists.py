"""A saver that keeps lists in memory stores and reads what one without memory does, whatever happens around it."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from persist import PersistError, Store
from persist.framework_state.checkpoints.schemas import Blob
from persist.integrations.langgraph import PersistSaver, StrictSerializer
from persist.integrations.langgraph.kept_lists import ListMemory
from tests.integrations.langgraph.scenes import checkpoint, config, messages, metadata

Call = Callable[..., Any]


def exact(value: Any) -> Any:
    """The value's serialized form, which tells 1 from True and 1.0, and one order of keys from another."""
    return StrictSerializer().dumps_typed(value)


def put(call: Call, saver: PersistSaver, id: str, said: Any, parent: str | None = None, thread: str = "t") -> None:
    """Store a checkpoint whose channel has a version of its own."""
    given = checkpoint(id, {"said": said}, {"said": id})
    call(saver.put, config(thread, id=parent), given, metadata(), {"said": id})


def said(call: Call, saver: PersistSaver, id: str | None = None, thread: str = "t") -> Any:
    return call(saver.get_tuple, config(thread, id=id)).checkpoint["channel_values"]["said"]


def assert_read(call: Call, store: Any, saver: PersistSaver, expected: Any, id: str | None = None, thread: str = "t") -> None:
    """The saver, twice, and one without memory read the list."""
    for reader in (saver, saver, PersistSaver(store, memory_bytes=0)):
        assert exact(said(call, reader, id, thread)) == exact(expected)


def _content(given: list[Any]) -> None:
    given[1].content = "changed"


def _key(given: list[Any]) -> None:
    given[1].additional_kwargs["key"] = {"deep": [1, {"er": None}]}


def _call(given: list[Any]) -> None:
    given[2].tool_calls[0]["args"]["path"] = "b.txt"


def _element(given: list[Any]) -> None:
    given[0] = HumanMessage("another", id="0")


def _deep(given: list[Any]) -> None:
    given[3]["a"][0]["b"] = 2


def _order(given: list[Any]) -> None:
    given[3]["a"] = given[3].pop("a")


def _true(given: list[Any]) -> None:
    given[4][0] = True


def _float(given: list[Any]) -> None:
    given[4][0] = 1.0


def _minus(given: list[Any]) -> None:
    given[4][1] = -0.0


def _nan(given: list[Any]) -> None:
    given[4][1] = math.nan


def _shorter(given: list[Any]) -> None:
    del given[2]


def _kind(given: list[Any]) -> None:
    given[1] = HumanMessage(given[1].content, id=given[1].id)


CHANGES = [_content, _key, _call, _element, _deep, _order, _true, _float, _minus, _nan, _shorter, _kind]


def elements() -> list[Any]:
    """Messages and plain values, long enough to be stored in pieces."""
    call = {"name": "read", "args": {"path": "a.txt"}, "id": "c", "type": "tool_call"}
    return [
        HumanMessage("question " * 40, id="0"),
        AIMessage("answer " * 40, id="1"),
        AIMessage("", id="2", tool_calls=[call]),
        {"a": [{"b": 1}], "c": "x" * 200},
        [1, 0.0, "text " * 40],
        ToolMessage("found", tool_call_id="c", id="5"),
    ]


@pytest.mark.parametrize("face", ["sync"])  # the other face serializes in the same code
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("reads", [False, True], ids=["put", "read"])
def test_what_changed_in_place_is_stored(call: Call, store: Any, saver: PersistSaver, change: Any, reads: bool) -> None:
    given = elements()
    put(call, saver, "1", given)
    if reads:
        given = said(call, saver)
    before = copy.deepcopy(given)
    change(given)
    given.append(HumanMessage("more", id="6"))
    put(call, saver, "2", given, "1")
    assert_read(call, store, saver, given)
    assert_read(call, store, saver, before, "1")


def test_what_is_read_belongs_to_the_reader(call: Call, store: Any, saver: PersistSaver) -> None:
    put(call, saver, "1", elements())
    for change in CHANGES:
        change(said(call, saver))
        change(said(call, saver, "1"))
    assert_read(call, store, saver, elements())


@pytest.mark.parametrize("another", [False, True], ids=["by this saver", "by another"])
@pytest.mark.parametrize("gone", ["deleted", "pruned"])
def test_a_thread_that_begins_anew_has_nothing_of_the_former(
    call: Call, store: Any, saver: PersistSaver, gone: str, another: bool
) -> None:
    put(call, saver, "1", elements())
    put(call, saver, "2", [*elements(), "former"], "1")
    other = PersistSaver(store) if another else saver
    call(other.delete_thread, "t") if gone == "deleted" else call(other.prune, ["t"])
    assert (call(saver.get_tuple, config()) is None) == (gone == "deleted")
    put(call, saver, "3", [*elements(), "new"], "2")
    assert_read(call, store, saver, [*elements(), "new"])
    call(other.copy_thread, "t", "u")
    put(call, saver, "4", [*elements(), "new", "newer"], "3", thread="u")
    assert_read(call, store, saver, [*elements(), "new", "newer"], thread="u")
    assert_read(call, store, saver, [*elements(), "new"])


@pytest.mark.parametrize("gone", ["deleted", "deleted and begun anew", "pruned"])
@pytest.mark.parametrize("new", [{"x": 1}, {"x": elements()}], ids=["no list", "a list"])
def test_what_is_not_new_is_stored_again_where_another_saver_deleted_it(
    call: Call, store: Any, saver: PersistSaver, gone: str, new: dict[str, Any]
) -> None:
    given = {**new, "kept": {"a": 1}, "list": elements()}
    call(saver.put, config(), checkpoint("1", given), metadata(), dict.fromkeys(given, 1))
    other = PersistSaver(store)
    if gone == "pruned":
        later = {"kept": "later", "list": ["later"]}
        call(other.put, config(id="1"), checkpoint("2", later, {"kept": 2, "list": 2}), metadata(), {"kept": 2, "list": 2})
        call(other.prune, ["t"])
    else:
        call(other.delete_thread, "t")
        if gone != "deleted":
            call(other.put, config(), checkpoint("1", {"x": "other"}), metadata(), {"x": 1})
    grown = {**given, "x": [*new["x"], "more"] if isinstance(new["x"], list) else 2}
    call(saver.put, config(id="1"), checkpoint("3", grown, {"x": 3, "kept": 1, "list": 1}), metadata(), {"x": 3})
    for reader in (saver, PersistSaver(store)):
        assert exact(call(reader.get_tuple, config()).checkpoint["channel_values"]) == exact(grown)


@pytest.mark.parametrize("changed", ["one of many", "list"])
@pytest.mark.parametrize("new", ["kept", "grown"])
def test_each_value_that_is_not_new_is_stored_again_where_only_its_run_was_deleted(
    call: Call, store: Any, saver: PersistSaver, new: str, changed: str
) -> None:
    given: dict[str, Any] = {f"channel {number}": number for number in range(20)}
    given |= {"one of many": 1, "list": elements(), "kept": 1, "grown": elements()}
    call(saver.put, config(), checkpoint("1", given), metadata(run_id="first"), dict.fromkeys(given, 1))
    given[changed] = [*elements(), "more"] if changed == "list" else 2
    versions = {**dict.fromkeys(given, 1), changed: 2}
    call(saver.put, config(id="1"), checkpoint("2", given, versions), metadata(run_id="second"), {changed: 2})
    call(PersistSaver(store).delete_for_runs, ["second"])
    given[new] = [*elements(), "more"] if new == "grown" else 3
    call(saver.put, config(id="2"), checkpoint("3", given, {**versions, new: 3}), metadata(), {new: 3})
    for reader in (saver, PersistSaver(store)):
        assert exact(call(reader.get_tuple, config()).checkpoint["channel_values"]) == exact(given)


@pytest.mark.parametrize("given", [{"kept": 1, "x": 1}, {"kept": 1, "x": elements()}], ids=["no list", "a list"])
def test_a_put_that_finds_its_thread_deleted_and_then_dies_leaves_nothing(
    call: Call, store: Any, saver: PersistSaver, given: dict[str, Any], execute: Callable[[str], int]
) -> None:
    call(saver.put, config(), checkpoint("1", given), metadata(), dict.fromkeys(given, 1))
    call(PersistSaver(store).delete_thread, "t")

    class Died(BaseException):
        """What ends a process."""

    def die(*_: object) -> None:
        raise Died

    grown = {**given, "x": [*elements(), "more"] if isinstance(given["x"], list) else 2}
    with pytest.MonkeyPatch.context() as patch:
        put, puts = saver._put, iter([lambda put: put, die])
        patch.setattr(saver, "_put", lambda *arguments, **options: next(puts)(put(*arguments, **options)))
        with pytest.raises(Died):
            call(saver.put, config(id="1"), checkpoint("2", grown, {"kept": 1, "x": 2}), metadata(), {"x": 2})
    for table in ("pieces", "values", "states", "threads"):
        assert execute(f"DELETE FROM checkpoint_{table}") == 0


@pytest.mark.parametrize("later", ["the same list", "another list"])
def test_a_put_that_failed_is_not_remembered(call: Call, store: Any, saver: PersistSaver, later: str) -> None:
    put(call, saver, "1", elements())
    with pytest.raises((PersistError, ValueError)):
        put(call, saver, "2\x00", [*elements(), "lost"], "1")
    with pytest.raises(Exception, match="serial"):
        put(call, saver, "2", [*elements(), lambda: None], "1")
    given = [*elements(), "lost" if later == "the same list" else "kept", "more"]
    put(call, saver, "3", given, "1")
    assert_read(call, store, saver, given)


def test_a_row_that_another_program_changed_is_read_from_the_database(
    call: Call, store: Any, saver: PersistSaver, execute: Callable[[str], int]
) -> None:
    put(call, saver, "1", elements())
    put(call, saver, "2", [*elements(), "more"], "1")
    for column in ("spans_json", "digest"):
        first = f"SELECT {column} FROM checkpoint_values WHERE channel = 'said' AND version = '\"1\"'"
        execute(f"UPDATE checkpoint_values SET {column} = ({first}) WHERE channel = 'said'")
    assert_read(call, store, saver, elements(), "2")
    put(call, saver, "3", [*elements(), "more", "still more"], "2")
    assert_read(call, store, saver, [*elements(), "more", "still more"])


def test_a_piece_that_another_program_changed_is_not_kept(
    call: Call, store: Any, saver: PersistSaver, execute: Callable[[str], int]
) -> None:
    for thread in ("t", "u"):
        put(call, saver, "1", elements(), thread=thread)
    fine = "SELECT data FROM checkpoint_pieces WHERE thread_id = 't' AND position = 1"
    execute(f"UPDATE checkpoint_pieces SET data = ({fine}) WHERE thread_id = 't' AND position = 0")
    other = PersistSaver(store)
    assert exact(said(call, other)) == exact([elements()[1], *elements()[1:]])
    assert_read(call, store, other, elements(), thread="u")


def test_a_serializer_that_was_replaced_reads_nothing_of_the_former(call: Call, store: Any) -> None:
    saver = PersistSaver(store, serde=StrictSerializer())
    put(call, saver, "1", elements())
    assert_read(call, store, saver, elements())
    saver.serde = Shouting()
    assert said(call, saver)[0].content.startswith("QUESTION")
    put(call, saver, "2", [*elements(), "more"], "1")
    assert_read(call, store, PersistSaver(store), [*elements(), "more"])


class Shouting(StrictSerializer):
    """A serializer that changes what it reads, as one that migrates old data would."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        found = super().loads_typed(data)
        for element in found if isinstance(found, list) else [found]:
            if isinstance(element, HumanMessage):
                element.content = str(element.content).upper()
        return found


def test_the_memory_is_bounded_by_its_bytes() -> None:
    memory = ListMemory(StrictSerializer(), 100_000)
    for number in range(3_000):
        memory.add(f"{number}".encode(), [Blob("msgpack", bytes([0xC4, 200]) + bytes(200))] * (number % 7 + 1))
    kept = [found for number in range(3_000) if (found := memory.find(f"{number}".encode())) is not None]
    assert 50_000 < sum(one.size for one in kept) <= 112_500
    assert memory.find(b"2999") is not None
    memory.add(b"too large", [Blob("msgpack", bytes([0xC4, 200]) + bytes(200))] * 1_000)
    assert memory.find(b"too large") is None


STEPS = st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 3), st.sampled_from(["add", "change", "cut", "read"])), max_size=9)


@given(steps=STEPS)
def test_any_history_is_read_back(steps: list[tuple[int, int, str]]) -> None:
    """By two savers, from any checkpoint on, with lists that grow, shrink and change in place."""
    with Store.open("sqlite:///:memory:") as store:
        savers = [PersistSaver(store), PersistSaver(store)]

        def call(method: Any, *args: Any, **options: Any) -> Any:
            return method(*args, **options)

        stored = {"0": exact([*messages(3)])}
        lists: dict[str, list[Any]] = {"0": [*messages(3)]}
        put(call, savers[0], "0", lists["0"])
        for number, (who, back, step) in enumerate(steps, start=1):
            parent = f"{max(0, number - 1 - max(back, 0))}"
            given = said(call, savers[who], parent) if back < 0 else lists[parent]
            if step == "add":
                given = [*given, *messages(4)[3:], {"number": number}]
            elif step == "change":
                given[-1] = {"number": number}
                given[0]["content"] = f"changed by {number}"
            elif step == "cut":
                given = given[:-1] if len(given) > 1 else given
            put(call, savers[who], f"{number}", given, parent)
            lists[f"{number}"], stored[f"{number}"] = given, exact(given)
        for reader in (*savers, PersistSaver(store, memory_bytes=0)):
            for id, expected in stored.items():
                assert exact(said(call, reader, id)) == expected
