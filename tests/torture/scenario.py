"""What every scenario is given, and what it answers."""

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


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
