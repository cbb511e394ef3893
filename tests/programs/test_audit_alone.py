"""The audit of a run's file in a program that uses nothing else of persist."""

import subprocess
import sys
from pathlib import Path

from persist.programs import create_run_file

_PROGRAM = """
import sys
from pathlib import Path
from persist.programs import audit, open_run_file

with open_run_file(Path(sys.argv[1])) as store:
    print(audit(store, store.run_id))
"""


def test_the_tables_of_the_other_domains_are_known(tmp_path: Path) -> None:
    with create_run_file(tmp_path) as store:
        path = store.path
    line = [sys.executable, "-c", _PROGRAM, str(path)]
    assert subprocess.run(line, check=True, capture_output=True, text=True, timeout=60).stdout == "[]\n"
