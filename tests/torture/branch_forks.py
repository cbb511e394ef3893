"""Processes that fork branches while others delete, prune and compact these: what a fork showed once it always shows."""

import random
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from persist import Store
from persist.conversations.storage import lineage
from persist.errors import Conflict, InvalidValue, NotFound, PersistError, StoreBusy
from persist.store.transaction import Transaction
from tests.torture.killed_processes import Victim, ready
from tests.torture.scenario import Ground, Scenario, Tally, intact

_TURNS = 40
_SAID = 8
_TURN_SECONDS = 0.05
_READY_SECONDS = 0.7
"""Until all of them have opened a store: they take their turns at once."""
_HANGS_AFTER = 120
_TOLD = (NotFound, Conflict, InvalidValue)
"""What somebody may be told who comes after a deletion."""


def prepare(url: str) -> None:
    """A session for each turn, which nobody updates again; and one that runs, with a progression."""
    with Store.open(url) as store, store.begin() as tx:
        tx.conversations.sessions.create(id="keep", status="running")
        tx.conversations.progressions.create("mine")
        for number in range(_TURNS):
            tx.conversations.sessions.create(id=f"s{number}")
            tx.conversations.branches.create(f"s{number}", id=f"b{number}")
            for said in range(_SAID):
                tx.conversations.messages.record(f"b{number}", _message(f"m{number}-{said}"))


def live(acknowledge: Connection, url: str, deed: str, begins: float, seed: int, most_copied: int) -> None:
    """The deed in every turn; acknowledges (branch, what it shows), ("", ids that stay stored) or (None, error, text)."""
    chance = random.Random(seed)
    lineage.MAX_COPIED = most_copied
    with Store.open(url) as store:
        for number in range(_TURNS):
            time.sleep(max(begins + number * _TURN_SECONDS + chance.random() * 0.01 - time.time(), 0))
            try:
                told = store.transact(partial(_do, deed, chance, number))
                if told is not None:
                    acknowledge.send(told)
            except _TOLD:
                continue
            except StoreBusy as error:
                acknowledge.send((None, "StoreBusy", f"{error.__cause__}"))
            except (PersistError, AssertionError) as error:
                acknowledge.send((None, type(error).__name__, f"{deed}: {error}"))


def _do(deed: str, chance: random.Random, number: int, tx: Transaction) -> Any:
    return DEEDS[deed](tx, chance, number)


def _remove(tx: Transaction, chance: random.Random, number: int) -> None:
    """A branch, its session, or what is old of everything."""
    if number % 3 == 0:
        tx.conversations.branches.delete(f"b{number}")
    elif number % 3 == 1:
        tx.conversations.sessions.delete(f"s{number}")
    else:
        tx.conversations.sessions.prune(keep_days=0, keep_n=_TURNS - number, orphan_grace=timedelta())


def _fork(tx: Transaction, chance: random.Random, number: int) -> tuple[str, list[str]]:
    """Into the session that stays. A parent that went before is one that may come later: then it shows nothing of it."""
    pointers = {"parent_branch_id": f"b{number}", "forked_at_ord": chance.randint(1, _SAID)}
    made = tx.conversations.branches.create("keep", node_metadata=pointers)
    return made.id, [one.id for one in tx.conversations.branches.history(made.id)]


def _fork_in_place(tx: Transaction, chance: random.Random, number: int) -> tuple[str, list[str]] | None:
    at = chance.randint(1, _SAID)
    made = tx.conversations.branches.fork(f"b{number}", at=at)
    shown = [one.id for one in tx.conversations.branches.history(made.id)]
    assert len(shown) == at, f"a fork at {at} shows {shown}"
    return None  # it may go with its session


def _record(tx: Transaction, chance: random.Random, number: int) -> None:
    id = f"r{number}-{chance.randrange(10**9)}"
    tx.conversations.messages.record(f"b{number}", _message(id))
    assert tx.conversations.branches.history(f"b{number}", limit=1)[0].id == id, "it was recorded in a branch that went"


def _name(tx: Transaction, chance: random.Random, number: int) -> tuple[str, list[str]] | None:
    """One that is there when it is named stays."""
    id = f"m{number}-{chance.randrange(_SAID)}"
    if chance.random() < 0.5:
        tx.conversations.progressions.append("mine", id)
    else:
        tx.conversations.progressions.create(ids=[id])
    return ("", [id]) if tx.conversations.messages.get(id) is not None else None


def _compact(tx: Transaction, chance: random.Random, number: int) -> None:
    """The order of one branch that all of them fork."""
    pool = tx.conversations.branches.get("b0").progression_id
    ids = tx.conversations.progressions.get(pool)
    kept = chance.sample(ids, len(ids) // 2)
    new = f"c{chance.randrange(10**9)}"
    tx.conversations.messages.put(_message(new))
    tx.conversations.progressions.replace(pool, [new, *kept])


def _grow(tx: Transaction, chance: random.Random, number: int) -> None:
    for _ in range(3):
        tx.conversations.messages.record("b0", _message(f"g{chance.randrange(10**9)}"))


def _fork_of_all(tx: Transaction, chance: random.Random, number: int) -> tuple[str, list[str]]:
    made = tx.conversations.branches.fork("b0")
    return made.id, [one.id for one in tx.conversations.branches.history(made.id)]


def _sweep(tx: Transaction, chance: random.Random, number: int) -> None:
    """Everything that nothing names goes."""
    tx.conversations.sessions.prune(keep_days=0, keep_n=_TURNS + 1, orphan_grace=timedelta())


DEEDS: dict[str, Callable[[Transaction, random.Random, int], tuple[str, list[str]] | None]] = {
    "remove": _remove,
    "fork": _fork,
    "fork in place": _fork_in_place,
    "record": _record,
    "name": _name,
    "compact": _compact,
    "grow": _grow,
    "fork of all": _fork_of_all,
    "sweep": _sweep,
}
"""One transaction of a turn -> a branch and what it shows, or "" and what must stay stored: acknowledged after the commit."""


def _message(id: str) -> dict[str, Any]:
    return {"id": id, "created_at": 1.0, "role": "user", "content": id}


def _beside(*deeds: str) -> Callable[[Ground, Tally], None]:
    """Processes that do these at once, turn by turn."""

    def run(ground: Ground, tally: Tally) -> None:
        ready()
        for _ in ground.rounds():
            url = ground.new_url()
            prepare(url)
            most_copied = ground.random.choice([lineage.MAX_COPIED, 0])
            begins = time.time() + _READY_SECONDS
            victims = [Victim(live, url, deed, begins, ground.random.randrange(10**6), most_copied) for deed in deeds]
            told = [one for victim in victims for one in victim.end(_HANGS_AFTER)]
            _judge(url, told, tally)
            intact(url, tally)
            tally.rounds += _TURNS

    return run


def _judge(url: str, told: list[Any], tally: Tally) -> None:
    for _, error, text in (one for one in told if one[0] is None):
        tally.errors[error] += 1
        if error != "StoreBusy" or "deadlock" in text:
            tally.problems.append(f"{url}: {error}: {text}")
    kept = [one for one in told if one[0] is not None]
    tally.acknowledged += len(kept)
    with Store.open(url) as store, store.read() as tx:
        for branch, ids in kept:
            if branch:
                shown = [one.id for one in tx.conversations.branches.history(branch)]
            else:
                shown = list(tx.conversations.messages.get_many(ids))
            if shown != ids:
                tally.lost += 1
                tally.problems.append(f"{url}: {branch or 'what was named'} showed {ids}, and shows {shown}")


SCENARIOS = [
    Scenario(
        "branches forked while they are deleted and pruned",
        ("postgres",),
        _beside("remove", "fork", "fork", "fork in place", "record", "name"),
    ),
    Scenario(
        "branches forked while they are compacted",
        ("sqlite", "postgres"),
        _beside("compact", "grow", "fork of all", "fork of all", "sweep"),
    ),
]
