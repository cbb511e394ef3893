"""`python -m tests.programs.binding_worker RUN_FILE SOURCE`: binds the name x to a file, again and again."""

import sys
from pathlib import Path

from persist.programs import open_run_file

if __name__ == "__main__":
    with open_run_file(Path(sys.argv[1])) as store:
        assert store.run_id is not None
        for _ in range(20):
            store.programs.bindings.bind_file(store.run_id, "x", sys.argv[2])
