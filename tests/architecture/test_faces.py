"""Store and AsyncStore have the same names with the same parameters; on one of them they are awaited."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Unpack, assert_type, get_origin

import pytest

from persist import Store
from persist.blobs.schemas import Blob
from persist.chat.recording.async_recorder import AsyncRecorder
from persist.chat.recording.recorder import Recorder
from persist.db.transactions.async_transactions import awaitable
from persist.db.transactions.repository import Repository
from persist.db.values.arguments import Count
from persist.store.async_store import AsyncStore, AsyncTransaction
from persist.store.transaction import Transaction
from persist.workflows.schemas import Lease, WorkflowRun

Pairs = list[tuple[str, type, type]]

_OPENING = ("open", "from_engine", "begin", "read", "join")
_GIVEN = (*_OPENING, "record", "watch", "follow", "step", "phase", "on_commit", "on_run_finished", "execution_options")
NOT_AWAITED = {f"store.{name}" for name in _GIVEN}
"""Of a store: they give something to enter or to await, or only take note of something."""

WIRING = {"announcer", "on_dialect", "on_timer", "record_options"}
"""What other modules of persist call; no caller needs it."""


async def _domains() -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes of a transaction of each face."""
    with Store.open("sqlite:///:memory:") as store, store.begin() as tx:
        sync = _public(tx)
    async with AsyncStore.open("sqlite:///:memory:") as astore, astore.begin() as atx:
        return sync, _public(atx)


def _public(thing: object) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in dir(thing) if not name.startswith("_")}


def _repositories() -> Pairs:
    sync, twins = asyncio.run(_domains())
    assert sync.keys() == twins.keys(), "the domains of the two transactions differ"
    found: Pairs = []
    for domain in sync:
        if isinstance(sync[domain], Repository):  # a domain with verbs of its own
            found.append((domain, type(sync[domain]), type(twins[domain])))
            inner = {name: one for name, one in _public(sync[domain]).items() if isinstance(one, Repository)}
            found += [(f"{domain}.{name}", type(one), type(getattr(twins[domain], name))) for name, one in inner.items()]
            continue
        ours, theirs = _public(sync[domain]), _public(twins[domain])
        assert ours.keys() == theirs.keys(), f"the aggregates of {domain} differ"
        found += [(f"{domain}.{name}", type(ours[name]), type(theirs[name])) for name in ours]
    return found


REPOSITORIES = _repositories()
PAIRS: Pairs = [("store", Store, AsyncStore), ("tx", Transaction, AsyncTransaction), ("recorder", Recorder, AsyncRecorder)]


def methods(face: type) -> dict[str, Callable[..., Any]]:
    """Public methods, and what makes a class a context manager."""
    found = {}
    for name, member in inspect.getmembers(face):
        if name.startswith("_") or name in WIRING:
            continue
        if callable(member):
            found[name] = member
    return found


def parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values() if p.name != "self"]


def twins() -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """Every public method of the synchronous face, with the one of that name on the other."""
    for label, sync, other in [*PAIRS, *REPOSITORIES]:
        for name, method in methods(sync).items():
            yield f"{label}.{name}", method, getattr(other, name)


def test_both_faces_have_the_same_names() -> None:
    for label, sync, other in [*PAIRS, *REPOSITORIES]:
        assert methods(sync).keys() == methods(other).keys(), label
        properties = [
            {name for name, member in inspect.getmembers(face, inspect.isdatadescriptor) if name[0] != "_"}
            for face in (sync, other)
        ]
        assert properties[0] <= properties[1], label
        assert other.__name__ == f"Async{sync.__name__}", label


def test_a_verb_has_a_twin_with_the_same_parameters() -> None:
    for label, method, twin in twins():
        assert parameters(twin) == parameters(method), label
        assert inspect.iscoroutinefunction(twin) == (label not in NOT_AWAITED), label
        assert inspect.getdoc(twin), label
        assert Unpack not in [get_origin(one.annotation) for one in inspect.signature(twin).parameters.values()], label


def test_a_verb_is_one_function_on_both_faces() -> None:
    """Together with tests/unit/test_awaitable.py: what a verb does on one face it does on the other, so tests go through one."""
    made = awaitable(Repository.__init__).__code__
    for label, sync, other in REPOSITORIES:
        for name, verb in methods(sync).items():
            twin = inspect.getattr_static(other, name)
            assert twin.__code__ is made, f"{label}.{name} is not made by awaitable"
            assert twin.__wrapped__ is verb, f"{label}.{name} is another verb"


def test_type_checkers_and_completion_know_the_verbs_of_both_faces() -> None:
    """`assert_type` is checked by mypy, which `make lint` runs over this file."""
    with Store.open("sqlite:///:memory:") as store:
        assert_type(store.workflows.runs.create("triage", trigger_id="t", current_phase="plan", id="run"), WorkflowRun)
        assert_type(store.workflows.runs.claim("w", lease=timedelta(1)), Lease | None)
        assert_type(store.workflows.runs.claim("w", lease=timedelta(1), limit=2), list[Lease])
        assert_type(store.workflows.runs.count(), int)
        assert_type(store.workflows.runs.count(exact=False, status="queued"), Count)
        assert_type(store.blobs.put(b"x"), Blob)
        completed = dir(store.chat.sessions)

    async def awaited() -> list[str]:
        async with AsyncStore.open("sqlite:///:memory:") as other, other.begin() as tx:
            assert_type(await tx.workflows.runs.create("triage", trigger_id="t", current_phase="plan"), WorkflowRun)
            assert_type(await tx.workflows.runs.claim("w", lease=timedelta(1)), Lease | None)
            assert_type(await tx.workflows.runs.claim("w", lease=timedelta(1), limit=2), list[Lease])
            assert_type(await tx.workflows.runs.count(), int)
            assert_type(await tx.workflows.runs.count(exact=False, status="queued"), Count)
            assert_type(await tx.blobs.put(b"x"), Blob)
            return dir(tx.chat.sessions)

    of_other = asyncio.run(awaited())
    assert {name for name in completed if name[0] != "_"} - {"guarded"} == {name for name in of_other if name[0] != "_"}
    assert {"create", "fork", "rewind"} < set(completed)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_every_repository_has_verbs(face: str) -> None:
    assert {label for label, sync, other in REPOSITORIES if methods(sync if face == "sync" else other)} >= {
        "chat.sessions",
        "chat.messages",
        "chat.prompts",
    }


def test_both_are_context_managers() -> None:
    for _, sync, other in PAIRS[::2]:
        assert hasattr(sync, "__enter__")
        assert hasattr(sync, "__exit__")
        assert hasattr(other, "__aenter__")
        assert hasattr(other, "__aexit__")
