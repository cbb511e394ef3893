"""Scopes: a name that only the outermost of fifty frames knows, resolved in a run file, against the query by hand."""

import sqlite3
from collections.abc import Iterator

from benchmarks.measure import Row, interleaved, middle, us
from benchmarks.place import Place
from persist.programs import create_run_file

DEPTH, BESIDE, ROUNDS = 50, 2_000, 500
GOAL_MS = 1.0

_BY_HAND = """
WITH RECURSIVE chain(id, parent_id, depth) AS (
  SELECT id, parent_id, 0 FROM execution WHERE run_id = '' AND id = ?
  UNION ALL
  SELECT e.id, e.parent_id, depth + 1 FROM chain JOIN execution e ON e.id = chain.parent_id WHERE depth < 1000
)
SELECT value FROM chain JOIN bindings b ON b.run_id = '' AND b.name = ? AND coalesce(b.execution_id, -1) = chain.id
ORDER BY depth LIMIT 1
"""


def rows(place: Place) -> Iterator[Row]:
    """With as many frames beside them that bind the same name."""
    with create_run_file(place.folder) as store:
        run, path = str(store.run_id), store.path
        assert path is not None
        with store.begin() as tx:
            frames: list[int] = []
            for _ in range(DEPTH):
                parent = frames[-1] if frames else None
                frames.append(tx.programs.executions.begin(run, statement_index=1, statement_text="do", parent_id=parent).id)
            tx.programs.bindings.bind(run, "result", "outermost", execution_id=frames[0])
            for _ in range(BESIDE):
                frame = tx.programs.executions.begin(run, statement_index=2, statement_text="do", parent_id=frames[0])
                tx.programs.bindings.bind(run, "result", "beside", execution_id=frame.id)
        raw = sqlite3.connect(path, isolation_level=None)
        with store.read() as tx:
            alternatives = {
                "verb": lambda: tx.programs.bindings.resolve(run, "result", execution_id=frames[-1]),
                "hand": lambda: raw.execute(_BY_HAND, (frames[-1], "result")).fetchone(),
            }
            assert tx.programs.bindings.resolve(run, "result", execution_id=frames[-1]).value == "outermost"
            times = {name: middle(seconds) for name, seconds in interleaved(alternatives, rounds=ROUNDS).items()}
        raw.close()

    took = us(times["verb"])
    yield Row(
        f"resolve at scope depth {DEPTH}", times["verb"] * 1000, GOAL_MS, f"{took}, by hand {us(times['hand'])}", unit=" ms"
    )
