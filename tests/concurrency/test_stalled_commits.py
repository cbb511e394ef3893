"""The answer to a snapshot's COMMIT that never arrives, or arrives in part, keeps no store from being closed."""

import random
from collections.abc import Callable

import pytest

from persist import Store
from tests.contract.chat.scenes import create
from tests.torture.proxy import Fate, Message, Proxy


@pytest.mark.parametrize("stalled", [b"C", b"Z"], ids=["all of it", "its end"])
def test_a_store_closes_whose_last_answer_is_held_back(new_postgres_database: Callable[..., str], stalled: bytes) -> None:
    with Proxy(new_postgres_database(), random.Random(1)) as proxy:
        store = Store.open(proxy.url)
        session = create(store)
        with store.read() as tx:
            tx.chat.sessions.get(session)
            seen: list[bytes] = []

            def judge(message: Message) -> Fate:
                if not message.from_server:
                    return Fate.PASS
                seen.append(message.kind)
                return Fate.STALL if message.kind == stalled else Fate.PASS  # what comes after it is held back with it

            proxy.judge = judge
        store.close()
        assert seen[-1:] == [stalled]
