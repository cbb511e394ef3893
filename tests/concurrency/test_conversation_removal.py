"""A session is deleted while others record into it: whoever comes first, nobody waits for ever, and nothing is half there."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from persist import Store
from persist.errors import NotFound
from tests.concurrency.test_threads import together
from tests.contract.conversations.making import make_branch, make_session, message

ROUNDS = 25


def record_all(store: Store, branch: str, role: str) -> int:
    done = 0
    for number in range(5):
        with store.begin() as tx:
            try:
                tx.conversations.messages.record(branch, {**message(f"{branch}-{number}"), "role": role})
            except NotFound:
                return done
            done += 1
    return done


@pytest.mark.parametrize("role", ["user", "system"])
def test_recording_and_deleting_a_session_never_wait_for_each_other(open_store: Callable[..., Any], role: str) -> None:
    stores = [open_store() for _ in range(3)]
    for number in range(ROUNDS):
        id = make_session(stores[0], f"s{number}").id
        branches = [make_branch(stores[0], id, f"b{number}-{side}") for side in range(2)]

        def delete(id: str = id) -> bool:
            with stores[2].begin() as tx:
                gone: bool = tx.conversations.sessions.delete(id)
                return gone

        recording = [partial(record_all, stores[side], branches[side], role) for side in range(2)]
        *_, gone = together([*recording, delete])
        assert gone is True
        with stores[0].read() as tx:
            assert tx.conversations.branches.list(id) == []
            assert all(tx.conversations.progressions.containing(f"{branch}-0") == [] for branch in branches)
