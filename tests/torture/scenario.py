"""What every scenario is given and answers, whether a store is whole, and the table of what came of all."""

import random
import sqlite3
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from persist import Store
from persist.maintenance import doctor


class Missing(Exception):  # noqa: N818  # no failure: what a scenario needs is not on this machine
    """What is not there."""


@dataclass(slots=True)
class Tally:
    """One scenario on one database, counted."""

    rounds: int = 0
    acknowledged: int = 0
    """Writes whose caller was told that they are durable."""
    lost: int = 0
    """Acknowledged writes that were not there afterwards; anything but 0 fails the run."""
    repaired: int = 0
    """Rounds after which the next open, or the next owner, had something left over to settle, and did."""
    errors: Counter[str] = field(default_factory=Counter)
    """Failures that callers met, by type: the ones that are promised."""
    problems: list[str] = field(default_factory=list)
    """Broken promises other than a loss, a sentence each; any fails the run."""
    missing: str = ""
    """Why it was not run: what is not on this machine."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where one scenario takes place: a folder, databases, chance, and the time it has."""

    folder: Path
    database: str
    """`sqlite` or `postgres`; or `both`, where they are compared."""
    random: random.Random
    ends: float
    """On the monotonic clock."""
    new_url: Callable[[], str]
    """A new database of this kind: a file that does not exist yet, or a migrated database of the server. `both`: a file."""
    new_server_url: Callable[[], str]
    """A new migrated database of the server, whatever the kind is."""

    def rounds(self) -> Iterator[int]:
        """0, 1, 2 … as long as there is time, and at least once."""
        number = 0
        while number == 0 or time.monotonic() < self.ends:
            yield number
            number += 1


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to hurt a store, again and again until its time is over."""

    name: str
    databases: tuple[str, ...]
    run: Callable[[Ground, Tally], None]
    weight: float = 1.0
    """Its share of the time, beside the others."""


def run(scenario: Scenario, ground: Ground) -> Tally:
    """Whatever it raises is a broken promise too: what it counted until then stays."""
    tally = Tally()
    try:
        scenario.run(ground, tally)
    except Missing as missing:
        tally.missing = str(missing)
    except Exception:
        tally.problems.append(traceback.format_exc())
    return tally


# ----------------------------------------------------------------
# Whether a database is whole, asked of the database itself and of the doctor.


def intact(url: str, tally: Tally, *, schema: str | None = None) -> None:
    """Note what is broken; a file must also be whole for SQLite itself."""
    whole(url, tally)
    with Store.open(url, schema=schema) as store:
        healthy(store, url, tally)


def healthy(store: Store, what: str, tally: Tally) -> None:
    """Note the errors that the doctor finds."""
    tally.problems += [f"doctor of {what}: {finding}" for finding in doctor(store) if finding.severity == "error"]


def whole(url: str, tally: Tally) -> None:
    """Note what SQLite finds wrong with a file; nothing of a server."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(Path(url.removeprefix("sqlite:///")))) as connection:
            for check in ("integrity_check", "foreign_key_check"):
                if (found := connection.execute(f"PRAGMA {check}").fetchall()) not in ([("ok",)], []):
                    tally.problems.append(f"{check} of {url}: {found[:5]}")


# ---------------------------------------------------------------- the table of a run, in Markdown


HEAD = """\
| what is done to it | database | rounds | acknowledged | lost | repaired | errors by type |
|---|---|---|---|---|---|---|"""


def row(name: str, database: str, tally: Tally) -> str:
    if tally.missing:
        return f"| {name} | {database} | not run: there is no {tally.missing} | | | | |"
    errors = ", ".join(f"{kind} {count:,}" for kind, count in sorted(tally.errors.items()))
    counts = " | ".join(f"{count:,}" for count in (tally.rounds, tally.acknowledged, tally.lost, tally.repaired))
    return f"| {name} | {database} | {counts} | {errors} |"


def verdict(tallies: Iterable[Tally]) -> str:
    """One sentence on all of them."""
    rounds = acknowledged = lost = problems = 0
    for tally in tallies:
        rounds += tally.rounds
        acknowledged += tally.acknowledged
        lost += tally.lost
        problems += len(tally.problems)
    return f"{rounds:,} rounds, {acknowledged:,} acknowledged writes, {lost:,} lost, {problems:,} broken promises."
