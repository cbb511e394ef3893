"""Measures one part in a process of its own, `python -m benchmarks.one NAME [--postgres URL] [--quick]`: JSON, a row a line."""

import argparse
import json
import sys
import tempfile
import traceback
from dataclasses import asdict
from pathlib import Path

from benchmarks.parts import BY_NAME
from benchmarks.place import Place


def main() -> int:
    """Every row as soon as it is known; what went wrong in the last line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("name", choices=BY_NAME)
    options.add_argument("--postgres")
    options.add_argument("--quick", action="store_true")
    options.add_argument("--full", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="persist-bench-", ignore_cleanup_errors=True) as folder:
        try:
            for row in BY_NAME[given.name].rows(Place(Path(folder), given.postgres, given.quick, given.full)):
                print(json.dumps(asdict(row)), flush=True)
        except Exception as error:
            traceback.print_exc()
            print(json.dumps({"failed": type(error).__name__}), flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
