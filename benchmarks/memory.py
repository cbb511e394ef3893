"""The most Python objects that live at once, at one size and at four times that size."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.floors import connect
from benchmarks.goals import reached
from benchmarks.measure import Row, most_memory
from benchmarks.place import Place
from benchmarks.recording import begin_text
from benchmarks.sessionlog import write_log
from persist import Store
from persist.maintenance import copy, export
from persist.sessionlog import tail_session_log

MB = 1_000_000
_PIECE = 1000
_PART = 100_000
_ROWS = 20_000


def rows(place: Place) -> Iterator[Row]:
    """The goals, then an answer in many parts."""
    small, large = _twice(lambda mb: _recorded(place, mb, part=mb * MB), 2.5, 10)
    yield reached("memory-recording", large / small, _said(small, large, "one part, in chunks of 1 KB"))
    for key, run in (("memory-copying", _copied), ("memory-exporting", _exported)):
        small, large = _twice(partial(run, place), _ROWS, 4 * _ROWS)
        yield reached(key, large / small, _said(small, large, "messages of 100 bytes, 500 a session"))
    small, large = _twice(lambda mb: _tailed(place, mb), 10, 40)
    yield reached("memory-tailing", large / small, _said(small, large, "from its first line on"))
    small, large = _twice(lambda mb: _recorded(place, mb, part=_PART), 2.5, 10)
    what = "memory to record an answer of 10 MB in parts of 100 KB, vs one of 2.5 MB"
    yield Row(what, large / small, float("inf"), _said(small, large, "in chunks of 1 KB"))


def _twice(run: Callable[[float], float], small: float, large: float) -> tuple[float, float]:
    """At both sizes, after a run that fills the caches of statements."""
    run(small / 10)
    return run(small), run(large)


def _said(small: float, large: float, how: str) -> str:
    return f"{small:,.1f} MiB -> {large:,.1f} MiB; {how}"


def _recorded(place: Place, megabytes: float, part: float) -> float:
    path = place.folder / "recorded.db"
    with Store.open(f"sqlite:///{path}") as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="bench", model={})

        def record() -> None:
            with store.record(session.id) as recorder:
                begin_text(recorder)
                fed = 0
                for number in range(int(megabytes * MB / _PIECE)):
                    recorder.feed({"type": "text-delta", "id": "t", "delta": f"{number:09} ".ljust(_PIECE, "x")})
                    fed += _PIECE
                    if fed >= part:
                        recorder.feed_many([{"type": "text-end", "id": "t"}, {"type": "text-start", "id": "t"}])
                        fed = 0

        peak = most_memory(record)
    _remove(path)
    return peak


def _filled(path: Path, messages: int) -> Store:
    """A store of so many messages, a part each."""
    store = Store.open(f"sqlite:///{path}")
    raw = connect(path)
    at = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    raw.execute("BEGIN")
    sessions = [(f"ses_{number}", at) for number in range(messages // 1000 + 1)]
    raw.executemany(
        "INSERT INTO chat_sessions (id, agent, model_json, created_at, updated_at) VALUES (?1, 'bench', '{}', ?2, ?2)", sessions
    )
    raw.executemany(
        "INSERT INTO chat_messages (id, session_id, role, created_at, updated_at) VALUES (?1, ?2, 'user', ?3, ?3)",
        ((f"msg_{number:09}", f"ses_{number // 500}", at + number) for number in range(messages // 2)),
    )
    raw.executemany(
        'INSERT INTO chat_parts (id, message_id, session_id, "index", type, created_at, updated_at, data_json)'
        " VALUES (?1, ?2, ?3, 0, 'text', ?4, ?4, ?5)",
        (
            (f"prt_{number:09}", f"msg_{number:09}", f"ses_{number // 500}", at, '{"type":"text","text":"%s"}' % ("x" * 70))
            for number in range(messages // 2)
        ),
    )
    raw.execute("COMMIT")
    raw.close()
    return store


def _copied(place: Place, count: float) -> float:
    path, target = place.folder / "filled.db", place.folder / "copied.db"
    with _filled(path, int(count)) as source, Store.open(f"sqlite:///{target}") as into:
        peak = most_memory(lambda: copy(source, into))
    _remove(path, target)
    return peak


def _exported(place: Place, count: float) -> float:
    path, target = place.folder / "filled.db", place.folder / "exported.jsonl"
    with _filled(path, int(count)) as source:
        peak = most_memory(lambda: export(source, target))
    _remove(path, target)
    return peak


def _tailed(place: Place, megabytes: float) -> float:
    log = write_log(place.folder, int(megabytes * MB))

    def follow() -> None:
        for _ in tail_session_log(log, stop=lambda: True):
            pass

    peak = most_memory(follow)
    log.unlink()
    return peak


def _remove(*paths: Path) -> None:
    for path in paths:
        for left in path.parent.glob(f"{path.name}*"):
            left.unlink()
