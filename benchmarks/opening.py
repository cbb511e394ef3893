"""Opening and making a store, and what importing it costs a new interpreter."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.floors import connect
from benchmarks.goals import reached
from benchmarks.measure import Operation, Row, interleaved, middle
from benchmarks.place import Place
from persist import Store

_BASE = "import sqlalchemy.orm, pydantic"
_USED = "import sqlalchemy.orm; from pydantic import BaseModel"
_ROUNDS, _STARTS = 60, 11


def rows(place: Place) -> Iterator[Row]:
    """Files, then interpreters."""
    current, path, numbers = place.file("current"), place.folder / "current.db", count()
    Store.open(current).close()
    seconds = interleaved({"ours": lambda: _open(current), "by hand": lambda: _connect(path)}, rounds=_ROUNDS)
    ours, by_hand = (middle(seconds[name]) * 1e3 for name in ("ours", "by hand"))
    detail = f"in process, median; WAL and schema checked; by hand the connection and a look at the version: {by_hand:.2f} ms"
    yield reached("open", ours, detail)
    made = interleaved({"new": lambda: _open(place.file(f"new-{next(numbers)}"))}, rounds=_ROUNDS)
    interpreters = {
        "base": _BASE,
        "used": _USED,
        "ours": "import persist; persist.Store",
        "async": "import persist; persist.Store, persist.AsyncStore",
        "opened": f"import persist; persist.Store.open({current!r}).close()",
    }
    cache = str(place.folder / "bytecode")
    started = interleaved({name: _starting(code, cache) for name, code in interpreters.items()}, rounds=_STARTS, warm=1)
    ms = {name: middle(values) * 1e3 for name, values in started.items()}
    detail = f"{ms['ours']:.0f} ms vs {ms['base']:.0f} ms, wall clock of the process, median of {_STARTS}"
    yield reached("start", ms["ours"] - ms["base"], detail)
    yield reached("create", middle(made["new"]) * 1e3, "in process, median; every table and index")
    for name, what in (
        ("ours", f"the same, above `{_USED}`"),
        ("async", f"with `persist.AsyncStore`, above `{_USED}`"),
        ("opened", f"and a current file opened and closed, above `{_USED}`"),
    ):
        yield Row(what, ms[name] - ms["used"], float("inf"), f"{ms[name]:.0f} ms vs {ms['used']:.0f} ms", unit=" ms")


def _open(url: str) -> float:
    started = time.perf_counter()
    store = Store.open(url)
    elapsed = time.perf_counter() - started
    store.close()
    return elapsed


def _connect(path: Path) -> float:
    started = time.perf_counter()
    connection = connect(path)
    connection.execute("SELECT version_num FROM persist_alembic_version").fetchall()
    elapsed = time.perf_counter() - started
    connection.close()
    return elapsed


def _starting(code: str, cache: str) -> Operation:
    """With everything compiled by the first start, as it is once it is installed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = cache
    return lambda: subprocess.run([sys.executable, "-c", code], env=environment, check=True)
