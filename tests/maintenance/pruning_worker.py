"""A process that prunes: `python -m tests.maintenance.pruning_worker URL WHAT BATCH [ROWS]`. It says what went, then "done"."""

import sys
from datetime import timedelta

from persist import Store
from persist.db.operations.pruning import Pruning
from persist.maintenance import prune


def main(url: str, what: str, batch: str, rows: str = "500") -> None:
    """In small batches, so that it can be killed between two of them."""
    Pruning.batch, Pruning.rows = int(batch), int(rows)
    with Store.open(url) as store:
        prune(store, what, older_than=timedelta(0), progress=lambda rows: print(rows, flush=True))
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
