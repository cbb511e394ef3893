"""Hosts whose connections check no foreign keys: sessions of reused ids come and go, in transactions that may be rolled back."""

import threading
from contextlib import ExitStack
from random import Random

from sqlalchemy import Engine, NullPool, create_engine

from persist import Store
from persist.errors import PersistError, StoreBusy
from persist.store.transaction import Transaction
from tests.torture.scenario import Ground, Scenario, Tally

_IDS = ("one", "two", "three")
_STEPS = 12
_HOSTS = 2


class _Host:
    """A thread with an engine of its own. Every session that it makes says in its only message who made it."""

    def __init__(self, url: str, number: int, seed: float) -> None:
        self._random, self._name = Random(f"{seed} {number}"), f"host {number}"
        self._engine: Engine = create_engine(url, connect_args={"timeout": 30}, poolclass=self._random.choice([None, NullPool]))
        self._url = url
        self.tally = Tally()

    def run(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._engine.dispose)
            store = stack.enter_context(self._random.choice([Store.open, self._lent])(self._url))
            for step in range(_STEPS):
                try:
                    with self._engine.connect() as connection:
                        self._write(store.join(connection), f"{self._name} {step}")
                        (connection.rollback if self._random.random() < 0.3 else connection.commit)()
                    self.tally.acknowledged += 1
                except StoreBusy as error:
                    self.tally.errors[type(error).__name__] += 1
                except PersistError as error:
                    self.tally.problems.append(f"{self._name}: {error!r}")

    def _lent(self, url: str) -> Store:
        return Store.from_engine(self._engine)

    def _write(self, tx: Transaction, text: str) -> None:
        tx.chat.prompts.put(text)  # from here on nobody else writes
        id = self._random.choice(_IDS)
        if any(session.id == id for session in tx.chat.sessions.list(limit=100).items):
            tx.chat.sessions.delete(id)
        tx.chat.sessions.create(id=id, agent="build", model={}, owner=text)
        tx.chat.messages.append(id, role="user", parts=[{"type": "text", "text": text}])


def _unchecked_engines(ground: Ground, tally: Tally) -> None:
    for _ in ground.rounds():
        url = ground.new_url()
        Store.open(url).close()
        hosts = [_Host(url, number, ground.random.random()) for number in range(_HOSTS)]
        threads = [threading.Thread(target=host.run) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for host in hosts:
            tally.acknowledged += host.tally.acknowledged
            tally.errors.update(host.tally.errors)
            tally.problems += host.tally.problems
        with Store.open(url) as store, store.read() as tx:
            for session in tx.chat.sessions.list(limit=100).items:
                said = [part["text"] for message in tx.chat.messages.list(session.id) for part in message["parts"]]
                tally.lost += session.owner not in said
                if len(said) != 1:
                    tally.problems.append(f"{session.id} of {session.owner} shows {said}")
        engine = create_engine(url)
        with engine.connect() as connection:
            if left := connection.exec_driver_sql("SELECT * FROM pragma_foreign_key_check").fetchall():
                tally.problems.append(f"rows without their parent: {left}")
        engine.dispose()
        tally.rounds += 1


SCENARIOS = [Scenario("engines that check no foreign keys", ("sqlite",), _unchecked_engines, 0.5)]
