"""The plain model of sessions and branches, what it is made of, and a whole file as text."""

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from hypothesis.stateful import RuleBasedStateMachine

from persist import Store
from persist.conversations.storage import lineage
from persist.testing import FrozenClock
from tests.contract.conversations.making import branch_of
from tests.seeded_databases import new_file


@dataclass
class Session:
    pool: str
    updated_at: datetime
    running: bool
    pointers: list[str] = field(default_factory=list)


@dataclass
class Branch:
    session: str
    pool: str
    inherited: list[str]
    parent: str | None = None
    system: str | None = None


def one_of(ids: Iterable[str], pick: int) -> str:
    ordered = sorted(ids)
    return ordered[pick % len(ordered)]


def dumped(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table of the file, and of its schema."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in ("sqlite_master", *tables)}


class Model(RuleBasedStateMachine):
    """A store, and beside it what its sessions, branches, progressions and messages must be."""

    most_copied: ClassVar[int] = lineage.MAX_COPIED

    def __init__(self) -> None:
        super().__init__()
        self.patch = mock.patch.object(lineage, "MAX_COPIED", self.most_copied)
        self.patch.start()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "state.db"
        self.path.write_bytes(new_file())
        self.clock = FrozenClock()
        self.store = Store.open(f"sqlite:///{self.path.as_posix()}", clock=self.clock)
        self.sessions: dict[str, Session] = {}
        self.branches: dict[str, Branch] = {}
        self.pools: dict[str, list[str]] = {}
        self.messages: dict[str, datetime] = {}  # when each was first put
        self.put_at: dict[str, datetime] = {}
        self.number = 0

    def new(self, letter: str) -> str:
        self.number += 1
        return f"{letter}{self.number:03}"

    def history(self, id: str) -> list[str]:
        branch = self.branches[id]
        return [*branch.inherited, *self.pools[branch.pool]]

    def add_branch(self, id: str, session: str, **fields: Any) -> None:
        pool = branch_of(self.store, id).progression_id
        self.pools.setdefault(pool, [])
        self.branches[id] = Branch(session, pool, **{"inherited": [], **fields})

    @contextmanager
    def changing(self, pool: str, unchanged: int, after: list[str]) -> Iterator[None]:
        """A change of a progression behind its first places: forks that inherit what is there have it as their own then."""
        owners = {id: len(branch.inherited) + unchanged for id, branch in self.branches.items() if branch.pool == pool}
        losing = [id for id, fork in self.branches.items() if len(fork.inherited) > owners.get(fork.parent or "", 10_000)]
        heirs = {id: self.history(id) for id in losing}
        yield
        self.orphan(heirs)
        self.pools[pool] = after

    def orphan(self, heirs: dict[str, list[str]]) -> None:
        """These have nothing to do with their parents any more; the history of some is their own now."""
        for id, items in heirs.items():
            branch = self.branches[id]
            branch.parent = None
            if self.most_copied < 0 and branch.inherited:
                continue
            pool = branch_of(self.store, id).progression_id
            if pool == branch.pool:
                assert self.owners().count(pool) == 1, "the progression of others was changed"
            branch.pool, branch.inherited = pool, []
            self.pools[pool] = items

    def owners(self) -> list[str]:
        return [*(session.pool for session in self.sessions.values()), *(branch.pool for branch in self.branches.values())]
