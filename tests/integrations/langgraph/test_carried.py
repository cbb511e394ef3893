"""What a checkpoint carries is read back, whatever `new_versions` names."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from persist import Store
from persist.integrations.langgraph import PersistSaver, StrictSerializer
from tests.integrations.langgraph.scenes import Reversed, checkpoint, config, messages, metadata

Call = Callable[..., Any]
EVERYTHING = {"my_key": "meow", "node": {"a": [1]}, "none": None, "said": [HumanMessage("hi", id="1"), *messages(6)]}


def put(call: Call, saver: PersistSaver, id: str, values: Any, versions: Any, new: Any, parent: str | None = None) -> Any:
    return call(saver.put, config(id=parent), checkpoint(id, values, versions), metadata(), new)


def values_of(call: Call, saver: PersistSaver) -> dict[str, Any]:
    found = call(saver.list, config())
    for one in found:
        assert call(saver.get_tuple, config(id=one.checkpoint["id"])).checkpoint == one.checkpoint
    return {one.checkpoint["id"]: one.checkpoint["channel_values"] for one in found}


@pytest.mark.parametrize("versions", [dict.fromkeys(EVERYTHING, 3), {"my_key": 3, "other": 2}, {}], ids=["all", "some", "none"])
@pytest.mark.parametrize("new", [{}, {"my_key": 3}, {"my_key": 9}, {"absent": 1}], ids=repr)
def test_what_it_carries_comes_back_with_its_own_versions(call: Call, saver: PersistSaver, versions: Any, new: Any) -> None:
    put(call, saver, "1", EVERYTHING, versions, new)
    found = call(saver.get_tuple, config())
    assert found.checkpoint["channel_values"] == EVERYTHING
    assert found.checkpoint["channel_versions"] == versions


@pytest.mark.parametrize("another", [False, True], ids=["same saver", "another saver"])
@pytest.mark.parametrize("versions", [{"x": 1, "said": 1}, {}], ids=["versions", "no versions"])
def test_a_version_that_holds_another_value_keeps_it(
    call: Call, store: Any, saver: PersistSaver, versions: Any, another: bool
) -> None:
    given: dict[str, Any] = {"1": {"x": "first", "said": messages(5)}, "2": {"x": "second", "said": messages(6)}}
    given |= {"3": {"x": [1], "said": "no list"}, "4": given["1"], "5": {"x": "fifth"}}
    for id, values in given.items():
        put(call, PersistSaver(store) if another else saver, id, values, versions, {}, parent=f"{int(id) - 1}")
    # a channel that a checkpoint does not carry has the value of its version, as always
    assert values_of(call, saver) == given | {"5": given["5"] | ({"said": given["1"]["said"]} if versions else {})}
    put(call, saver, "6", {"x": 6}, {**versions, "x": 2}, {"x": 2}, parent="4")
    call(saver.copy_thread, "t", "u")
    call(saver.prune, ["t"])
    assert values_of(call, saver)["6"]["x"] == 6
    assert len(call(saver.list, config("u"))) == 6


def test_what_a_copy_and_pruning_leave_is_read_back(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", EVERYTHING, dict.fromkeys(EVERYTHING, 1), {})
    changed = EVERYTHING | {"my_key": "purr", "said": messages(7)}
    put(call, saver, "2", changed, dict.fromkeys(EVERYTHING, 1), {}, parent="1")
    call(saver.copy_thread, "t", "u")
    call(saver.prune, ["t"])
    assert values_of(call, saver) == {"2": changed}
    assert call(saver.get_tuple, config("u")).checkpoint["channel_values"] == changed
    assert call(saver.get_tuple, config("u", id="1")).checkpoint["channel_values"] == EVERYTHING


def test_a_value_that_is_not_new_is_put_again_where_its_thread_was_deleted(call: Call, saver: PersistSaver) -> None:
    for _ in range(2):
        put(call, saver, "1", {"x": "old", "y": 1}, {"x": 1, "y": 1}, {"x": 1, "y": 1})
        put(call, saver, "2", {"x": "old", "y": 2}, {"x": 1, "y": 2}, {"y": 2}, parent="1")
        assert values_of(call, saver)["2"] == {"x": "old", "y": 2}
        call(saver.delete_thread, "t")
        put(call, saver, "3", {"x": "old", "y": 3}, {"x": 1, "y": 3}, {"y": 3}, parent="2")
        assert values_of(call, saver) == {"3": {"x": "old", "y": 3}}
        call(saver.delete_thread, "t")


def test_the_history_of_a_channel_starts_from_what_was_carried(call: Call, saver: PersistSaver) -> None:
    put(call, saver, "1", {"said": ["a"]}, {}, {})
    call(saver.put_writes, config(id="1"), [("said", "b")], "task")
    put(call, saver, "2", {}, {"said": 2}, {}, parent="1")
    found = call(saver.get_delta_channel_history, config=config(id="2"), channels=["said"])["said"]
    assert found == {"seed": ["a"], "writes": [("task", "said", "b")]}


def test_what_is_encrypted_is_read_back_too(call: Call, store: Any) -> None:
    saver = PersistSaver(store, serde=EncryptedSerializer(Reversed(), StrictSerializer()))
    put(call, saver, "1", EVERYTHING, {"my_key": 1}, {})
    put(call, saver, "2", EVERYTHING | {"my_key": 2}, {"my_key": 1}, {}, parent="1")
    assert values_of(call, saver) == {"1": EVERYTHING, "2": EVERYTHING | {"my_key": 2}}


CHANNELS = st.sampled_from(["x", "y", "z"])
VALUES: st.SearchStrategy[Any] = st.one_of(st.integers(0, 2), st.just(messages(4)), st.just(messages(5)), st.just([]), st.none())
VERSIONS = st.dictionaries(CHANNELS, st.integers(1, 2), max_size=3)
PUTS = st.lists(st.tuples(st.dictionaries(CHANNELS, VALUES, max_size=3), VERSIONS, st.booleans()), min_size=1, max_size=6)


@settings(max_examples=100)
@given(puts=PUTS)
def test_random_checkpoints_are_read_back(puts: list[tuple[dict[str, Any], dict[str, int], bool]]) -> None:
    """By a saver that names nothing, one by one by new savers or all by one."""
    with Store.open("sqlite:///:memory:") as store:
        saver = PersistSaver(store)
        for number, (values, versions, another) in enumerate(puts):
            one = PersistSaver(store) if another else saver
            one.put(config(), checkpoint(f"{number}", values, versions), metadata(), {})
        for number, (values, versions, _) in enumerate(puts):
            found = saver.get_tuple(config(id=f"{number}"))
            assert found is not None
            assert found.checkpoint["channel_versions"] == versions
            assert found.checkpoint["channel_values"] | values == found.checkpoint["channel_values"]
            assert found.checkpoint["channel_values"].keys() - values.keys() <= versions.keys()
