"""A database whose settings are others than persist relies on: writes beside others are refused no more often than elsewhere."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
from sqlalchemy import make_url

from persist import Store
from persist.errors import PersistError
from tests.torture.scenario import Ground, Scenario, Tally, intact

_THREADS = 6
_SETTINGS = ("default_transaction_isolation = serializable", "extra_float_digits = 0")
_HANGS_AFTER = 90


def odd_settings(ground: Ground, tally: Tally) -> None:
    """In each round threads append to one session through two stores: each of these transactions succeeds at its first try."""
    url = ground.new_url()
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in _SETTINGS:
            connection.execute(f'ALTER DATABASE "{make_url(url).database}" SET {setting}'.encode())
    with Store.open(url) as left, Store.open(url) as right, ThreadPoolExecutor(_THREADS) as threads:
        for number in ground.rounds():
            session = left.chat.sessions.create(agent="build", model={}).id
            stores = (left, right) * (_THREADS // 2)
            tried = [threads.submit(partial(_append, store, session, str(place), tally)) for place, store in enumerate(stores)]
            told = {text for one in tried if (text := one.result(_HANGS_AFTER))}
            with left.read() as tx:
                there = [message["parts"][0]["text"] for message in tx.chat.messages.list(session)]
            tally.acknowledged += len(told)
            tally.lost += len(told - set(there))
            if len(there) != len(set(there)):
                tally.problems.append(f"round {number}: {there}")
            tally.rounds += 1
    intact(url, tally)


def _append(store: Store, session: str, text: str, tally: Tally) -> str | None:
    try:
        with store.begin() as tx:
            tx.chat.sessions.get(session)  # a snapshot of the whole transaction would begin here
            tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": text}])
    except PersistError as error:
        tally.problems.append(f"a write beside others was refused: {error!r}")
        return None
    return text


SCENARIOS = [Scenario("settings of a role", ("postgres",), odd_settings)]
