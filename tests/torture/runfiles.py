"""Programs' run files, killed: a value that is a file and the row that names it agree."""

import time
from multiprocessing.connection import Connection
from pathlib import Path

from persist import Store
from persist.errors import PersistError
from persist.programs import audit, create_run_file, list_run_files, open_run_file
from persist.settings import Settings
from tests.torture.killed_processes import Victim, doomed
from tests.torture.scenario import Ground, Scenario, Tally, healthy, whole

_SMALL = Settings(attachment_bytes=1000)
_NAMES = ("a", "b", "c")
_BINDS = 40


def value(number: int) -> str:
    """Large ones are files, small ones stay in the row; no two are the same."""
    return f"{number} " + "x" * (20_000 if number % 4 else 10)


def create(acknowledge: Connection, root: str) -> None:
    """Acknowledges the run's id."""
    with create_run_file(Path(root), program_source="let x = 1", settings=_SMALL) as store:
        acknowledge.send(store.run_id)


def bind(acknowledge: Connection, path: str, start: int) -> None:
    """Each value takes the place of one before it."""
    with open_run_file(Path(path), settings=_SMALL) as store:
        assert store.run_id is not None
        for number in range(start, start + _BINDS):
            with store.begin() as tx:
                tx.programs.bindings.bind(store.run_id, _NAMES[number % 3], value(number))
            acknowledge.send(number)


def read(acknowledge: Connection, path: str) -> None:
    """A subagent that reads them all the while: acknowledges what it should not have met."""
    with open_run_file(Path(path), settings=_SMALL) as store:
        assert store.run_id is not None
        while True:
            try:
                for text in _values(store, store.run_id).values():
                    assert text.rstrip("x")[-1] == " ", text[:20]
                time.sleep(0.002)
            except Exception as error:
                acknowledge.send(f"{type(error).__name__}: {error}")


def killed_run_files(ground: Ground, tally: Tally) -> None:
    """First as it is made, then as values are bound; a file that no row names is told of, and nothing else is left."""
    for number in ground.rounds():
        root = ground.folder / f"root {number}"
        root.mkdir()
        made = doomed(create, ground.random, str(root), events=5.5).acknowledged
        tally.acknowledged += len(made)
        tally.rounds += 1
        found = [path.parent.name for path in list_run_files(root)]
        if [run for run in made if run not in found]:
            tally.lost += 1
            tally.problems.append(f"{root}: {made} was made, and there are {found}")
        for there in list_run_files(root):
            try:
                open_run_file(there).close()
            except PersistError as error:
                tally.problems.append(f"{there}: {type(error).__name__}: {error}")
        with create_run_file(root, program_source="let x = 1", settings=_SMALL) as store:
            path, run = store.path, store.run_id
        assert path is not None
        assert run is not None
        start, reader = 0, Victim(read, str(path))
        for _ in range(3):
            told = doomed(bind, ground.random, str(path), start, first=_BINDS).acknowledged
            tally.rounds += 1
            tally.acknowledged += len(told)
            start = _look(path, run, start + len(told), tally)
        tally.problems += [f"a reader of {path}: {met}" for met in reader.kill()]


def _look(path: Path, run: str, count: int, tally: Tally) -> int:
    """How many were bound."""
    whole(f"sqlite:///{path.as_posix()}", tally)
    with open_run_file(path, settings=_SMALL) as store:
        found = _values(store, run)
        bound = next((told for told in (count, count + 1) if found == _expected(told)), None)
        if bound is None:
            tally.lost += 1
            tally.problems.append(f"{path}: after {count} there is {[text[:10] for text in found.values()]}")
            bound = count
        healthy(store, str(path), tally)
        unused = [finding for finding in audit(store, run) if finding.code == "attachment_unused"]
        if others := [finding for finding in audit(store, run) if finding not in unused]:
            tally.problems.append(f"{path}: {others}")
        if len(unused) > 2:
            tally.problems.append(f"{path}: after one kill {unused}")
        for finding in unused:  # what doctor tells of, a person removes
            (path.parent / "attachments" / finding.subject.removeprefix("attachment ")).unlink()
        tally.repaired += bool(unused)
    return bound


def _values(store: Store, run: str) -> dict[str, str]:
    with store.read() as tx:
        return {one.name: tx.programs.bindings.resolve(run, one.name).value or "" for one in tx.programs.bindings.list(run)}


def _expected(count: int) -> dict[str, str]:
    return {_NAMES[number % 3]: value(number) for number in range(count)}


SCENARIOS = [Scenario("run files killed", ("sqlite",), killed_run_files)]
