"""Arguments of a wrong kind are refused by an InvalidValue, which is a ValueError, as LangGraph's own stores raise."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp

from persist.errors import InvalidValue
from persist.integrations.langgraph import PersistSaver, PersistStore
from tests.integrations.langgraph.scenes import checkpoint, config, metadata
from tests.integrations.wrong_kinds import KINDS, WRONG, require_typed_errors

Do = Callable[[Awaitable[Any]], Any]

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
